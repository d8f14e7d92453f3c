"""Whether a model's rows have the same bits in any company, measured on the machine at hand.

All exactness rests on this: a row's logits depend on its own path alone. Kernels may
break that on a processor that nobody has tried, so each start measures it on random tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outrider.models.cache import KVCache, blocks_for
from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.linear import SLICE

logger = logging.getLogger(__name__)

ROWS = (1, 2, 3, 5, 8, 16)
CHUNKS = (7, 21)
PREFIX = 40
TAIL = 64
TREE = (-1, 0, 0, 2, 3, 2)
"""Parents of a small tree; the path 0, 2, 3, 4 is the chain's beginning."""
PATH = (0, 2, 3, 4)


@dataclass(frozen=True)
class SelfCheck:
    """What was found: `failed` names what moved a row's bits, nothing where all is exact."""

    failed: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether no row's bits moved."""
        return not self.failed

    def __str__(self) -> str:
        return "exact" if self.exact else f"inexact: {', '.join(self.failed)}"


def self_check(lm: CausalLM) -> SelfCheck | None:
    """Compares logits of the same rows bit by bit; leaves the model's pool as it found it.

    `failed` may have: number of rows, neighbours, chunks, trees, kept rows. None where the model's
    context or its pool has no room for the check.
    """
    prefix = min(PREFIX, lm.context_length // 4)
    tail = min(TAIL, lm.context_length - prefix)
    if tail < max(*ROWS, sum(CHUNKS)) or lm.pool.free < 3 * blocks_for(prefix + tail):
        return None
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(lm.vocab_size, (2 * (prefix + tail),), generator=generator).tolist()
    return _Check(lm, drawn[:prefix], drawn[prefix : prefix + tail], drawn[prefix + tail :]).run()


def checked(lm: CausalLM) -> CausalLM:
    """The same model with the self-check's result in its numerics."""
    found = self_check(lm)
    if found is not None:
        lm.numerics = replace(lm.numerics, self_check=str(found))
    if found is None or not found.exact:
        logger.warning("self-check of %s: %s", lm.name, found or "no room, unchecked")
    else:
        logger.info("self-check of %s: %s", lm.name, found)
    return lm


@dataclass(frozen=True)
class _Check:
    """Every comparison goes on behind `prefix`; `expected` are the logits of `tail` in one pass."""

    lm: CausalLM
    prefix: Sequence[int]
    tail: Sequence[int]
    others: Sequence[int]

    def run(self) -> SelfCheck:
        base = self.lm.new_cache()
        try:
            self.lm.forward([Segment.chain(base, self.prefix)])
            with self._behind(base) as cache:
                expected = self._logits([Segment.chain(cache, self.tail)])
            tree, kept = self._tree(base, expected)
            same = {
                "number of rows": self._number(base, expected),
                "neighbours": self._neighbours(base, expected),
                "chunks": self._chunks(base, expected),
                "trees": tree,
                "kept rows": kept,
            }
            return SelfCheck(tuple(name for name, found in same.items() if not found))
        finally:
            base.free()

    def _number(self, base: KVCache, expected: Tensor) -> bool:
        for rows in ROWS:
            with self._behind(base) as cache:
                found = self._logits([Segment.chain(cache, self.tail[:rows])])
            if not torch.equal(found, expected[:rows]):
                return False
        return True

    def _neighbours(self, base: KVCache, expected: Tensor) -> bool:
        with self._behind(base) as cache, self._behind(base) as before, self._own() as behind:
            pack = [
                Segment.chain(before, self.others[:5]),
                Segment.chain(cache, self.tail[:3]),
                Segment.chain(behind, self.others[5:9]),
            ]
            few = torch.equal(self._logits(pack)[5:8], expected[:3])
        with self._behind(base) as cache, self._own() as before:
            # The one row behind the products' slices.
            pack = [Segment.chain(before, self.others[:SLICE]), Segment.chain(cache, self.tail[:1])]
            return few and torch.equal(self._logits(pack)[SLICE:], expected[:1])

    def _chunks(self, base: KVCache, expected: Tensor) -> bool:
        with self._behind(base) as cache:
            done, found = 0, []
            for rows in CHUNKS:
                part = self.tail[done : done + rows]
                found.append(self._logits([Segment.chain(cache, part)]))
                done += rows
        return torch.equal(torch.cat(found), expected[:done])

    def _tree(self, base: KVCache, expected: Tensor) -> tuple[bool, bool]:
        """Whether a path in a tree has the chain's bits, and what follows its kept rows too."""
        path, length = len(PATH), base.length
        with self._behind(base) as cache:
            nodes = self._logits([Segment(cache, self._tree_tokens(), TREE)])
            cache.keep(length, [length + row for row in PATH])
            following = self._logits([Segment.chain(cache, self.tail[path : path + 2])])
        return (
            torch.equal(nodes[list(PATH)], expected[:path]),
            torch.equal(following, expected[path : path + 2]),
        )

    def _tree_tokens(self) -> list[int]:
        tokens = list(self.others[: len(TREE)])
        for row, token in zip(PATH, self.tail, strict=False):
            tokens[row] = token
        return tokens

    def _logits(self, segments: Sequence[Segment]) -> Tensor:
        return self.lm.logits(self.lm.forward(segments).states)

    @contextmanager
    def _behind(self, base: KVCache) -> Iterator[KVCache]:
        cache = base.fork(base.length)
        try:
            yield cache
        finally:
            cache.free()

    @contextmanager
    def _own(self) -> Iterator[KVCache]:
        cache = self.lm.new_cache()
        try:
            yield cache
        finally:
            cache.free()
