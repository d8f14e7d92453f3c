"""The target of a training: as the engine runs it, and as layers that can be copied."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from outrider.models.causal_lm import CausalLM
from outrider.models.family import eos_ids_of
from outrider.models.heads.target import TargetParts, parts_of
from outrider.models.hub import DEFAULT, DEFAULT_NAME, Progress, resolve, silent
from outrider.models.loading import (
    INT8,
    load_model,
    load_pretrained,
    parse_device,
    parse_dtype,
    settled_dtype,
)
from outrider.models.numerics import weights_hash
from outrider.models.tokenizer import load_tokenizer, tokenizer_fingerprint
from training.facts import Target
from training.prefill import Prefill


@dataclass(frozen=True)
class TrainingTarget:
    """A target by its spec; each part is loaded when it is first asked for.

    dtype: in which the engine writes texts and states. The layers that are trained, and the heads
    that teach, are float32.
    """

    spec: str
    device: str = "cpu"
    threads: int | None = None
    progress: Progress = silent
    dtype: str = "auto"

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """With the chat template."""
        return load_tokenizer(self.spec, self.progress)

    @cached_property
    def model(self) -> PreTrainedModel:
        """The transformers model, on the CPU and frozen."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        model = load_pretrained(resolve(self.spec, self.progress), torch.float32)
        model.requires_grad_(False).train(False)
        return model

    @cached_property
    def facts(self) -> Target:
        """Name, hash of the weights, sizes."""
        place = resolve(self.spec, self.progress)
        name = DEFAULT_NAME if self.spec == DEFAULT else str(getattr(place, "name", place))
        return Target.of(self.model, name, weights_hash(self.model))

    @cached_property
    def parts(self) -> TargetParts:
        """What a checkpoint says of it, and takes from it at load."""
        place, fingerprint = resolve(self.spec), tokenizer_fingerprint(self.tokenizer)
        return parts_of(self.model, self.facts.name, fingerprint, str(place))

    @property
    def where(self) -> torch.device:
        """The device."""
        return parse_device(self.device)

    def engine(self, kv_rows: int = 1 << 13) -> CausalLM:
        """The same as the target service runs it, with memory for `kv_rows` cached tokens."""
        if self.where.type == "cuda":
            torch.set_float32_matmul_precision("high")
        text = self.model.config.get_text_config()
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        row = 2 * heads * dim * 4 * text.num_hidden_layers
        return load_model(
            self.spec,
            dtype=self.dtype,
            device=self.device,
            threads=self.threads,
            kv_bytes=row * kv_rows,
        )

    def prefill(self) -> Prefill:
        """For states of whole texts, in the served dtype; int8 has those of bfloat16 but for
        rounding."""
        dtype = settled_dtype(self.dtype, self.spec, self.device)
        kind = torch.bfloat16 if dtype == INT8 else parse_dtype(dtype, self.where)
        model = load_pretrained(resolve(self.spec, self.progress), kind)
        torch.nn.Module.to(model, self.where)
        return Prefill(model.train(False))

    def special_ids(self) -> list[int]:
        """Tokens that end or structure texts."""
        added = self.tokenizer.added_tokens_decoder.items()
        ids = {int(number) for number, token in added if token.special}
        ids |= {*self.tokenizer.all_special_ids, *eos_ids_of(self.model)}
        return sorted(number for number in ids if 0 <= number < self.facts.vocab_size)

    def provenance(self) -> dict[str, Any]:
        """For files that came from this target."""
        return {"target": asdict(self.facts), "dtype": self.dtype, "device": self.device}
