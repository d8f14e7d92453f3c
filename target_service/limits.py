"""Bounds of the engine, and what is refused at the door."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.models.pool import BLOCK
from outrider.serving.errors import InvalidArgument, ResourceExhausted
from target_service.memory import Memory


@dataclass(frozen=True)
class EngineLimits:
    """Sessions open and in one step, rows of prompts a step, most nodes of a tree, and the share of
    KV memory that past texts may keep."""

    sessions: int = 64
    batch: int = 64
    prefill_rows: int = 128
    nodes: int = 64
    prefix_share: float = 0.5


def check_open(limits: EngineLimits, memory: Memory, tokens: int) -> None:
    """Whether another session may be opened, for a text of up to `tokens` tokens.

    Raises:
        ResourceExhausted: as many sessions as allowed are open.
        InvalidArgument: the text would not fit into the KV memory, even alone.
    """
    if len(memory) >= limits.sessions:
        raise ResourceExhausted(f"sessions: {len(memory)} open, limit {limits.sessions}", 1.0)
    room = memory.pool.size * BLOCK - limits.nodes
    if tokens > room:
        raise InvalidArgument(
            f"prompt_ids + max_tokens: {tokens}, limit {room} tokens of KV memory"
        )
