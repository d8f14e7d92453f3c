"""From token ids to text while they come: whole characters only, nothing behind a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class TextStream:
    """Decodes one request's tokens.

    A special token gives no text. Text that may turn out to be the beginning of a stop string is
    held back.

    Args:
        stop: the text ends in front of the first of these.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._text = ""
        self._sent = 0
        self.stopped = False

    def push(self, token: int) -> str:
        """Text that became certain with this token; a complete stop string sets `stopped`."""
        self._ids.append(token)
        self._text += self._stream.step(self._tokenizer, token) or ""
        self._cut()
        return self._release(len(self._text) - (0 if self.stopped else self._held()))

    def finish(self) -> str:
        """What was held back at the end: half characters come out as the tokenizer decodes them."""
        if not self.stopped:
            whole: str = self._tokenizer.decode(self._ids, skip_special_tokens=True)
            if whole.startswith(self._text):
                self._text = whole
            self._cut()
        return self._release(len(self._text))

    def _cut(self) -> None:
        """Ends the text in front of the first stop string that is complete in what was not sent."""
        starts = (self._text.find(stop, max(0, self._sent - len(stop))) for stop in self._stop)
        found = [start for start in starts if start >= 0]
        if found:
            self.stopped = True
            self._text = self._text[: min(found)]

    def _held(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = max((len(stop) for stop in self._stop), default=0) - 1
        for length in range(min(longest, len(self._text)), 0, -1):
            tail = self._text[-length:]
            if any(stop.startswith(tail) for stop in self._stop):
                return length
        return 0

    def _release(self, end: int) -> str:
        part = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return part
