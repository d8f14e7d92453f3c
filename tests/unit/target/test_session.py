"""What a session accepts as its next request, and which cache rows it keeps."""

import numpy as np
import pytest

from outrider.core.coupling import seeded_draw
from outrider.core.round import Commit, SamplingParams
from outrider.core.sampling import Law
from outrider.core.tree import TokenTree
from outrider.models.cache import KVCache
from outrider.serving.errors import FailedPrecondition, InvalidArgument
from target_service.session import FreeRun, Session
from tests.tiny import small_pool

TREE = TokenTree((3, 10, 11, 12, 13), (-1, 0, 0, 1, 3))  # 10 - 12 - 13, and 11 beside 10


class RecordingCache(KVCache):
    def __init__(self) -> None:
        super().__init__(small_pool())
        self.kept: list[tuple[int, list[int]]] = []

    def keep(self, length: int, rows: object = ()) -> None:
        self.kept.append((length, list(rows)))  # type: ignore[call-overload]


def session(tree: TokenTree | None = TREE, limit: int = 20, **sampling: object) -> Session:
    """Three committed tokens, and a tree that awaits its decision."""
    made = Session("r", [1, 2, 3], SamplingParams(**sampling), RecordingCache(), limit)  # type: ignore[arg-type]
    made.tree = tree
    made.cache.length = 2 + (len(tree) if tree else 0)
    return made


def test_accepted_path_and_emitted_token_are_committed() -> None:
    it = session()
    it.advance(1, 6, Commit((1, 3), 20), 20)
    assert it.tokens == [1, 2, 3, 10, 12, 20]
    assert (it.round, it.tree) == (1, None)


def test_rows_of_the_root_and_the_path_are_kept_once_the_engines_thread_compacts() -> None:
    it = session()
    it.advance(1, 6, Commit((1, 3), 20), 20)
    assert it.cache.kept == []  # type: ignore[attr-defined]
    it.compact()
    it.compact()
    assert it.cache.kept == [(3, [3, 5])]  # type: ignore[attr-defined]


def test_nothing_accepted_keeps_the_root_alone() -> None:
    it = session()
    it.advance(1, 4, Commit((), 20), 20)
    it.compact()
    assert it.cache.kept == [(3, [])]  # type: ignore[attr-defined]
    assert it.tokens == [1, 2, 3, 20]


def test_behind_a_free_run_nothing_is_dropped() -> None:
    it = session(tree=None)
    it.advance(1, 3, None, 3)
    it.compact()
    assert it.cache.kept == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((2, 4, Commit((), 20), 20), "round: 2, limit 1"),
        ((1, 5, Commit((), 20), 20), "base_len: 5, limit 4"),
        ((1, 4, Commit((), 20), 21), "root: token 21, limit 20"),
        ((1, 3, None, 3), "commit: is missing behind a verified tree"),
        ((1, 6, Commit((1, 4), 20), 20), r"commit.accepted: \[1, 4\] is no path"),
        ((1, 6, Commit((2, 3), 20), 20), r"commit.accepted: \[2, 3\] is no path"),
    ],
)
def test_request_that_does_not_fit_changes_nothing(arguments: tuple, expected: str) -> None:
    it = session()
    with pytest.raises(FailedPrecondition, match=expected):
        it.advance(*arguments)
    assert (it.tokens, it.round, it.tree, it.kept_rows) == ([1, 2, 3], 0, TREE, None)


def test_text_never_grows_beyond_what_open_announced() -> None:
    it = session(limit=5)
    with pytest.raises(FailedPrecondition, match="base_len: 6, limit 5 by prompt and max_tokens"):
        it.advance(1, 6, Commit((1, 3), 20), 20)


def test_nothing_advances_during_a_pass_or_a_free_run() -> None:
    busy, running = session(), session(tree=None)
    busy.busy = True
    running.free_run = FreeRun(9, frozenset(), 3)
    for it in (busy, running):
        with pytest.raises(FailedPrecondition, match="in progress"):
            it.advance(1, 4, Commit((), 20), 20)


def test_deepest_node_must_lie_within_the_context() -> None:
    it = session()
    it.check_room(TokenTree.chain(3, [4, 5]), 5)
    with pytest.raises(
        InvalidArgument, match="tree: depth 3 at 3 tokens, limit 5 tokens of context"
    ):
        it.check_room(TokenTree.chain(3, [4, 5, 6]), 5)


def test_seeded_sample_is_that_of_the_coupling() -> None:
    p = np.full(8, 0.125)
    it = session(seed=9, choice=2)
    assert [it.sample(Law.of(p), n) for n in range(3, 9)] == [
        seeded_draw(p, 9, 2, n) for n in range(3, 9)
    ]


def test_sample_outside_has_the_mass_that_is_there() -> None:
    it = session()
    p = np.array([0.5, 0.25, 0.0, 0.25])
    drawn = {it.sample_outside(Law.of(p), np.array([0, 2])) for _ in range(200)}
    assert drawn == {(1, 0.5), (3, 0.5)}
    assert it.sample_outside(Law.of(p), np.array([0, 1, 3])) == (-1, 0.0)
