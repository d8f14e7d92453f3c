"""Draft models as they are shipped, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.models import draft_checkpoint
from outrider.models.causal_lm import CausalLM
from outrider.models.draft_checkpoint import (
    CheckpointError,
    Target,
    is_draft,
    layers_of,
    read_draft,
    write_draft,
)
from outrider.models.segment import Segment
from tests.tiny import FAMILIES, tiny_model

IDS = torch.tensor([0, 3, 4, 17, 40, 63])
LAYERS = (0, 2)


def target(family: str = "llama", hidden: int = 32) -> PreTrainedModel:
    return tiny_model(family, layers=3, hidden=hidden, seed=5)


def tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    decoder: nn.Module = model.base_model
    named = decoder.named_parameters()
    return {name: p.detach() for name, p in named if "embed" not in name and "wte" not in name
            and "wpe" not in name}  # fmt: skip


def written(folder: Path, family: str = "llama") -> PreTrainedModel:
    given = target(family)
    facts = Target.of(given, "tiny", "abc")
    write_draft(folder, tensors(layers_of(given, LAYERS)), LAYERS, IDS, facts)
    return given


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_is_read_computes_the_layers_and_rows_that_were_written(
    tmp_path: Path, family: str
) -> None:
    given = written(tmp_path, family)
    found = read_draft(tmp_path, given, "abc")
    assert is_draft(tmp_path)
    assert found.layers == LAYERS
    plain = layers_of(given, LAYERS)
    for name, tensor in tensors(plain).items():  # rounded as in the file
        dict(plain.base_model.named_parameters())[name].data.copy_(tensor.bfloat16())
    text = torch.arange(1, 12)[None]
    with torch.no_grad():
        wanted = plain.eval()(text).logits[0][:, IDS]
        assert torch.allclose(found.model.eval()(text).logits[0], wanted, atol=1e-5)


def test_the_engine_runs_it_with_logits_of_its_rows_alone(tmp_path: Path) -> None:
    found = read_draft(tmp_path, written(tmp_path), None)
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
    monkeypatch.setattr(draft_checkpoint, "FILE_BYTES", 16_000)
    given = written(tmp_path)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 1
    assert all(path.stat().st_size < 20_000 for path in files)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index.values()) == {path.name for path in files}
    assert read_draft(tmp_path, given, "abc").ids.tolist() == IDS.tolist()


def config(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        about = json.loads(path.read_text())
        about["target"].update(changes.pop("target", {}))
        path.write_text(json.dumps({**about, **changes}))

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
        (config(target={"hidden_size": 48}), r"target\.hidden_size is 48, the target's is 32"),
        (config(target={"vocab_size": 50}), r"target\.vocab_size is 50, the target's is 64"),
        (config(target={"weights_hash": "x"}), r"target\.weights_hash is x, the target's is abc"),
        (config(layers=[0, 3]), r"layers: \[0, 3\], limit ascending within 0 to 2"),
        (config(layers=[0]), r"layers\.1\.\S+ belongs to no layer of \[0\]"),
        (config(draft_vocab_size=7), r"d2t has shape \(6,\), draft_vocab_size is 7"),
        (config(draft_vocab_size=None), r"draft_vocab_size is None, no int"),
        (config(method="eagle"), r"method is 'eagle', limit 'draft_model'"),
        (config(outrider_format=2), r"outrider_format is 2, limit 1"),
        (weights(lambda t: t.pop("d2t")), r"d2t is missing"),
        (weights(lambda t: t["d2t"].add_(1)), r"d2t maps to 1 to 64, the target's ids are 0 to 63"),
        (weights(lambda t: t["d2t"].neg_()), r"d2t maps to "),
        (weights(lambda t: t.pop("norm.weight")), r"norm\.weight is missing"),
        (weights(not_finite), r"norm\.weight has values that are not finite"),
        (truncate, r"model\.safetensors: cannot be read"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"has no safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json: cannot be read"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused_by_name(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    given = written(tmp_path)
    damage(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        read_draft(tmp_path, given, "abc")


def test_a_shape_of_another_target_is_refused(tmp_path: Path) -> None:
    given = written(tmp_path)

    def widen(stored: dict[str, Tensor]) -> None:
        stored["norm.weight"] = torch.ones(48)

    weights(widen)(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"norm\.weight has shape \(48,\), the target \(32,\)"
    ):
        read_draft(tmp_path, given, "abc")
