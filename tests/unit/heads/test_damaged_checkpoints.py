"""Damaged checkpoints, and those of another target, are refused by file, field and values."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from outrider.models.heads.checkpoint import method_of
from outrider.models.heads.eagle_files import load_eagle, save_eagle, save_speculators
from outrider.models.heads.medusa_files import load_medusa, save_medusa, save_open_medusa
from outrider.models.heads.record import CheckpointError
from outrider.models.heads.target import TargetParts, parts_of
from tests.heads import tiny_eagle, tiny_medusa
from tests.tiny import FINGERPRINT, tiny_model

MODEL = tiny_model(layers=6)
TARGET = parts_of(MODEL, "tiny", FINGERPRINT)
EAGLE = tiny_eagle(MODEL)
MEDUSA = tiny_medusa(MODEL, layers=2)
CONFIG = "config.json"


def _config(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        fields = json.loads((folder / CONFIG).read_text())
        change(fields)
        (folder / CONFIG).write_text(json.dumps(fields))

    return apply


def _tensors(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        file = next(folder.glob("*.safetensors"))
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file)

    return apply


def _spoil(name: str, place: int, value: float) -> Callable[[Path], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name].view(-1)[place] = value

    return _tensors(change)


def _truncate(folder: Path) -> None:
    file = next(folder.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-100])


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no d2t": (_tensors(lambda t: t.pop("d2t")), r"model.safetensors: tensor d2t is missing"),
    "d2t too high": (_spoil("d2t", 31, 40), r"d2t gives row 31 the target id 71, limit 0 to 63"),
    "d2t negative": (_spoil("d2t", 0, -1), r"d2t gives row 0 the target id -1, limit 0 to 63"),
    "d2t twice": (
        _spoil("d2t", 4, 2),
        r"d2t gives row 4 the target id 6, limit above the 6 of row 3",
    ),
    "truncated": (_truncate, r"model.safetensors: \d+ bytes, truncated or damaged"),
    "NaN": (
        _spoil("layers.0.mlp.up_proj.weight", 3, float("nan")),
        r"layers.0.mlp.up_proj.weight has the weight nan, limit finite",
    ),
    "infinite": (_spoil("fc.weight", 0, float("inf")), r"fc.weight has the weight inf"),
    "no tensor": (_tensors(lambda t: t.pop("fc.weight")), r"tensor fc.weight is missing"),
    "another tensor": (
        _tensors(lambda t: t.update({"layers.1.x": torch.zeros(1)})),
        r"tensor layers.1.x has no place",
    ),
    "wrong shape": (
        _tensors(lambda t: t.update({"norm.weight": torch.zeros(31)})),
        r"norm.weight has the shape \[31\], limit \[32\]",
    ),
    "no JSON": (lambda f: (f / CONFIG).write_text("{") and None, r"config.json: cannot be read"),
    "no config": (lambda f: (f / CONFIG).unlink(), r"config.json: cannot be read"),
    "no weights": (
        lambda f: next(f.glob("*.safetensors")).unlink(),
        r"model.safetensors: there is no such file",
    ),
}
OPEN_DAMAGE = {
    "draft size": (
        _config(lambda c: c.update(draft_vocab_size=30)),
        r"d2t has the shape \[32\], limit \[30\]",
    ),
    "draft size beyond": (
        _config(lambda c: c.update(draft_vocab_size=65)),
        r"draft_vocab_size is 65, limit 1 to 64",
    ),
    "taps": (
        _config(lambda c: c.update(eagle_aux_hidden_state_layer_ids=[2, 3, 7])),
        r"taps is \[2, 3, 7\], limit distinct layers 0 to 6 of target tiny",
    ),
    "layers": (
        _config(lambda c: c["transformer_layer_config"].update(num_hidden_layers=2)),
        r"transformer_layer_config.num_hidden_layers is 2, limit 1",
    ),
    "method": (
        _config(lambda c: c.update(speculators_model_type="dflash")),
        r"speculators_model_type is dflash, limit eagle3",
    ),
    "t2d": (_spoil("t2d", 1, 1), r"t2d of id 1 is True, of d2t False"),
}
SHIPPED_DAMAGE = {
    "draft size": (
        _config(lambda c: c["head"].update(draft_vocab_size=30)),
        r"d2t has the shape \[32\], limit \[30\]",
    ),
    "taps": (
        _config(lambda c: c["head"].update(taps=[1, 1])),
        r"taps is \[1, 1\], limit distinct layers 0 to 6",
    ),
    "method": (
        _config(lambda c: c.update(method="medusa")),
        r"method is medusa, of this drafter eagle",
    ),
    "version": (_config(lambda c: c.update(version=2)), r"version is 2, limit 1 to 1"),
    "type": (
        _config(lambda c: c["head"].update(heads="4")),
        r"head.heads is '4', limit a int",
    ),
    "frozen": (
        _config(lambda c: c.update(frozen=["fc.weight"])),
        r"frozen is 'fc.weight', limit one of",
    ),
}


@pytest.mark.parametrize("damage", {**DAMAGE, **OPEN_DAMAGE})
def test_a_damaged_open_head_is_refused(tmp_path: Path, damage: str) -> None:
    save_speculators(tmp_path, EAGLE, TARGET)
    apply, message = {**DAMAGE, **OPEN_DAMAGE}[damage]
    apply(tmp_path)
    with pytest.raises(CheckpointError, match=message) as refused:
        load_eagle(tmp_path, TARGET)
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("damage", {**DAMAGE, **SHIPPED_DAMAGE})
def test_a_damaged_shipped_head_is_refused(tmp_path: Path, damage: str) -> None:
    save_eagle(tmp_path, EAGLE, TARGET, frozen_head=False)
    apply, message = {**DAMAGE, **SHIPPED_DAMAGE}[damage]
    apply(tmp_path)
    with pytest.raises(CheckpointError, match=message) as refused:
        load_eagle(tmp_path, TARGET)
    assert str(tmp_path) in str(refused.value)


def _other(**fields: Any) -> TargetParts:
    return replace(TARGET, name="other", **fields)


OTHERS = {
    "hidden": (
        parts_of(tiny_model(hidden=64, layers=6), "other", FINGERPRINT),
        r"hidden_size is 32, of target other 64; they must be equal",
    ),
    "vocabulary": (
        parts_of(tiny_model(vocab=66, layers=6), "other", FINGERPRINT),
        r"vocab_size is 64, of target other 66; they must be equal",
    ),
}
OTHER_WEIGHTS = {
    "layers": (
        parts_of(tiny_model(layers=5), "other", FINGERPRINT),
        r"target.layers is 6, of target other 5",
    ),
    "tokenizer": (
        _other(tokenizer_fingerprint="x"),
        r"target.tokenizer_fingerprint is tiny, of target other x",
    ),
    "weights": (
        _other(embedding=TARGET.embedding + 1.0),
        r"target.embedding_hash is [0-9a-f]{64}, of target other [0-9a-f]{64}",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_an_open_head_of_another_target_is_refused(tmp_path: Path, other: str) -> None:
    save_speculators(tmp_path, EAGLE, TARGET)
    with pytest.raises(CheckpointError, match=OTHERS[other][1]):
        load_eagle(tmp_path, OTHERS[other][0])


@pytest.mark.parametrize("other", {**OTHERS, **OTHER_WEIGHTS})
def test_a_shipped_head_of_another_target_is_refused(tmp_path: Path, other: str) -> None:
    parts, message = {**OTHERS, **OTHER_WEIGHTS}[other]
    save_eagle(tmp_path / "eagle", EAGLE, TARGET, frozen_head=False)
    save_medusa(tmp_path / "medusa", MEDUSA, TARGET, frozen_head=True)
    with pytest.raises(CheckpointError, match=message):
        load_eagle(tmp_path / "eagle", parts)
    with pytest.raises(CheckpointError, match=message):
        load_medusa(tmp_path / "medusa", parts)


MEDUSA_DAMAGE = {
    "truncated": (_truncate, r"medusa_lm_head.safetensors: \d+ bytes, truncated or damaged"),
    "NaN": (_spoil("0.2.weight", 5, float("nan")), r"0.2.weight has the weight nan"),
    "no head": (_tensors(lambda t: t.pop("2.0.linear.bias")), r"blocks.2.0.linear.bias is missing"),
    "heads": (
        _config(lambda c: c.update(medusa_num_heads=2)),
        r"tensor 2.[0-2].\S+ has no place in 2 heads of 2 layers",
    ),
    "rows": (
        _tensors(lambda t: t.update({f"{k}.2.weight": torch.zeros(63, 32) for k in range(3)})),
        r"lm_heads.0.weight has the shape \[63, 32\], limit \[64, 32\]",
    ),
    "hidden": (
        _config(lambda c: c.update(hidden_size=48)),
        r"hidden_size is 48, of target tiny 32",
    ),
    "accuracy": (
        _config(lambda c: c.update(accuracies=[[1.5]])),
        r"accuracies is 1.5, limit lists of 0 to 1",
    ),
}


@pytest.mark.parametrize("damage", MEDUSA_DAMAGE)
def test_damaged_open_medusa_heads_are_refused(tmp_path: Path, damage: str) -> None:
    save_open_medusa(tmp_path, MEDUSA, TARGET)
    apply, message = MEDUSA_DAMAGE[damage]
    apply(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        load_medusa(tmp_path, TARGET)


MEDUSA_ROOT_DAMAGE = {
    "no root": (_tensors(lambda t: t.pop("root.weight")), r"tensor root.weight is missing"),
    "NaN": (_spoil("root.weight", 3, float("nan")), r"root.weight has the weight nan"),
    "switch": (
        _config(lambda c: c["head"].update(root_embedding="yes")),
        r"head.root_embedding is 'yes', limit a bool",
    ),
    "switched off": (
        _config(lambda c: c["head"].update(root_embedding=False)),
        r"tensor root.weight has no place",
    ),
    "embedding not frozen": (
        _config(lambda c: c["frozen"].remove("embed_tokens.weight")),
        r"tensor embed_tokens.weight is missing",
    ),
}


@pytest.mark.parametrize("damage", MEDUSA_ROOT_DAMAGE)
def test_damaged_medusa_heads_that_read_the_root_are_refused(tmp_path: Path, damage: str) -> None:
    heads = tiny_medusa(MODEL, layers=2, root_embedding=True)
    save_medusa(tmp_path, heads, TARGET, frozen_head=True)
    apply, message = MEDUSA_ROOT_DAMAGE[damage]
    apply(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        load_medusa(tmp_path, TARGET)


def test_a_folder_that_says_nothing_of_its_method_is_refused(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text("{}")
    with pytest.raises(CheckpointError, match="to say what it is"):
        method_of(tmp_path)
