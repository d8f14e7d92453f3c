"""The GPU check runs as a whole on small shapes, and says so where there is no GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_check, path_check
from benchmarks.in_process import Text, knowing
from benchmarks.random_models import CHECKED, LARGE, own_model, transformers_model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny products only wait for a second thread, the more so on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_without_a_gpu_it_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "gpu.json"
    monkeypatch.setattr("sys.argv", ["gpu_check", "--out", str(out)])
    assert gpu_check.main() == 2
    assert capsys.readouterr().out.splitlines() == [
        "gpu_check: there is no CUDA device here, so nothing was checked"
    ]
    assert not out.exists()


def test_small_shapes_on_the_cpu_are_checked_measured_and_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpu.json"
    arguments = ["gpu_check", "--device", "cpu", "--tiny", "--out", str(out)]
    monkeypatch.setattr("sys.argv", arguments)
    assert gpu_check.main() == 0
    found = json.loads(out.read_text())
    assert [row["held"] for row in found["exactness"]] == [True] * 10
    # Drafts were kept in part: some tokens wrong, most of them right.
    lengths = [row["acceptance_length"] for row in found["exactness"] if "texts" in row]
    assert all(2.0 < length < 5.0 for length in lengths)
    for shape in found["shapes"].values():
        assert set(shape["tokens_per_second"]) == {"transformers", "plain", "ngram"}
        assert all(set(row) == {"1", "8"} for row in shape["tokens_per_second"].values())
        assert all(len(row) == len(gpu_check.ROWS) for row in shape["pass_ms"].values())
    printed = capsys.readouterr().out
    assert "tiny, bfloat16" in printed
    assert "DOES NOT HOLD" not in printed


def test_no_shape_begins_when_the_time_is_over() -> None:
    assert gpu_check.why_skipped(LARGE[0], CPU, 1.0) is None
    assert gpu_check.why_skipped(LARGE[0], CPU, 0.0) == "no time was left"


def test_a_shape_that_does_not_fit_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (16 << 30, 80 << 30))
    cuda = torch.device("cuda")
    assert gpu_check.why_skipped(LARGE[0], cuda, 1.0) is None
    assert "16 GiB are free" in str(gpu_check.why_skipped(LARGE[1], cuda, 1.0))


@pytest.mark.parametrize(("shape", "billions"), [(LARGE[0], 1.24), (LARGE[1], 8.03)])
def test_the_shapes_have_the_sizes_that_they_are_named_after(
    shape: gpu_check.Shape, billions: float
) -> None:
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_other_weights_are_found_out() -> None:
    """The negative control: the comparison with transformers can fail."""
    reference = transformers_model(CHECKED[0], torch.float32, CPU)
    other = transformers_model(CHECKED[0], torch.float32, CPU)
    with torch.no_grad():
        other.get_input_embeddings().weight[3] += 0.01
    own = own_model(other, CHECKED[0], 4096)
    assert path_check.greatest_error(reference, own, 1) > gpu_check.TOLERANCE


def test_texts_that_part_at_no_tie_do_not_hold() -> None:
    own = own_model(transformers_model(CHECKED[0], torch.float32, CPU), CHECKED[0], 4096)
    one, other = Text([1, 2, 3], [(0.0, 1), (1.0, 2)]), Text([1, 9, 3], [(0.0, 1), (1.0, 2)])
    found = path_check.parted(own, [[5, 6]], [one], [other], 1e-3)
    assert (found["texts"], found["differ"], found["held"]) == (1, 1, False)
    assert path_check.parted(own, [[5, 6]], [one], [one], 1e-3)["held"]


def test_drafts_with_branches_hold_the_right_tokens_and_wrong_ones() -> None:
    tree = knowing([*range(20)], 4, 64, branches=True)([*range(10)])
    assert tree.tokens[0] == 9
    paths = [[tree.tokens[node] for node in tree.path(leaf)] for leaf in range(len(tree))]
    assert [10, 11, 12] in paths
    assert [11] in paths  # a sibling of 10
