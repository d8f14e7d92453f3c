"""Prompts that the target writes itself: it continues the opening of a user's turn.

The exact template matters, with the model's own default system text (Magpie, arXiv 2406.08464).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from outrider.models.cache import KVCache
from outrider.models.causal_lm import CausalLM, Segment
from training.draws import choose_nucleus, uniform
from training.files import TrainingError
from training.opening import Opening
from training.prompts import Prompt

SOURCE = "self"
_MARK = "\N{WHITE SQUARE}mark\N{WHITE SQUARE}"


@dataclass(frozen=True)
class SelfPrompts:
    """How prompts are written.

    Args:
        seed: of the draws.
        slots: prompts at once.
        top_p: of the draws, at temperature 1.
        max_tokens: of a prompt; one that has not ended by then is dropped.
        least, most: characters of a prompt that is kept.
    """

    seed: int = 0
    slots: int = 64
    top_p: float = 0.95
    max_tokens: int = 96
    least: int = 8
    most: int = 400


@dataclass
class _Slot:
    number: int
    cache: KVCache
    pending: list[int]
    written: list[int]


def opening_of(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], str]:
    """Ids of a chat up to where the user's text begins, and the text that ends the user's turn.

    Raises:
        TrainingError: the tokenizer has no chat template, or one that changes the user's text.
    """
    if tokenizer.chat_template is None:
        raise TrainingError("self-generated prompts: the tokenizer has no chat template")
    turn = [{"role": "user", "content": _MARK}]
    text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=False)
    before, mark, after = str(text).partition(_MARK)
    if not mark or not after.strip():
        raise TrainingError(
            "self-generated prompts: the chat template does not close a user's turn"
        )
    encoded = tokenizer(before, add_special_tokens=False)["input_ids"]
    return [int(token) for token in encoded], after


def closing_ids(tokenizer: PreTrainedTokenizerBase, after: str) -> frozenset[int]:
    """Tokens that end a user's turn: the first that the template has behind the text."""
    ids = tokenizer(after.lstrip(), add_special_tokens=False)["input_ids"]
    return frozenset(int(token) for token in ids[:1])


def self_prompts(
    lm: CausalLM,
    tokenizer: PreTrainedTokenizerBase,
    recipe: SelfPrompts,
    count: int,
    start: int = 0,
    heard: Callable[[int], None] = lambda tried: None,
) -> Iterator[tuple[int, Prompt]]:
    """Prompts with the number of the try that gave them, until `count` tries have ended.

    Each try is a function of the seed and its number, so a later call goes on with `start`.

    Args:
        count: tries to make.
        start: number of the first.
        heard: told of each try that has ended, kept or not.
    """
    opening, after = opening_of(tokenizer)
    closing = closing_ids(tokenizer, after) | frozenset(lm.eos_ids)
    numbers = iter(range(start, start + count))
    begun = Opening(lm, opening[:-1])
    slots: list[_Slot] = []
    try:
        while True:
            while len(slots) < recipe.slots and (number := next(numbers, None)) is not None:
                cache, pending = begun.begin(opening)
                slots.append(_Slot(number, cache, pending, []))
            if not slots:
                return
            running = []
            for slot, token in zip(slots, _step(lm, slots, recipe), strict=True):
                if token not in closing:
                    slot.written.append(token)
                    slot.pending = [token]
                    if len(slot.written) < recipe.max_tokens:
                        running.append(slot)
                        continue
                slot.cache.free()
                heard(1)
                text = str(tokenizer.decode(slot.written)).strip() if token in closing else ""
                if recipe.least <= len(text) <= recipe.most and "\ufffd" not in text:
                    yield slot.number, Prompt.user(text, SOURCE)
            slots = running
    finally:
        for slot in slots:
            slot.cache.free()
        begun.free()


def _step(lm: CausalLM, slots: list[_Slot], recipe: SelfPrompts) -> list[int]:
    hidden = lm.forward([Segment.chain(slot.cache, slot.pending) for slot in slots])
    last = np.cumsum([len(slot.pending) for slot in slots]) - 1
    logits = lm.logits(hidden.states[last.tolist()])
    draws = [uniform(recipe.seed, f"self {slot.number}", len(slot.written)) for slot in slots]
    return choose_nucleus(logits, recipe.top_p, draws)
