"""Draft models as they are shipped, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from outrider.models.causal_lm import CausalLM
from outrider.models.heads import draft_model_files
from outrider.models.heads.draft_model_files import (
    is_shipped_draft,
    load_draft_model,
    save_draft_model,
    trained_tensors,
)
from outrider.models.heads.layers import layers_of
from outrider.models.heads.record import CheckpointError
from outrider.models.heads.target import TargetParts, parts_of
from outrider.models.segment import Segment
from tests.tiny import FAMILIES, tiny_model

IDS = torch.tensor([0, 3, 4, 17, 40, 63])
LAYERS = (0, 2)


def target(family: str = "llama", hidden: int = 32) -> PreTrainedModel:
    return tiny_model(family, layers=3, hidden=hidden, seed=5)


def parts(model: PreTrainedModel) -> TargetParts:
    return parts_of(model, "tiny", "print")


def written(folder: Path, family: str = "llama") -> PreTrainedModel:
    given = target(family)
    tensors = trained_tensors(layers_of(given, LAYERS))
    save_draft_model(folder, tensors, LAYERS, IDS, parts(given))
    return given


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_is_read_computes_the_layers_and_rows_that_were_written(
    tmp_path: Path, family: str
) -> None:
    given = written(tmp_path, family)
    found = load_draft_model(tmp_path, given, parts(given))
    assert is_shipped_draft(tmp_path)
    assert found.layers == LAYERS
    plain = layers_of(given, LAYERS)
    for tensor in trained_tensors(plain).values():  # rounded as in the file
        tensor.data.copy_(tensor.bfloat16())
    text = torch.arange(1, 12)[None]
    with torch.no_grad():
        wanted = plain.eval()(text).logits[0][:, IDS]
        assert torch.allclose(found.model.eval()(text).logits[0], wanted, atol=1e-5)


def test_the_engine_runs_it_with_logits_of_its_rows_alone(tmp_path: Path) -> None:
    given = written(tmp_path)
    found = load_draft_model(tmp_path, given, parts(given))
    with torch.no_grad():
        wanted = found.model.eval()(torch.tensor([[5, 6, 63]])).logits[0]
    lm = CausalLM.from_model(found.model, name="draft", tokenizer_fingerprint="tiny")
    cache = lm.new_cache()
    logits = lm.logits(lm.forward([Segment.chain(cache, [5, 6, 63])]).states)
    assert logits.shape == (3, len(IDS))
    assert torch.allclose(logits, wanted, atol=1e-4)


def test_large_checkpoints_are_cut_into_files_below_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_model_files, "FILE_BYTES", 16_000)
    given = written(tmp_path)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 1
    assert all(path.stat().st_size < 20_000 for path in files)
    assert load_draft_model(tmp_path, given, parts(given)).ids.tolist() == IDS.tolist()


def config(inner: str | None = None, **changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        about = json.loads(path.read_text())
        (about if inner is None else about[inner]).update(changes)
        path.write_text(json.dumps(about))

    return damage


def weights(change: Callable[[dict[str, Tensor]], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "model.safetensors"
        stored = load_file(path)
        change(stored)
        save_file(stored, path)

    return damage


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def not_finite(stored: dict[str, Tensor]) -> None:
    stored["norm.weight"][3] = float("nan")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (config("target", hidden_size=48), r"target\.hidden_size is 48, of target tiny 32"),
        (config("target", vocab_size=50), r"target\.vocab_size is 50, of target tiny 64"),
        (config("target", embedding_hash="x"), r"target\.embedding_hash is x, of target tiny"),
        (config("head", layers=[0, 3]), r"head\.layers is \[0, 3\], limit ascending within 0 to 2"),
        (config("head", layers=[0]), r"tensor layers\.1\.\S+ has no place in layers \[0\]"),
        (config("head", layers="0"), r"head\.layers is '0', limit a list"),
        (config("head", draft_vocab_size=7), r"d2t has the shape \[6\], limit \[7\]"),
        (config("head", draft_vocab_size=65), r"head\.draft_vocab_size is 65, limit 1 to 64"),
        (config("head", more_files=["model-2.safetensors"]), r"model-2\.\S+: there is no such"),
        (config(method="eagle"), r"method is eagle, of this drafter draft_model"),
        (config(version=2), r"version is 2, limit 1 to 1"),
        (weights(lambda t: t.pop("d2t")), r"tensor d2t is missing"),
        (weights(lambda t: t["d2t"].add_(1)), r"row 5 the target id 64, limit 0 to 63"),
        (weights(lambda t: t["d2t"].neg_()), r"d2t gives row "),
        (weights(lambda t: t.pop("norm.weight")), r"tensor norm\.weight is missing"),
        (weights(not_finite), r"norm\.weight has the weight nan, limit finite"),
        (truncate, r"model\.safetensors: \d+ bytes, truncated or damaged"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"there is no such file"),
        (lambda folder: (folder / "config.json").write_text("{"), r"cannot be read as JSON"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused_by_name(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    given = written(tmp_path)
    damage(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        load_draft_model(tmp_path, given, parts(given))


def test_a_shape_of_another_target_is_refused(tmp_path: Path) -> None:
    given = written(tmp_path)

    def widen(stored: dict[str, Tensor]) -> None:
        stored["norm.weight"] = torch.ones(48)

    weights(widen)(tmp_path)
    with pytest.raises(CheckpointError, match=r"norm\.weight has the shape \[48\], limit \[32\]"):
        load_draft_model(tmp_path, given, parts(given))
