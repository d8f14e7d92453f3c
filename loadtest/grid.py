"""The grid of load tests: settings by users by the target's batch limit by kind of prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.cli.door import speculative

SETTINGS: dict[str, int | None] = {"plain": 0, "k2": 2, "k4": 4, "k8": 8, "adaptive": None}
"""Depth by setting: 0 is off, None leaves every round's K to the controller."""

USERS = (1, 2, 4, 8, 16, 32)
BATCHES = (1, 4, 16)
TEMPERATURES = {"code": 0.0, "chat": 0.0, "creative": 1.0}
"""Kinds of prompts, and the temperature at which each is answered."""

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class Cell:
    """One run of the grid.

    batch: sessions that the target takes into one step; None: as the given server has it.
    """

    setting: str
    users: int
    batch: int | None
    kind: str

    @property
    def key(self) -> str:
        """Names the cell in the log."""
        batch = "server" if self.batch is None else self.batch
        return f"{self.setting}/users{self.users}/batch{batch}/{self.kind}"

    @property
    def prompts(self) -> Path:
        """File of its prompts."""
        return PROMPTS / f"{self.kind}.jsonl"


def cells(
    settings: Sequence[str],
    users: Sequence[int],
    batches: Sequence[int | None],
    kinds: Sequence[str],
) -> list[Cell]:
    """All of them in the order in which they run.

    A batch limit's cluster is started once, and settings that are compared run one after the other.

    Raises:
        ValueError: a value is none that there is; the message has name, value and limit.
    """
    check("settings", settings, SETTINGS)
    check("kinds", kinds, TEMPERATURES)
    for name, numbers in (("users", users), ("batches", batches)):
        for number in numbers:
            if number is not None and number < 1:
                raise ValueError(f"{name}: {number}, limit 1 or more")
    return [
        Cell(setting, count, batch, kind)
        for batch in batches
        for kind in kinds
        for count in users
        for setting in settings
    ]


def check(name: str, given: Sequence[str], known: Mapping[str, Any]) -> None:
    """Refuses names that are not known.

    Raises:
        ValueError: one is not.
    """
    for value in given:
        if value not in known:
            raise ValueError(f"{name}: {value!r}, limit one of {', '.join(known)}")


def block(setting: str, method: str) -> dict[str, object] | None:
    """A setting as the request's speculative block; `method` "" is the server's first one."""
    return speculative(method or None, SETTINGS[setting])
