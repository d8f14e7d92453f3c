"""A finished sequence, and on which side of the split it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

GREEDY, SAMPLED = "greedy", "sampled"
EOS, LENGTH, LOOP = "eos", "length", "loop"
HELD_OUT = 0.05
_DIGEST_CHARACTERS = 16


@dataclass(frozen=True, eq=False)
class Record:
    """A prompt and what the target wrote behind it.

    Args:
        ids: [n] prompt, then response; the end-of-text token is there where it was written.
        prompt_length: how many of them are the prompt.
        mode: "greedy" or "sampled".
        source: name of the file or recipe that the prompt is from.
        digest: of the prompt's ids, see `digest_of`.
        group: digest of the prompt that this one was made from; its own where it is the first.
        end: "eos", "length", or "loop" where a repetition was cut.
    """

    ids: Ids
    prompt_length: int
    mode: str
    source: str
    digest: str
    group: str
    end: str

    @property
    def held_out(self) -> bool:
        """Whether it is kept from training; all of a group are on one side."""
        return is_held_out(self.group)

    @property
    def response(self) -> Ids:
        """The ids behind the prompt."""
        return self.ids[self.prompt_length :]


def digest_of(ids: Sequence[int]) -> str:
    """A name for a prompt, from its token ids alone."""
    packed = np.asarray(ids, np.uint32).tobytes()
    return hashlib.sha256(packed).hexdigest()[:_DIGEST_CHARACTERS]


def is_held_out(digest: str, share: float = HELD_OUT) -> bool:
    """The split: stable, since nothing but the digest decides."""
    return int(hashlib.sha256(f"split {digest}".encode()).hexdigest()[:8], 16) < share * 2**32


def split(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """Those to train on, and those held out."""
    sides: tuple[list[Record], list[Record]] = ([], [])
    for record in records:
        sides[record.held_out].append(record)
    return sides
