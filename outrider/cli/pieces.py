"""Tokens as the text that each of them adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"


class Pieces:
    """Decodes token by token; bytes of a character that is not whole yet wait for the next token.

    Args:
        decode: text of a list of token ids, special tokens included.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._waiting: list[int] = []
        self._before: list[int] = []

    def add(self, token_id: int) -> str:
        """The text that the token adds; empty while a character is not whole."""
        self._waiting.append(token_id)
        # Decoded behind the tokens before, since a tokenizer may treat the first of a text
        # differently.
        old = self._decode(self._before)
        new = self._decode([*self._before, *self._waiting])
        if new.endswith(UNFINISHED):
            return ""
        self._before, self._waiting = self._waiting, []
        return new[len(old) :]

    def rest(self) -> str:
        """What never became whole."""
        return UNFINISHED if self._waiting else ""
