"""What many prompts begin with, computed once: templates put the same system text before each."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.models.cache import KVCache
from outrider.models.causal_lm import CausalLM, Segment


class Opening:
    """Keys and values of tokens that prompts begin with; forks of them are the prompts' caches."""

    def __init__(self, lm: CausalLM, tokens: Sequence[int]) -> None:
        self._lm, self._tokens, self._cache = lm, tuple(tokens), lm.new_cache()
        if tokens:
            lm.forward([Segment.chain(self._cache, self._tokens)])

    def begin(self, prompt: Sequence[int]) -> tuple[KVCache, list[int]]:
        """A cache for a prompt, and the tokens, at least one, that it lacks."""
        length = len(self._tokens)
        if length and len(prompt) > length and tuple(prompt[:length]) == self._tokens:
            return self._cache.fork(length), list(prompt[length:])
        return self._lm.new_cache(), list(prompt)

    def free(self) -> None:
        """Gives its memory back."""
        self._cache.free()


def common_opening(prompts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The tokens that all of them begin with."""
    if not prompts:
        return ()
    first, last = min(prompts), max(prompts)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return tuple(first[: min(len(first), len(last)) if length is None else length])
