"""Ways in which a session's cache comes to hold a text, all of which must give the same bits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hypothesis import strategies as st

from outrider.models.cache import BLOCK, KVCache
from outrider.models.causal_lm import CausalLM, Segment

VOCAB = 64
LONGEST = 2 * BLOCK + 4
LENGTHS = (1, 2, 15, 16, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, LONGEST)
SEEDS = (1, 2)
STEPS = 8
"""Most steps of a history; what is missing then comes as one chunk."""


def text_of(seed: int) -> list[int]:
    """A text of LONGEST tokens."""
    return random.Random(seed).choices(range(VOCAB), k=LONGEST)


@dataclass
class Plain:
    """Texts decoded token by token with nobody beside: what everything is compared with."""

    lm: CausalLM

    @cached_property
    def _caches(self) -> dict[int, KVCache]:
        caches = {seed: self.lm.new_cache() for seed in SEEDS}
        for seed, cache in caches.items():
            for token in text_of(seed):
                self.lm.forward([Segment.chain(cache, [token])])
        return caches

    def logits(self, seed: int, length: int, path: Sequence[int]) -> list[float]:
        """Logits [vocab] behind the text's first `length` tokens and `path`."""
        cache = self._caches[seed].fork(length)
        for token in path:
            states = self.lm.forward([Segment.chain(cache, [token])]).states
        return [float(value) for value in self.lm.logits(states)[0]]


@dataclass
class History:
    """A cache on its way to hold the first `length` tokens of a text."""

    lm: CausalLM
    draw: st.DrawFn
    text: list[int]
    length: int

    def run(self) -> KVCache:
        """The cache, after chunks of any size, rounds, forks, prefix hits and cuts in any order."""
        cache = self.lm.new_cache()
        for _ in range(STEPS):
            if cache.length == self.length:
                break
            steps = [self._chunk, self._round, self._fork, self._adopt, self._cut]
            cache = self.draw(st.sampled_from(steps))(cache)
        while cache.length < self.length:
            cache = self._extended(cache, self.length - cache.length)
        return cache

    def beside(self, segment: Segment) -> tuple[list[Segment], int]:
        """The segment in random company, and its first row in the pack."""
        sizes = self.draw(st.lists(st.integers(1, 9), max_size=2))
        others = [Segment.chain(self.lm.new_cache(), [7] * size) for size in sizes]
        place = self.draw(st.integers(0, len(others)))
        return [*others[:place], segment, *others[place:]], sum(sizes[:place])

    def _chunk(self, cache: KVCache) -> KVCache:
        return self._extended(cache, self.draw(st.integers(1, 70)))

    def _extended(self, cache: KVCache, rows: int) -> KVCache:
        start, end = cache.length, min(cache.length + rows, self.length)
        if end > start:
            self.lm.forward(self.beside(Segment.chain(cache, self.text[start:end]))[0])
        return cache

    def _round(self, cache: KVCache) -> KVCache:
        """A tree that holds what follows between wrong branches; its path is kept, compacted."""
        start = cache.length
        following = self.text[start : min(start + self.draw(st.integers(1, 4)), self.length)]
        if not following:
            return cache
        tokens, parents, kept = list[int](), list[int](), list[int]()
        for token in following:
            parent = kept[-1] if kept else -1
            for _ in range(self.draw(st.integers(0, 2))):
                tokens.append((token + 1 + len(tokens)) % VOCAB)
                parents.append(parent)
            kept.append(len(tokens))
            tokens.append(token)
            parents.append(parent)
        self.lm.forward(self.beside(Segment(cache, tokens, parents))[0])
        cache.keep(start, [start + row for row in kept])
        return cache

    def _fork(self, cache: KVCache) -> KVCache:
        """A copy that shares whole blocks; the origin goes on with something else."""
        fork = cache.fork(cache.length)
        self.lm.forward([Segment.chain(cache, [9, 8, 7])])
        return fork

    def _adopt(self, cache: KVCache) -> KVCache:
        """A new session that finds the whole blocks of the text so far."""
        hit = self.lm.new_cache()
        hit.adopt(cache.table[: cache.length // BLOCK])
        return hit

    def _cut(self, cache: KVCache) -> KVCache:
        cache.keep(self.draw(st.integers(0, cache.length)))
        return cache
