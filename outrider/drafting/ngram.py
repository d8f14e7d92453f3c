"""Prompt lookup: what followed the last tokens earlier in the text is likely to follow them again.

After apoorvumang/prompt-lookup-decoding and SuffixDecoding (arXiv 2411.04975): matches of every
length are found in a suffix automaton, blended by length, frequency and recency, and a proposal
carries the number of tokens that it expects to be accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.drafting.base import Drafter, DraftSession
from outrider.drafting.continuations import Context, Draft, Follower, draft
from outrider.drafting.past_texts import PastSource, PastTexts
from outrider.drafting.suffix_automaton import ROOT, SuffixAutomaton

_DECAY = 0.95
_PRIOR = 4.0


class TextSource:
    """Continuations of a text's end within the text; a place is a state and the matched length.

    Args:
        min_n: shortest match that counts.
    """

    def __init__(self, text: SuffixAutomaton, min_n: int = 1) -> None:
        self._text = text
        self._min_n = min_n

    def start(self) -> tuple[int, int] | None:
        """The longest ending that occurred before."""
        longest = next(self._text.endings(), None)
        return None if longest is None else (longest.state, longest.length)

    def contexts(self, place: tuple[int, int]) -> Iterator[Context[tuple[int, int]]]:
        """The states from the place's own up its links: ever shorter endings."""
        text = self._text
        state, matched = place
        while state > ROOT:
            length = min(matched, text.length(state))
            if length < self._min_n:
                return
            followers = []
            for token, behind in text.followers(state).items():
                then = text.within_reach(behind)
                path = then, min(length + 1, text.length(then))
                followers.append(Follower(token, text.count(then), text.recent(then), path))
            yield Context(length, followers)
            state = text.link(state)


@dataclass
class Calibration:
    """How often guesses turn out right, over how often they should by their probability.

    Decayed, and drawn to 1 where little is known. Texts differ in how much they repeat themselves,
    and a request that samples goes on as before less often than a greedy one.
    """

    right: float = 0.0
    expected: float = 0.0
    last: Draft | None = field(default=None, repr=False)

    @property
    def scale(self) -> float:
        """What probabilities are to be multiplied with."""
        return (self.right + _PRIOR) / (self.expected + _PRIOR)

    def observe(self, tokens: Sequence[int]) -> None:
        """Compares the last draft with what was committed.

        That is valid whether the draft was verified or came too late: children are unsampled, so
        the walk would have followed the committed tokens.
        """
        if self.last is None or not tokens:
            return
        tree, paths = self.last.tree, self.last.paths
        self.right *= _DECAY
        self.expected *= _DECAY
        node: int | None = 0
        for token in tokens:
            if node is None or not tree.children[node]:
                break
            self.expected += sum(paths[child] for child in tree.children[node]) / paths[node]
            node = tree.child_with(node, token)
            self.right += node is not None
        self.last = None


@dataclass
class _State:
    text: SuffixAutomaton
    prompt: int
    calibration: Calibration = field(default_factory=Calibration)


class NgramDrafter(Drafter):
    """Proposes continuations of earlier occurrences of the text's end, in the text or past ones.

    It proposes nothing that is not worth its row at the target, so the depth may be generous.
    """

    method = "ngram"
    recommended_depth = 8
    scores = True

    def __init__(self, min_n: int = 1, past_tokens: int = 0) -> None:
        """
        Args:
            min_n: shortest match that counts. One token counts too: what it says is trusted little
                and proposed only where it is clear.
            past_tokens: tokens of past outputs to remember over all sessions; 0 is none. With them
                the speed of a request tells something of what others were answered.

        Raises:
            ValueError: min_n is below 1, or past_tokens below 0.
        """
        if min_n < 1:
            raise ValueError(f"min_n: {min_n}, limit at least 1")
        if past_tokens < 0:
            raise ValueError(f"past_tokens: {past_tokens}, limit at least 0")
        self._min_n = min_n
        self.past = PastTexts(past_tokens) if past_tokens else None

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        """A session with nothing indexed."""
        return DraftSession(list(prompt), sampling, _State(SuffixAutomaton(), len(prompt)))

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        """Indexes `rows` tokens; some microseconds each."""
        text: SuffixAutomaton = session.state.text
        end = len(session.tokens) if rows is None else len(text) + rows
        text.extend(session.tokens[len(text) : end])
        return len(text) == len(session.tokens)

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        """Appends the new tokens, and learns how right the last proposal was."""
        session.tokens.extend(new_tokens)
        session.state.calibration.observe(new_tokens)

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """Each session on its own; all children are unsampled, so the Match rule decides."""
        return [self._proposal(session, budget) for session, budget in batch]

    def close(self, session: DraftSession) -> None:
        """Remembers the session's output where past ones are kept."""
        if self.past is not None and session.state is not None:
            self.past.add(session.tokens[session.state.prompt :])
        super().close(session)

    def _proposal(self, session: DraftSession, budget: Budget) -> Proposal:
        state: _State = session.state
        self.prefill(session)
        root, scale = session.tokens[-1], state.calibration.scale
        best = draft(TextSource(state.text, self._min_n), root, budget, scale)
        if self.past is not None:
            other = draft(PastSource(self.past, session.tokens), root, budget, scale)
            best = max(best, other, key=lambda found: found.score)
        state.calibration.last = best
        return Proposal(best.tree, self.method, chances=best.paths)
