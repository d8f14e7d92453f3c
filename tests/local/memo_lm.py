"""A real transformer, tiny and random, that remembers its logits: thousands of rounds take seconds.

It stands in for `CausalLM` behind the target's and the drafter's own code. Its cache holds tokens
instead of keys: a row that is kept wrongly, or stands for another token than it should, changes
every logit behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.models.cache import KVCache
from outrider.models.causal_lm import CausalLM, Hidden, Segment
from outrider.models.numerics import Numerics
from outrider.models.pool import KVPool, LayerShape
from tests.tiny import tiny_model

Prefix = tuple[int, ...]


class TokenCache(KVCache):
    """A cache whose keys are the tokens of its rows."""

    @property
    def tokens(self) -> list[int]:
        keys, _ = self.rows(0, torch.arange(self.length))
        return keys[:, 0, 0].long().tolist()

    def append(self, tokens: Sequence[int]) -> None:
        rows = torch.tensor(tokens, dtype=torch.float32).view(1, -1, 1)
        self.reserve(self.length + len(tokens))
        self.write(0, self.length, rows, rows)
        self.length += len(tokens)


class MemoLM:
    """Logits of `model` times `sharpness`; states are row numbers of a table."""

    def __init__(
        self, model: PreTrainedModel, sharpness: float = 1.0, context_length: int = 512
    ) -> None:
        self.model = model
        self.name = "memo"
        self.vocab_size: int = model.config.vocab_size
        self.context_length = context_length
        self.tokenizer_fingerprint = "tiny"
        self.numerics = Numerics("w", "float32", "none", "memo")
        shape = LayerShape(heads=1, key_dim=1, value_dim=1)
        self.pool = KVPool([shape], torch.float32, torch.device("cpu"), 4 << 20)
        self.forwards = 0
        self._sharpness = sharpness
        self._known: dict[Prefix, int] = {}
        self._table = torch.empty(1024, self.vocab_size)
        self._lock = threading.Lock()  # an engine's thread and a drafter may share the model

    def new_cache(self) -> TokenCache:
        return TokenCache(self.pool)

    def forward(self, segments: Sequence[Segment], taps: Sequence[int] = ()) -> Hidden:
        self.forwards += 1
        prefixes: list[Prefix] = []
        for segment in segments:
            cache = cast(TokenCache, segment.cache)
            paths: list[Prefix] = [tuple(cache.tokens) if cache.length else ()]
            for token, parent in zip(segment.tokens, segment.parents, strict=True):
                paths.append((*paths[parent + 1], token))
            if max(map(len, paths)) > self.context_length:
                raise ValueError(
                    f"tokens: {max(map(len, paths))} positions, limit {self.context_length}"
                )
            prefixes += paths[1:]
            cache.append(segment.tokens)
        with self._lock:
            self._learn([prefix for prefix in dict.fromkeys(prefixes) if prefix not in self._known])
        return Hidden(torch.tensor([[self._known[prefix]] for prefix in prefixes]), None)

    def logits(self, states: Tensor) -> Tensor:
        return self._table[states[:, 0]]

    def of(self, prefix: Sequence[int]) -> Tensor:
        """Logits [V] behind a prefix, straight from the model."""
        with torch.inference_mode():
            logits: Tensor = self.model(torch.tensor([list(prefix)])).logits[0, -1]
        return logits * self._sharpness

    @torch.inference_mode()
    def _learn(self, prefixes: Sequence[Prefix]) -> None:
        if not prefixes:
            return
        first = len(self._known)
        while first + len(prefixes) > len(self._table):
            self._table = torch.cat([self._table, torch.empty_like(self._table)])
        longest, rows = _longest(prefixes)
        padded = torch.zeros(len(longest), max(map(len, longest)), dtype=torch.long)
        for row, prefix in enumerate(longest):
            padded[row, : len(prefix)] = torch.tensor(
                prefix
            )  # causal: the right never reaches a row
        logits = self.model(padded, use_cache=False).logits
        last = [len(prefix) - 1 for prefix in prefixes]
        self._table[first : first + len(prefixes)] = logits[rows, last] * self._sharpness
        self._known.update((prefix, first + row) for row, prefix in enumerate(prefixes))


def _longest(prefixes: Sequence[Prefix]) -> tuple[list[Prefix], list[int]]:
    """Prefixes that no other one continues, and for each prefix which of them continues it."""
    wanted = set(prefixes)
    row_of: dict[Prefix, int] = {}
    longest: list[Prefix] = []
    for end in sorted(prefixes, key=len, reverse=True):
        if end not in row_of:
            prefix = end
            while prefix in wanted and prefix not in row_of:
                row_of[prefix] = len(longest)
                prefix = prefix[:-1]
            longest.append(end)
    return longest, [row_of[prefix] for prefix in prefixes]


def as_model(model: MemoLM | CausalLM) -> CausalLM:
    """The type that the code under test names."""
    return cast(CausalLM, model)


def memo_lm(
    vocab: int = 8, seed: int = 0, sharpness: float = 1.0, context_length: int = 512
) -> MemoLM:
    """A random model; models of different seeds have nothing in common."""
    return MemoLM(
        tiny_model(vocab=vocab, layers=2, hidden=32, seed=seed), sharpness, context_length
    )


def noisy(model: MemoLM, noise: float, seed: int = 1) -> MemoLM:
    """A copy whose weights carry `noise` times their spread: a draft model often right."""
    copy = tiny_model(vocab=model.vocab_size, layers=2, hidden=32)
    copy.load_state_dict(model.model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in copy.parameters():
            if weight.dim() > 1:
                weight.add_(noise * weight.std() * torch.randn(weight.shape, generator=generator))
    return MemoLM(copy, model._sharpness, model.context_length)
