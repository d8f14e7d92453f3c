"""The target's states on disk."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from tests.unit.training.material import world
from training import features
from training.features import FeatureCache, FeaturePlan, build_features, missing_from
from training.files import TrainingError
from training.prefill import Prefill


def plan(dtype: str = "float16") -> FeaturePlan:
    return FeaturePlan.of(world().facts, (0, 2), dtype)


def expected(ids: list[int], tap: int) -> torch.Tensor:
    """From transformers: hidden states begin with the embeddings; the last is normed."""
    with torch.no_grad():
        out = world().model(torch.tensor([ids]), output_hidden_states=True)
    return out.hidden_states[tap][0]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 1e-2)])
def test_rows_are_the_targets_states(tmp_path: Path, dtype: str, tolerance: float) -> None:
    texts = world().records[:5]
    cache = build_features(Prefill(world().model), texts, tmp_path, plan(dtype))
    for record in texts:
        for tap in (0, 2, 3):
            rows = cache.rows(record.digest, (tap,)).float()
            wanted = expected(record.ids.tolist(), tap)
            assert torch.allclose(rows, wanted, atol=tolerance * float(wanted.abs().max()))
    both = cache.rows(texts[0].digest, (2, 0))
    assert torch.equal(both[:, :32], cache.rows(texts[0].digest, (2,)))
    assert torch.equal(both[:, 32:], cache.rows(texts[0].digest, (0,)))


def test_a_second_call_computes_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "CHUNK_ROWS", 60)
    texts = world().records[:6]
    build_features(Prefill(world().model), texts[:3], tmp_path, plan())
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("chunk-*")}
    (tmp_path / ".chunk-00009.bin.part").write_bytes(b"cut short by a kill")
    assert missing_from(tmp_path, plan(), texts) == texts[3:]
    cache = build_features(Prefill(world().model), texts, tmp_path, plan())
    assert all(record.digest in cache for record in texts)
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("chunk-*")}
    assert before.items() <= after.items()
    assert len(after) > len(before) > 0


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        features.shutil, "disk_usage", lambda path: usage._replace(free=features.SPARE_BYTES + 10)
    )
    with pytest.raises(TrainingError, match="GB are free"):
        build_features(Prefill(world().model), world().records[:2], tmp_path, plan())
    assert not list(tmp_path.iterdir())


def test_features_of_another_target_or_dtype_are_refused(tmp_path: Path) -> None:
    build_features(Prefill(world().model), world().records[:2], tmp_path, plan())
    other = dataclasses.replace(plan(), weights_hash="other")
    with pytest.raises(TrainingError, match=r"weights_hash is .* wanted other"):
        missing_from(tmp_path, other, world().records)
    with pytest.raises(TrainingError, match="dtype is float16, wanted bfloat16"):
        missing_from(tmp_path, plan("bfloat16"), world().records)


def test_more_taps_than_needed_are_enough_and_fewer_are_not(tmp_path: Path) -> None:
    build_features(Prefill(world().model), world().records[:2], tmp_path, plan())
    fewer, more = (FeaturePlan.of(world().facts, taps) for taps in ((2,), (1, 2)))
    assert fewer.or_stored(tmp_path) == plan()
    assert more.or_stored(tmp_path) == more


def test_a_shortened_chunk_is_refused(tmp_path: Path) -> None:
    build_features(Prefill(world().model), world().records[:2], tmp_path, plan())
    path = next(tmp_path.glob("chunk-*"))
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(TrainingError, match=r"chunk-00000\.bin: has \d+ bytes, the index says"):
        FeatureCache(tmp_path)


def test_a_tap_out_of_range_is_refused() -> None:
    with pytest.raises(TrainingError, match="taps: 4, limit 0 to 3"):
        FeaturePlan.of(world().facts, (4,))
