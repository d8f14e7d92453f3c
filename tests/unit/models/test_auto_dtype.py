"""`auto` is decided once, stored beside the model, and the same for all who share the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.models import auto_dtype
from outrider.models.auto_dtype import Choice, choose, compare, store, stored_choice
from outrider.models.linear import packing_available
from outrider.models.loading import load_model, settled_dtype
from outrider.models.selfcheck import SelfCheck
from tests.tiny import save_tiny

pytestmark = pytest.mark.skipif(
    not packing_available(torch.bfloat16, torch.device("cpu")),
    reason="this processor has no packed linears in bfloat16",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "home"))
    made = tmp_path / "tiny"
    save_tiny(made)
    return made


def timed(monkeypatch: pytest.MonkeyPatch, **milliseconds: float) -> list[str]:
    """Passes take what is given by dtype; returns the list of those that were timed."""
    seen: list[str] = []

    def pass_ms(lm: Any, rows: int) -> float:
        seen.append(lm.numerics.dtype)
        return milliseconds[lm.numerics.dtype] * rows

    monkeypatch.setattr(auto_dtype, "_pass_ms", pass_ms)
    return seen


@pytest.mark.parametrize(
    ("bfloat16", "float32", "expected"),
    [(1.0, 2.0, "bfloat16"), (2.0, 2.0, "bfloat16"), (2.25, 2.0, "float32")],
)
def test_auto_is_bfloat16_where_it_is_exact_and_not_slower(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    bfloat16: float,
    float32: float,
    expected: str,
) -> None:
    seen = timed(monkeypatch, bfloat16=bfloat16, float32=float32)
    assert load_model(str(folder)).numerics.dtype == expected
    assert set(seen) == {"bfloat16", "float32"}
    [stored] = folder.glob("outrider-dtype-*.json")
    content = json.loads(stored.read_text())
    assert (content["dtype"], content["bfloat16_ms"]) == (expected, [bfloat16, bfloat16 * 6])
    assert torch.__version__ in content["machine"]


def test_one_pass_that_is_slower_is_enough_for_float32(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, half = (load_model(str(folder), dtype=name) for name in ("float32", "bfloat16"))
    times = {"float32": {1: 2.0, 6: 3.0}, "bfloat16": {1: 1.0, 6: 3.5}}
    monkeypatch.setattr(auto_dtype, "_pass_ms", lambda lm, rows: times[lm.numerics.dtype][rows])
    assert compare(whole, half).dtype == "float32"
    times["bfloat16"][6] = 3.0
    assert compare(whole, half).dtype == "bfloat16"


def test_auto_is_float32_where_bfloat16_is_not_exact(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = timed(monkeypatch, bfloat16=1.0, float32=2.0)
    monkeypatch.setattr(auto_dtype, "self_check", lambda lm: SelfCheck(("trees",)))
    assert load_model(str(folder)).numerics.dtype == "float32"
    choice = stored_choice(folder)
    assert choice is not None
    assert choice.reason == "bfloat16 is inexact: trees"
    assert seen == [], "what is not exact needs no clock"


def test_without_room_for_the_self_check_nothing_is_stored(folder: Path) -> None:
    assert load_model(str(folder), kv_bytes=1).numerics.dtype == "float32"
    assert stored_choice(folder) is None


def test_a_stored_choice_is_taken_without_measuring(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(monkeypatch, bfloat16=1.0, float32=2.0)
    load_model(str(folder))
    seen = timed(monkeypatch, bfloat16=2.0, float32=1.0)
    assert load_model(str(folder)).numerics.dtype == "bfloat16"
    assert seen == []


def test_another_kind_of_machine_or_model_decides_for_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(folder, Choice("bfloat16", "here"))
    with monkeypatch.context() as other:
        other.setattr(auto_dtype, "machine", lambda: "another")
        assert stored_choice(folder) is None
        store(folder, Choice("float32", "there"))
        assert stored_choice(folder) == Choice("float32", "there")
    assert stored_choice(folder) == Choice("bfloat16", "here"), "neither writes over the other"
    save_tiny(folder, layers=3)
    assert stored_choice(folder) is None


def test_the_first_of_several_processes_is_followed(folder: Path) -> None:
    loads: list[str] = []

    def load(dtype: str) -> Any:
        loads.append(dtype)
        store(folder, Choice("float32", "the other was faster"))
        return load_model(str(folder), dtype=dtype)

    assert choose(folder, load).numerics.dtype == "float32"
    assert store(folder, Choice("bfloat16", "late")).dtype == "float32"


def test_a_file_that_cannot_be_read_is_written_anew(folder: Path) -> None:
    store(folder, Choice("bfloat16", "first"))
    [file] = folder.glob("outrider-dtype-*.json")
    for spoilt in ("", "[]", '{"dtype": "int4", "reason": "x"}', '{"dtype": "float32"}'):
        file.write_text(spoilt)
        assert stored_choice(folder) is None
        assert store(folder, Choice("float32", "again")).dtype == "float32"
        assert stored_choice(folder) == Choice("float32", "again")
    assert list(folder.glob(".outrider*")) == []


def test_a_directory_that_is_not_to_be_written_has_its_choice_in_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = auto_dtype._store

    def store_elsewhere(file: Path, choice: Choice) -> Choice:
        if file.parent == folder:
            raise PermissionError(13, "read-only", str(file))
        return real(file, choice)

    monkeypatch.setattr(auto_dtype, "_store", store_elsewhere)
    store(folder, Choice("bfloat16", "kept apart"))
    assert list(folder.glob("outrider-dtype-*")) == []
    assert stored_choice(folder) == Choice("bfloat16", "kept apart")
    assert len(list((tmp_path / "home" / "dtypes").iterdir())) == 1


def test_a_draft_model_follows_the_targets_choice_and_never_measures(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = timed(monkeypatch, bfloat16=1.0, float32=1.0)
    assert settled_dtype("auto", str(folder), "cpu") == "float32"
    store(folder, Choice("bfloat16", "measured"))
    assert settled_dtype("auto", str(folder), "cpu") == "bfloat16"
    assert settled_dtype("int8", str(folder), "cpu") == "int8"
    assert seen == []
