"""What an EAGLE head is run on, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor


class Cache(Protocol):
    """Keys and values of one session's rows."""

    @property
    def length(self) -> int:
        """Rows it holds."""
        ...

    def keep(self, length: int) -> None:
        """Drops all rows from `length` on."""
        ...

    def free(self) -> None:
        """Gives its memory back."""
        ...


@dataclass(frozen=True)
class Rows:
    """Rows of one session.

    Args:
        cache: grows by them.
        tokens: of each row the token behind the position that g stands for.
        g: fused features, or what was fed back [rows, hidden] float32.
        base: cached rows that a branch has in front; None where the rows follow one another.
        paths: of each row of a branch the cached rows behind `base` that it sees, ascending.
    """

    cache: Any
    tokens: Sequence[int]
    g: Tensor
    base: int | None = None
    paths: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class Drafted:
    """Per row: g of the next step, and what the LM head takes. Shapes [rows, hidden], float32."""

    g: Tensor
    states: Tensor


class EagleRunner(Protocol):
    """Runs an EAGLE head over the rows of many sessions."""

    @property
    def draft_ids(self) -> npt.NDArray[np.int64]:
        """The target id of each logit."""
        ...

    def new_cache(self) -> Cache:
        """An empty cache for one session."""
        ...

    def fuse(self, features: npt.NDArray[np.float32]) -> Tensor:
        """Features of the target [rows, taps * hidden] -> g [rows, hidden]."""
        ...

    def forward(self, batch: Sequence[Rows]) -> Drafted:
        """One pass over all rows, in order.

        Raises:
            PoolFullError: keys and values have no room.
        """
        ...

    def logits(self, states: Tensor) -> npt.NDArray[np.float32]:
        """States [n, hidden] -> logits [n, draft vocabulary]."""
        ...
