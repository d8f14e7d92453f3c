"""In which format a training computes."""

from __future__ import annotations

import pytest
import torch

from training import precision
from training.files import TrainingError
from training.precision import settled
from training.schedule import Options

CPU = torch.device("cpu")


@pytest.mark.parametrize(("gain", "chosen"), [(1.1, "float32"), (4.0, "bfloat16")])
def test_auto_takes_bfloat16_where_it_is_much_faster(
    monkeypatch: pytest.MonkeyPatch, gain: float, chosen: str
) -> None:
    monkeypatch.setattr(precision, "_gain", lambda device: gain)
    assert settled("auto", CPU) == chosen
    assert settled("float32", CPU) == "float32"


def test_auto_stays_with_what_a_training_was_begun_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_gain", lambda device: 9.0)
    assert settled("auto", CPU, stored="float32") == "float32"
    assert settled("bfloat16", CPU, stored="float32") == "bfloat16"


def test_the_gain_is_measured() -> None:
    assert 0.01 < precision._gain(CPU) < 100


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(TrainingError, match="precision: 'int4', limit one of auto, float32"):
        settled("int4", CPU)
    with pytest.raises(TrainingError, match="precision: 'auto', limit one of float32, bfloat16"):
        Options(steps=1, precision="auto")
