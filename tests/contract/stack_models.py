"""What the services of a deployment agree on: a tokenizer of bytes, and tiny models behind it."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

import torch
from target_server import TIMEOUT, SteeredModel
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from outrider.models.causal_lm import CausalLM, Hidden, Segment
from outrider.models.tokenizer import tokenizer_fingerprint
from tests.tiny import tiny_model

SPECIALS = ("<|start|>", "<|stop|>", "<|spare|>", "<|end|>")
VOCAB = 256 + len(SPECIALS)
EOS = VOCAB - 1
CONTEXT = 512
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|stop|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


@functools.cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, so that characters are split over tokens, and four special tokens behind them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(
        BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=SPECIALS[-1])
    made.chat_template = TEMPLATE
    return made


def encode(text: str) -> list[int]:
    return list(tokenizer()(text)["input_ids"])


def model(noise: float = 0.0, vocab: int = VOCAB, **shape: int) -> CausalLM:
    """The tiny target, or a copy of it whose weights carry noise."""
    torch.set_num_threads(1)  # the engines of several services share this process
    made = tiny_model(vocab=vocab, **shape)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weights in made.parameters() if noise else ():
            weights += noise * torch.randn(weights.shape, generator=generator)
    return CausalLM.from_model(
        made, name="tiny", tokenizer_fingerprint=tokenizer_fingerprint(tokenizer())
    )


class CycleModel(SteeredModel):
    """Writes the bytes of `cycle`, each of which occurs once, one after the other and over
    again."""

    def __init__(self, cycle: str, eos_ids: Sequence[int] = (), delay_s: float = 0.0) -> None:
        super().__init__(_reference(), delay_s)
        self.eos_ids = tuple(eos_ids)
        ids = encode(cycle)
        assert len(set(ids)) == len(ids)
        self._next = dict(zip(ids, [*ids[1:], ids[0]], strict=True))
        self._first = ids[0]

    def forward(self, segments: Sequence[Segment], taps: Sequence[int] = ()) -> Hidden:
        assert self.gate.wait(TIMEOUT)
        time.sleep(self.delay_s)
        for segment in segments:
            segment.cache.length += len(segment.tokens)
        tokens = [
            self._next.get(token, self._first) for segment in segments for token in segment.tokens
        ]
        return Hidden(torch.tensor(tokens).unsqueeze(1), None)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return 100.0 * torch.nn.functional.one_hot(states[:, 0], VOCAB).float()


@functools.cache
def _reference() -> CausalLM:
    return model()


@functools.cache
def greedy(prompt: str, tokens: int) -> tuple[int, ...]:
    """The target's own text behind `prompt`, one row at a time, EOS ignored."""
    plain = _reference()
    cache, text, pending = plain.new_cache(), list[int](), encode(prompt)
    for _ in range(tokens):
        hidden = plain.forward([Segment.chain(cache, pending)])
        pending = [int(plain.logits(hidden.states[-1:]).argmax())]
        text += pending
    return tuple(text)
