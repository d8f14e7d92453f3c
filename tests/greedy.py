"""What the greedy exactness tests share.

Reference texts, draft models of every quality, and the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from outrider import Client, GenerationResult
from outrider.models.cut import NOISE_SCALE, noisy_copy
from outrider.models.hub import build_once, default_target
from outrider.models.loading import load_tokenizer

TOKENS = 64


def noisy_target() -> Path:
    """A copy of the default target whose weights carry noise, made once."""
    return build_once(
        f"noisy-{NOISE_SCALE:g}", lambda out: noisy_copy("default", out, NOISE_SCALE, seed=1)
    )


# Name of a draft_model variant -> its --drafter flag. `cut` is the 4-layer cut that comes with the
# target.
def drafter_flags(variant: str) -> list[str]:
    """The --drafter flags of a cluster whose draft_model has the named quality.

    Ngram comes along with `cut`.
    """
    if variant == "cut":
        return ["draft_model", "ngram"]
    return [f"draft_model={default_target() if variant == 'self' else noisy_target()}"]


@dataclass(frozen=True)
class Difference:
    """Where two texts part.

    Position among the generated tokens, both tokens, the target's top-2 gap there.
    """

    position: int
    expected: int | None
    found: int | None
    gap: float

    def __str__(self) -> str:
        tokens = f"{self.expected} expected, {self.found} found"
        return f"position {self.position}: {tokens}, top-2 gap {self.gap:.2e}"


class Reference:
    """transformers' own greedy decoding of the default target, float32."""

    @cached_property
    def model(self) -> Any:
        """The plain transformers model."""
        return AutoModelForCausalLM.from_pretrained(default_target(), dtype=torch.float32).eval()

    @cached_property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return load_tokenizer("default")

    def encode(self, prompt: str, *, chat: bool) -> list[int]:
        """Token ids of a prompt: raw, or as a user's message under the chat template."""
        if not chat:
            return list(self.tokenizer(prompt)["input_ids"])
        messages = [{"role": "user", "content": prompt}]
        encoded = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True
        )
        return list(encoded["input_ids"])

    def generate(self, prompt: Sequence[int], tokens: int = TOKENS) -> list[int]:
        """The generated ids, EOS included."""
        ids = torch.tensor([list(prompt)])
        with torch.inference_mode():
            out = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens
            )
        return [int(token) for token in out[0, len(prompt) :]]

    def compare(
        self, prompt: Sequence[int], expected: Sequence[int], found: Sequence[int]
    ) -> Difference | None:
        """The first difference of two continuations of `prompt`; None where they are equal."""
        if list(expected) == list(found):
            return None
        pairs = zip(expected, found, strict=False)
        shorter = min(len(expected), len(found))
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
        with torch.inference_mode():
            logits = self.model(torch.tensor([[*prompt, *expected[:at]]])).logits[0, -1].float()
        top = logits.topk(2).values
        return Difference(
            at,
            expected[at] if at < len(expected) else None,
            found[at] if at < len(found) else None,
            float(top[0] - top[1]),
        )


def speculative(method: str, k: int, nodes: int | None = None) -> dict[str, Any]:
    """A fixed K, chains unless there are more `nodes`; 0 is plain."""
    if k == 0:
        return {"n_max": 0}
    return {"method": method, "n_max": k, "n_min": k, "nodes_max": nodes or k}


def run(
    address: str,
    prompts: Sequence[Sequence[int]],
    method: str,
    k: int,
    streams: int,
    tokens: int = TOKENS,
    nodes: int | None = None,
) -> list[GenerationResult]:
    """Greedy results of all prompts, `streams` of them at once."""
    with Client(address) as client, ThreadPoolExecutor(streams) as pool:
        return list(
            pool.map(
                lambda ids: client.generate(
                    prompt_token_ids=list(ids),
                    max_tokens=tokens,
                    temperature=0.0,
                    speculative=speculative(method, k, nodes),
                ),
                prompts,
            )
        )
