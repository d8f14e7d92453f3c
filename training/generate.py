"""Responses by the target itself, many at once: a text that ends gives its slot to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.models.cache import KVCache
from outrider.models.causal_lm import CausalLM, Segment
from training.draws import choose, uniform
from training.loops import LoopDetector
from training.opening import Opening
from training.prompts import EncodedPrompt
from training.records import EOS, GREEDY, LENGTH, LOOP, SAMPLED, Record


@dataclass(frozen=True)
class Recipe:
    """How responses are written.

    Args:
        seed: of the draws and of which prompts are answered greedily.
        slots: texts at once.
        max_tokens: longest response.
        temperature: of the half that is sampled.
        greedy_share: of prompts that are answered greedily.
        prompt_rows: of prompts in one forward, so that no step takes long.
    """

    seed: int = 0
    slots: int = 64
    max_tokens: int = 256
    temperature: float = 0.8
    greedy_share: float = 0.5
    prompt_rows: int = 1024

    def temperature_of(self, digest: str) -> float:
        """0 for the greedy share; the prompt alone decides, so that a restart agrees."""
        share = uniform(self.seed, digest, -1)
        return 0.0 if share < self.greedy_share else self.temperature


@dataclass
class Slot:
    """A text in the making; `pending` are the rows that the cache lacks."""

    prompt: EncodedPrompt
    cache: KVCache
    temperature: float
    ids: list[int]
    pending: list[int]
    loop: LoopDetector = field(default_factory=LoopDetector)

    def record(self, end: str) -> Record:
        """The text as it stands."""
        return Record(
            ids=np.array(self.ids, np.int64),
            prompt_length=len(self.prompt.ids),
            mode=SAMPLED if self.temperature else GREEDY,
            source=self.prompt.source,
            digest=self.prompt.digest,
            group=self.prompt.group,
            end=end,
        )


def generate(
    lm: CausalLM,
    prompts: Iterable[EncodedPrompt],
    recipe: Recipe,
    stop_ids: frozenset[int],
    shared: Sequence[int] = (),
) -> Iterator[Record]:
    """Answers all prompts; yields each text when it ends, in the order in which they end.

    What `shared` says all prompts begin with is computed once.

    Args:
        lm: the target, with memory for all slots.
        prompts: taken one by one as slots become free; one that leaves no room for a response
            within the context is left out.
        stop_ids: tokens that end a response.
        shared: what the prompts begin with, such as a template's system text; a prompt that begins
            otherwise is computed whole.
    """
    waiting = iter(prompts)
    opening = Opening(lm, shared)
    slots: list[Slot] = []
    held: EncodedPrompt | None = None
    exhausted = False
    try:
        while True:
            room = recipe.prompt_rows
            while not exhausted and len(slots) < recipe.slots:
                prompt = held or next(waiting, None)
                held = None
                if prompt is None:
                    exhausted = True
                elif len(prompt.ids) + recipe.max_tokens > lm.context_length:
                    continue
                elif room < len(prompt.ids) and room < recipe.prompt_rows:
                    held = prompt
                    break
                else:
                    room -= len(prompt.ids)
                    slots.append(_begin(opening, prompt, recipe))
            if not slots:
                return
            tokens = _step(lm, slots, recipe)
            running = []
            for slot, token in zip(slots, tokens, strict=True):
                end = _add(slot, token, stop_ids, recipe.max_tokens)
                if end is None:
                    running.append(slot)
                else:
                    slot.cache.free()
                    yield slot.record(end)
            slots = running
    finally:
        for slot in slots:
            slot.cache.free()
        opening.free()


def _begin(opening: Opening, prompt: EncodedPrompt, recipe: Recipe) -> Slot:
    temperature = recipe.temperature_of(prompt.digest)
    cache, pending = opening.begin(prompt.ids)
    return Slot(prompt, cache, temperature, list(prompt.ids), pending)


def _step(lm: CausalLM, slots: list[Slot], recipe: Recipe) -> list[int]:
    """One packed forward; a token for each slot."""
    hidden = lm.forward([Segment.chain(slot.cache, slot.pending) for slot in slots])
    last = np.cumsum([len(slot.pending) for slot in slots]) - 1
    logits = lm.logits(hidden.states[last.tolist()])
    draws = [uniform(recipe.seed, slot.prompt.digest, len(slot.ids)) for slot in slots]
    return choose(logits, [slot.temperature for slot in slots], draws)


def _add(slot: Slot, token: int, stop_ids: frozenset[int], max_tokens: int) -> str | None:
    """Takes a token into the text; how the text ends, if it does."""
    slot.ids.append(token)
    slot.pending = [token]
    if token in stop_ids:
        return EOS
    cut = slot.loop.add(token)
    if cut:
        del slot.ids[-cut:]
        return LOOP
    return LENGTH if len(slot.ids) - len(slot.prompt.ids) >= max_tokens else None
