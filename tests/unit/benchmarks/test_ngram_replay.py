"""The replay of prompt lookup."""

import json
from pathlib import Path

import pytest

from benchmarks import ngram
from benchmarks.ngram import Counts, MostRecentMatch, measure, replay
from outrider.core.round import Budget
from outrider.drafting.base import Drafter
from outrider.drafting.ngram import NgramDrafter

REPEATING = {"prompt": [1, 2, 3, 4, 1, 2], "text": [3, 4, 1, 2, 3, 4, 1, 2, 3]}
NEW = {"prompt": [1, 2, 3], "text": list(range(10, 20))}


def test_a_text_that_never_repeats_takes_a_pass_a_token() -> None:
    for drafter in (MostRecentMatch, NgramDrafter):
        assert measure(drafter, [NEW], Budget(4, 4)) == Counts(tokens=9, passes=9)


def test_counts_of_a_text_that_repeats() -> None:
    counts = measure(MostRecentMatch, [REPEATING], Budget(3, 3))
    assert (counts.tokens, counts.passes) == (8, 2)
    assert (counts.rounds, counts.drafted, counts.accepted) == (2, 6, 6)
    assert counts.tokens_per_pass == counts.acceptance_length == 4.0
    assert counts.nodes_per_accepted == 1.0


def test_ends_of_texts_are_not_drafted_beyond() -> None:
    counts = Counts()
    replay(MostRecentMatch(), REPEATING["prompt"], REPEATING["text"][:3], Budget(8, 8), counts)
    assert (counts.tokens, counts.drafted) == (2, 1)


@pytest.mark.parametrize("drafter", [MostRecentMatch, NgramDrafter])
def test_every_token_is_emitted_once_whatever_the_shape(drafter: type[Drafter]) -> None:
    for budget in ngram.BUDGETS:
        counts = measure(drafter, [REPEATING, NEW], budget)
        assert counts.tokens == len(REPEATING["text"]) + len(NEW["text"]) - 2
        assert counts.accepted == counts.tokens - counts.passes


def test_the_command_stores_figures_and_says_where_a_limit_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, out = tmp_path / "texts.jsonl", tmp_path / "out.json"
    texts.write_text("\n".join(map(json.dumps, (REPEATING, NEW))), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["ngram", str(texts), "--out", str(out)])
    assert ngram.main() == 0
    stored = json.loads(out.read_text(encoding="utf-8"))
    assert stored["depth 4, 4 nodes"]["ngram"]["accepted"] > 0
    assert stored["run"]["texts"] == 2
    monkeypatch.setattr(NgramDrafter, "_proposal", lambda self, session, _: self._empty(session))
    assert ngram.main() == 1
