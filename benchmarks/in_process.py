"""Greedy texts of several streams at once through the target's engine, without any network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outrider.core.acceptance import decide
from outrider.core.round import Budget, Commit, SamplingParams
from outrider.core.tree import TokenTree, TreeBuilder
from outrider.drafting.ngram import NgramDrafter
from outrider.models.causal_lm import CausalLM
from target_service.engine import Engine
from target_service.limits import EngineLimits

GREEDY = SamplingParams(temperature=0.0)
Propose = Callable[[Sequence[int]], TokenTree]
"""From all committed tokens to a tree whose root is the last of them."""


@dataclass
class Text:
    """What one stream gave: its tokens, when each round's came, and how many rounds it took."""

    tokens: list[int] = field(default_factory=list)
    arrivals: list[tuple[float, int]] = field(default_factory=list)


def plain(committed: Sequence[int]) -> TokenTree:
    """No draft."""
    return TokenTree.root_only(committed[-1])


def ngrams(prompt: Sequence[int], depth: int) -> Propose:
    """Chains of prompt lookup."""
    drafter = NgramDrafter()
    session = drafter.open(prompt, GREEDY)

    def propose(committed: Sequence[int]) -> TokenTree:
        drafter.observe(session, committed[len(session.tokens) :])
        return drafter.propose([(session, Budget(depth, depth))])[0].tree

    return propose


def knowing(whole: Sequence[int], depth: int, vocab: int, *, branches: bool) -> Propose:
    """What follows in `whole`, but for a wrong token now and then: drafts that are kept in part.

    With branches every node has a wrong sibling besides, in front of it.
    """

    def propose(committed: Sequence[int]) -> TokenTree:
        at = len(committed)
        tree, node = TreeBuilder(committed[-1]), 0
        for position, token in enumerate(whole[at : at + depth], at):
            wrong = (token + 1) % vocab
            if branches:
                tree.add(node, wrong)
            node = tree.add(node, wrong if position % 7 == 6 else token)
        return tree.build()

    return propose


def run(
    model: CausalLM, prompts: Sequence[Sequence[int]], tokens: int, drafts: Sequence[Propose]
) -> list[Text]:
    """Greedy texts of `tokens` tokens, all streams at once; each has a source of drafts."""
    return asyncio.run(_all(model, prompts, tokens, drafts))


def rate(texts: Sequence[Text]) -> float:
    """Tokens a second from the moment on at which every stream has its first."""
    since = max(text.arrivals[0][0] for text in texts)
    until = max(text.arrivals[-1][0] for text in texts)
    count = sum(count for text in texts for when, count in text.arrivals if when > since)
    return count / (until - since)


def acceptance_length(texts: Sequence[Text]) -> float:
    """Tokens a round behind the first, which comes with the prompt."""
    counts = [count for text in texts for _, count in text.arrivals[1:]]
    return sum(counts) / len(counts)


async def _all(
    model: CausalLM, prompts: Sequence[Sequence[int]], tokens: int, drafts: Sequence[Propose]
) -> list[Text]:
    engine = Engine(model, EngineLimits())
    await engine.start()
    try:
        return await asyncio.gather(
            *(
                _stream(engine, prompt, tokens, propose)
                for prompt, propose in zip(prompts, drafts, strict=True)
            )
        )
    finally:
        await engine.stop()


async def _stream(engine: Engine, prompt: Sequence[int], tokens: int, propose: Propose) -> Text:
    session = engine.open("in process", prompt, GREEDY, tokens, None)
    tree, text = TokenTree.root_only(prompt[-1]), Text()
    while True:
        evidence = await engine.verify(session, tree, {})
        decision = decide(tree, {}, evidence, _no_draw)
        new = [*(tree.tokens[node] for node in decision.accepted), decision.emitted]
        text.tokens += new
        text.arrivals.append((time.perf_counter(), len(new)))
        if len(text.tokens) >= tokens:
            break
        committed = [*prompt, *text.tokens]
        tree = propose(committed)
        commit = Commit(tuple(decision.accepted), decision.emitted)
        session.advance(session.round + 1, len(committed), commit, committed[-1])
    engine.close(session)
    del text.tokens[tokens:]
    return text


def _no_draw() -> float:
    raise AssertionError("greedy decisions draw nothing")
