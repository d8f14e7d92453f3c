"""The requests of the soak: whole texts, cancels in mid-stream, deadlines and bad requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outrider import AsyncClient
from outrider.exceptions import DeadlineExceeded, InvalidRequest, OutriderError

LENGTHS = (1, 8, 40, 120, 300, 700)  # tokens of a prompt
TOKENS = (1, 4, 12, 24, 48)
SHARES = {"whole": 0.7, "cancelled": 0.15, "late": 0.05, "bad": 0.1}
LATE_S = 0.01  # no text of LATE_TOKENS is done by then
LATE_TOKENS = 256
BAD: tuple[dict[str, Any], ...] = (
    {"temperature": -1.0},
    {"top_p": 1.5},
    {"max_tokens": 1_000_000},
    {"temperature": 0.0, "speculative": {"n_max": 100_000}},
    {"prompt_token_ids": [4_000_000_000]},
    {"prompt_token_ids": []},
)
SPECULATIVE: tuple[dict[str, Any] | None, ...] = ({"n_max": 0}, {"method": "ngram"}, None)
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.95},
    {"temperature": 0.8, "seed": 11},
)


@dataclass(frozen=True)
class Order:
    """One request and how it has to end.

    Args:
        kind: of SHARES.
        prompt: (start, length) of its text.
        options: of the client's call.
        stop_after: tokens after which a `cancelled` one is given up.
    """

    kind: str
    prompt: tuple[int, int]
    options: dict[str, Any]
    stop_after: int = 0


def make(count: int, seed: int = 0) -> list[Order]:
    """`count` orders; the same seed, the same orders."""
    dice = random.Random(seed)
    return [
        _order(kind, dice)
        for kind in dice.choices(list(SHARES), weights=list(SHARES.values()), k=count)
    ]


def _order(kind: str, dice: random.Random) -> Order:
    prompt = dice.randrange(64), dice.choice(LENGTHS)
    options = {
        **dice.choice(SAMPLINGS),
        "speculative": dice.choice(SPECULATIVE),
        "max_tokens": dice.choice(TOKENS),
        "ignore_eos": True,
    }
    if kind == "cancelled":
        return Order(kind, prompt, {**options, "max_tokens": 96}, stop_after=dice.randrange(1, 24))
    if kind == "late":
        return Order(kind, prompt, {**options, "max_tokens": LATE_TOKENS, "timeout": LATE_S})
    if kind == "bad":
        return Order(kind, prompt, {**options, **dice.choice(BAD)})
    return Order(kind, prompt, options)


async def run(
    client: AsyncClient, order: Order, text: Callable[[int, int], Sequence[int]]
) -> str | None:
    """How the request ended against its order; None where it ended as it had to."""
    options = {"prompt_token_ids": text(*order.prompt), **order.options}
    got = 0
    stream = client.stream(**options)
    try:
        async for chunk in stream:
            got += len(chunk.token_ids)
            if order.stop_after and got >= order.stop_after:
                break
    except DeadlineExceeded as error:
        return None if order.kind == "late" else str(error)
    except InvalidRequest as error:
        return None if order.kind == "bad" else str(error)
    except OutriderError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        await stream.aclose()
    if order.kind in ("late", "bad"):
        return f"{order.kind}: it gave {got} tokens instead of an error"
    if order.kind == "whole" and got != order.options["max_tokens"]:
        return f"whole: {got} tokens of {order.options['max_tokens']}"
    return None
