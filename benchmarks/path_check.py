"""Packed forwards of chains and trees beside transformers' own forward of each path alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from benchmarks import in_process
from benchmarks.in_process import Text
from outrider.models.causal_lm import CausalLM, Segment

CONTEXTS = (0, 1, 17, 63, 64, 65, 130, 200)


def path(parents: Sequence[int], row: int) -> list[int]:
    """Rows from the tree's top down to `row`."""
    rows = []
    while row >= 0:
        rows.append(row)
        row = parents[row]
    return rows[::-1]


def greatest_error(reference: PreTrainedModel, own: CausalLM, cases: int) -> float:
    """The greatest difference of any logit over random packs, and after each was compacted.

    Each pack holds up to three sessions behind contexts of many lengths, each with a random tree or
    chain, exact or under a mask; then every session keeps one path and goes on with a token.
    """
    rng = random.Random(0)
    return max(_pack_error(reference, own, rng) for _ in range(cases))


def top_gap(model: CausalLM, tokens: Sequence[int]) -> float:
    """How far the two likeliest tokens behind `tokens` lie apart, in standard deviations of all
    logits: a measure of how near a tie is."""
    cache = model.new_cache()
    for start in range(0, len(tokens), 64):
        states = model.forward([Segment.chain(cache, tokens[start : start + 64])]).states
    logits = model.logits(states[-1:])[0]
    top = logits.topk(2).values
    return float((top[0] - top[1]) / logits.std())


def parted(
    own: CausalLM,
    prompts: Sequence[Sequence[int]],
    plain: Sequence[Text],
    drafted: Sequence[Text],
    near: float,
) -> dict[str, Any]:
    """Texts that differ, and how near the ties were where they part."""
    gaps = []
    for prompt, one, other in zip(prompts, plain, drafted, strict=True):
        pairs = enumerate(zip(one.tokens, other.tokens, strict=True))
        at = next((i for i, (a, b) in pairs if a != b), None)
        if at is not None:
            gaps.append(top_gap(own, [*prompt, *one.tokens[:at]]))
    return {
        "texts": len(plain),
        "differ": len(gaps),
        "widest_gap": max(gaps, default=0.0),
        "acceptance_length": in_process.acceptance_length(drafted),
        "held": max(gaps, default=0.0) <= near,
    }


def _pack_error(reference: PreTrainedModel, own: CausalLM, rng: random.Random) -> float:
    segments, contexts = [], []
    for _ in range(rng.randint(1, 3)):
        cache, context = own.new_cache(), rng.choices(range(own.vocab_size), k=rng.choice(CONTEXTS))
        if context:
            own.forward([Segment.chain(cache, context)])
        rows, chain = rng.randint(1, 9), rng.random() < 0.4
        parents = [row - 1 if chain else rng.randint(-1, row - 1) for row in range(rows)]
        tokens = rng.choices(range(own.vocab_size), k=rows)
        segments.append(Segment(cache, tokens, parents, tree_exact=rng.random() < 0.5))
        contexts.append(context)
    logits = own.logits(own.forward(segments).states)
    texts, kept = [], []
    for segment, context in zip(segments, contexts, strict=True):
        paths = [path(segment.parents, row) for row in range(len(segment.tokens))]
        texts += [[*context, *(segment.tokens[row] for row in rows)] for rows in paths]
        chosen = rng.choice(paths)
        segment.cache.keep(len(context), [len(context) + row for row in chosen])
        kept.append([*context, *(segment.tokens[row] for row in chosen), 3])
    error = _error(reference, texts, logits)
    following = [Segment.chain(segment.cache, [3]) for segment in segments]
    return max(error, _error(reference, kept, own.logits(own.forward(following).states)))


@torch.inference_mode()
def _error(
    reference: PreTrainedModel, texts: Sequence[Sequence[int]], logits: torch.Tensor
) -> float:
    return max(
        float((reference(torch.tensor([text], device=row.device)).logits[0, -1] - row).abs().max())
        for text, row in zip(texts, logits, strict=True)
    )
