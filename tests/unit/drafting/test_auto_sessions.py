"""auto and the sessions of the drafters that it holds."""

from collections.abc import Sequence

import numpy as np
import pytest
from played import GREEDY, K4, Clock, Played, ask

from draft_service.drafters.auto import AutoDrafter
from draft_service.drafters.registry import build_drafters
from draft_service.drafters.setup import Setup, Vocabulary
from outrider.core.round import Budget, Features, SamplingParams
from outrider.drafting.base import DraftSession, FeatureSpec
from outrider.drafting.ngram import NgramDrafter
from outrider.drafting.specs import DrafterRefused


def test_every_drafter_hears_every_token_and_only_the_last_trees_own_its_samples() -> None:
    one = Played("one", wants_samples=True)
    other = Played("other", drafted=[], wants_samples=True)
    auto = AutoDrafter([one, other], Clock())
    assert auto.wants_samples
    session = auto.open([1], GREEDY)
    auto.observe(session, [2], samples=[8])
    assert ask(auto, session).method == "one"
    auto.observe(session, [50, 9], samples=[50, 9, 9, 9, 9])
    assert [told[0] for told in one.told] == [told[0] for told in other.told] == [[2], [50, 9]]
    assert [told[2] for told in one.told] == [[], [50, 9, 9, 9, 9]]
    assert [told[2] for told in other.told] == [[], []]


def test_features_are_asked_for_once_and_each_drafter_gets_its_own_columns() -> None:
    eagle = Played("eagle", features=FeatureSpec((2, 15, 30), window=8))
    medusa = Played("medusa", features=FeatureSpec((30,)))
    auto = AutoDrafter([eagle, medusa, Played("plain")], Clock())
    assert auto.features == FeatureSpec((2, 15, 30), 0)
    rows = np.arange(2 * 3 * 4, dtype=np.uint16).reshape(2, 12)  # two rows, three taps of four
    session = auto.open([1, 2], GREEDY)
    auto.observe(session, [3], [Features(5, 2, 12, rows.tobytes())])
    assert eagle.told[0][1] == [Features(5, 2, 12, rows.tobytes())]
    assert medusa.told[0][1] == [Features(5, 2, 4, np.ascontiguousarray(rows[:, 8:]).tobytes())]
    assert auto.drafters["plain"].told[0][1] == []  # type: ignore[attr-defined]


def test_taps_of_several_are_united_in_order() -> None:
    specs = [FeatureSpec((30, 2), 4), FeatureSpec((15,), 9)]
    auto = AutoDrafter([Played(str(i), features=spec) for i, spec in enumerate(specs)], Clock())
    assert auto.features == FeatureSpec((2, 15, 30), 9)
    row = np.array([[1, 2, 3]], dtype=np.uint16)
    session = auto.open([1], GREEDY)
    auto.observe(session, [3], [Features(0, 1, 3, row.tobytes())])
    told = [drafter.told[0][1][0].data for drafter in auto.drafters.values()]  # type: ignore[attr-defined]
    assert told == [np.array(taps, np.uint16).tobytes() for taps in ([3, 1], [2])]
    assert AutoDrafter([Played("x")]).features is None


def test_prompt_is_worked_off_slice_by_slice_for_every_drafter() -> None:
    one, other = Played("one"), Played("other")
    auto = AutoDrafter([one, other], Clock())
    session = auto.open([1] * 9, GREEDY)
    done = [auto.prefill(session, 4) for _ in range(3)]
    assert done == [False, False, True]
    assert set(one.prefilled) == set(other.prefilled) == {4}


def test_alone_over_prompt_lookup_it_proposes_what_that_would() -> None:
    plain, auto = NgramDrafter(), AutoDrafter([NgramDrafter()], Clock())
    for prompt in ([1, 2, 3] * 4, [1, 2, 3, 4], [5]):
        for budget in (K4, Budget(4, 12), Budget(0, 0)):
            expected = plain.propose([(plain.open(prompt, GREEDY), budget)])[0]
            found = ask(auto, auto.open(prompt, GREEDY), budget)
            assert (found.tree, found.method) == (expected.tree, "ngram")


def test_sessions_of_all_drafters_close_and_a_failed_open_leaves_none() -> None:
    class Failing(Played):
        def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
            raise ArithmeticError("no")

    one, other = Played("one"), Played("other")
    auto = AutoDrafter([one, other], Clock())
    auto.close(auto.open([1], GREEDY))
    assert (one.open_sessions, other.open_sessions) == (0, 0)
    with pytest.raises(ArithmeticError):
        AutoDrafter([one, Failing("bad")], Clock()).open([1], GREEDY)
    assert one.open_sessions == 0


def test_it_is_there_where_two_others_are_or_where_it_is_named() -> None:
    setup = Setup("big", Vocabulary("big", "aaaa", 100, 64))

    def names(*specs: str) -> list[str]:
        return [drafter.method for drafter in build_drafters(specs, setup)]

    assert names("ngram") == ["ngram"]
    assert names("ngram", "lookahead") == ["ngram", "lookahead", "auto"]
    assert names("auto", "ngram") == ["ngram", "auto"]
    for specs in (["auto"], ["ngram", "auto=/x"]):
        with pytest.raises(DrafterRefused, match="auto takes no path and at least one other"):
            names(*specs)
    with pytest.raises(ValueError, match="drafters: 0, limit at least 1"):
        AutoDrafter([])
