"""What a request's report says adds up, and agrees with the tokens that the caller saw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from same_text import DRAFTS, GREEDY, PROMPT, SEEDED, TOKENS, UNSEEDED, alone, drafter

from orchestrator.report import Report
from outrider.core.acceptance import Kind
from outrider.core.round import SamplingParams
from outrider.core.tree import TokenTree, TreeBuilder
from tests.local.drafters import Faults
from tests.local.generation import Handover, fixed


@st.composite
def rounds(draw: st.DrawFn) -> list[tuple[str, TokenTree, int]]:
    """Methods, trees and accepted depths."""
    made = []
    for _ in range(draw(st.integers(0, 12))):
        builder = TreeBuilder(0)
        for parent in draw(st.lists(st.integers(0, 12), max_size=12)):
            builder.add(min(parent, len(builder) - 1), len(builder))
        tree = builder.build()
        made.append((draw(st.sampled_from(["a", "b"])), tree, draw(st.integers(0, tree.depth))))
    return made


@given(rounds())
def test_counts_per_position_add_up(made: list[tuple[str, TokenTree, int]]) -> None:
    report = Report()
    for method, tree, accepted in made:
        report.add_round(method, tree, accepted, accepted + 1)
    real = [(method, tree, accepted) for method, tree, accepted in made if tree.drafted]
    assert (report.passes, report.rounds) == (len(made), len(real))
    assert report.drafted == sum(tree.drafted for _, tree, _ in real)
    assert (
        report.accepted
        == sum(report.accepted_per_position)
        == sum(accepted for *_, accepted in real)
    )
    assert report.emitted == report.accepted + report.rounds
    for position, count in enumerate(report.drafted_per_position):
        assert count == sum(tree.depth > position for _, tree, _ in real) > 0
    for position, count in enumerate(report.accepted_per_position):
        assert count == sum(accepted > position for *_, accepted in real) > 0
        assert count <= report.drafted_per_position[position]
    assert len(report.drafted_per_position) == max((tree.depth for _, tree, _ in real), default=0)
    totals = report.by_method.values()
    assert sum(counts["rounds"] for counts in totals) == report.rounds
    for name, whole in (
        ("drafted", report.drafted_per_position),
        ("accepted", report.accepted_per_position),
    ):
        assert [sum(counts[f"{name}:{i}"] for counts in totals) for i in range(len(whole))] == whole


@given(rounds(), st.integers(1, 13))
def test_what_is_dropped_behind_the_texts_end_was_never_counted(
    made: list[tuple[str, TokenTree, int]], kept: int
) -> None:
    """The counts are those of a last round that ended with its `kept`-th token, as at an EOS."""
    if not made or not made[-1][1].drafted:
        return
    method, tree, accepted = made[-1]
    kept = min(kept, accepted + 1)
    kinds = [*[Kind.ACCEPTED] * accepted, Kind.BONUS]
    cut, ended = Report(), Report()
    for report in (cut, ended):
        for earlier in made[:-1]:
            report.add_round(*earlier, earlier[2] + 1)
    cut.add_round(method, tree, accepted, accepted + 1)
    cut.drop(kinds[kept:])
    ended.add_round(method, tree, min(kept, accepted), kept)
    for name in ("rounds", "drafted", "accepted", "emitted", "passes", "accepted_per_position"):
        assert getattr(cut, name) == getattr(ended, name)
    assert {name: +counts for name, counts in cut.by_method.items()} == ended.by_method
    assert cut.accepted <= cut.emitted


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED, UNSEEDED], ids=["greedy", "seeded", "drawn"])
@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("nodes", [4, 9])
@pytest.mark.parametrize("halves", [False, True], ids=["drafts only", "drafts and free runs"])
async def test_report_agrees_with_the_tokens(
    sampling: SamplingParams, name: str, nodes: int, halves: bool
) -> None:
    controller = Handover(fixed(4, nodes), lambda left: halves and left % 8 < 4)
    draft = drafter(name, PROMPT, sampling, Faults(late=frozenset({1})))
    text = await alone(sampling, draft, controller)
    report, kinds = text.report, text.kinds
    behind = {kind: kinds[1:].count(kind) for kind in Kind}  # the first one is the prefill's
    assert len(text.tokens) == TOKENS
    assert report.accepted == behind[Kind.ACCEPTED] == sum(report.accepted_per_position)
    assert (
        report.rounds
        == behind[Kind.RECOVERED] + behind[Kind.BONUS]
        == report.drafted_per_position[0]
    )
    assert report.emitted == report.accepted + report.rounds
    assert report.passes == report.rounds + behind[Kind.PLAIN]
    assert sum(report.drafted_per_position) <= report.drafted
    if nodes == 4:
        assert sum(report.drafted_per_position) == report.drafted
