"""Both forms of each head come back as they were written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from outrider.models.heads.checkpoint import method_of
from outrider.models.heads.config import EagleConfig
from outrider.models.heads.eagle_files import load_eagle, save_eagle, save_speculators
from outrider.models.heads.medusa_files import load_medusa, save_medusa, save_open_medusa
from outrider.models.heads.target import parts_of, target_parts
from tests.heads import tiny_eagle, tiny_medusa
from tests.tiny import FINGERPRINT, save_tiny, tiny_model

MODEL = tiny_model(layers=6)
TARGET = parts_of(MODEL, "tiny", FINGERPRINT)
EAGLE = tiny_eagle(MODEL)
MEDUSA = tiny_medusa(MODEL, layers=2)
WEIGHTS, CONFIG = "model.safetensors", "config.json"


def _assert_same(found: torch.nn.Module, written: torch.nn.Module) -> None:
    """Up to the rounding to bfloat16 of what was stored."""
    theirs = written.state_dict()
    assert found.state_dict().keys() == theirs.keys()
    for name, tensor in found.state_dict().items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"kind": "eagle"},
        {"norm_before_residual": True, "norm_output": True, "fc_norm": True},
        {"qk_norm": True, "norm_before_fc": True, "taps": (0, 6)},
    ],
)
@pytest.mark.parametrize("frozen", [True, False])
def test_a_shipped_eagle_head_comes_back(
    tmp_path: Path, switches: dict[str, Any], frozen: bool
) -> None:
    head = tiny_eagle(MODEL, **switches)
    if frozen:
        head.lm_head.weight.data.copy_(TARGET.head[head.draft_ids])
    save_eagle(tmp_path, head, TARGET, frozen)
    stored = load_file(tmp_path / WEIGHTS)
    assert "embed_tokens.weight" not in stored
    assert ("lm_head.weight" in stored) is not frozen
    assert {t.dtype for t in stored.values()} == {torch.bfloat16, torch.int64}
    assert method_of(tmp_path) == "eagle"
    found = load_eagle(tmp_path, TARGET)
    assert found.config == head.config
    _assert_same(found, head)


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"norm_before_residual": True, "norm_output": True, "fc_norm": True},
        {"qk_norm": True, "norm_before_fc": True},
    ],
)
def test_an_open_eagle_head_comes_back(tmp_path: Path, switches: dict[str, Any]) -> None:
    head = tiny_eagle(MODEL, **switches)
    save_speculators(tmp_path, head, TARGET)
    assert method_of(tmp_path) == "eagle"
    found = load_eagle(tmp_path, TARGET)
    assert replace(found.config, rope=head.config.rope) == head.config
    assert found.config.rope["rope_theta"] == head.config.rope["rope_theta"]
    _assert_same(found, head)


def test_a_head_over_the_whole_vocabulary_needs_no_map(tmp_path: Path) -> None:
    head = tiny_eagle(MODEL, torch.arange(64))
    save_speculators(tmp_path, head, TARGET)
    assert "d2t" not in load_file(tmp_path / WEIGHTS)
    assert load_eagle(tmp_path, TARGET).draft_ids.tolist() == list(range(64))


def test_the_open_form_has_the_names_of_the_library(tmp_path: Path) -> None:
    """Table read off speculators 0.9.0: models/eagle3/{config,core,model_definitions}.py, model.py;
    hidden 32, 4 heads of 8, 2 of them for keys, products of 64, vocabularies 64 and 32."""
    save_speculators(tmp_path, EAGLE, TARGET)
    half, layer = torch.bfloat16, "layers.0"
    expected = {
        "embed_tokens.weight": ([64, 32], half),
        "fc.weight": ([32, 32 * len(EAGLE.config.taps)], half),
        f"{layer}.input_layernorm.weight": ([32], half),
        f"{layer}.hidden_norm.weight": ([32], half),
        f"{layer}.self_attn.q_proj.weight": ([32, 64], half),
        f"{layer}.self_attn.k_proj.weight": ([16, 64], half),
        f"{layer}.self_attn.v_proj.weight": ([16, 64], half),
        f"{layer}.self_attn.o_proj.weight": ([32, 32], half),
        f"{layer}.post_attention_layernorm.weight": ([32], half),
        f"{layer}.mlp.gate_proj.weight": ([64, 32], half),
        f"{layer}.mlp.up_proj.weight": ([64, 32], half),
        f"{layer}.mlp.down_proj.weight": ([32, 64], half),
        "norm.weight": ([32], half),
        "lm_head.weight": ([32, 32], half),
        "d2t": ([32], torch.int64),
        "t2d": ([64], torch.bool),
    }
    stored = load_file(tmp_path / WEIGHTS)
    assert {name: (list(t.shape), t.dtype) for name, t in stored.items()} == expected
    assert (torch.arange(32) + stored["d2t"]).tolist() == list(range(0, 64, 2))
    config = json.loads((tmp_path / CONFIG).read_text())
    assert config["speculators_model_type"] == "eagle3"
    assert config["draft_vocab_size"] == 32
    assert config["eagle_aux_hidden_state_layer_ids"] == list(EAGLE.config.taps)
    assert config["speculators_config"]["algorithm"] == "eagle3"
    methods = config["speculators_config"]["proposal_methods"]
    assert methods == [{"proposal_type": "greedy", "speculative_tokens": 4}]
    assert config["speculators_config"]["default_proposal_method"] == "greedy"
    assert config["speculators_config"]["verifier"] == {"name_or_path": None, "architectures": []}
    layer_config = config["transformer_layer_config"]
    assert layer_config["model_type"] == "llama"
    assert (layer_config["num_hidden_layers"], layer_config["vocab_size"]) == (1, 64)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("form", ["shipped", "shipped with a root embedding", "open"])
def test_medusa_heads_come_back(tmp_path: Path, frozen: bool, form: str) -> None:
    accuracies = ((0.5, 0.25), (0.25, 0.125), (0.125, 0.0))
    root = form == "shipped with a root embedding"
    heads = tiny_medusa(MODEL, layers=2, shared=frozen, accuracies=accuracies, root_embedding=root)
    if not frozen:
        for index, head in enumerate(heads.lm_heads):
            torch.nn.Module.get_parameter(head, "weight").data.mul_(1.0 + index)
    with torch.no_grad():
        for name, parameter in heads.named_parameters():
            rebuilt = form != "open" and (
                name == "embed_tokens.weight" or (frozen and name == "lm_heads.0.weight")
            )
            if not rebuilt:  # what is stored is stored in bfloat16
                parameter.copy_(parameter.bfloat16())
    if form != "open":
        save_medusa(tmp_path, heads, TARGET, frozen)
        written = load_file(tmp_path / WEIGHTS)
        assert ("lm_heads.0.weight" in written) is not frozen
        assert "embed_tokens.weight" not in written
        assert ("root.weight" in written) is root
    else:
        save_open_medusa(tmp_path, heads, TARGET)
    assert method_of(tmp_path) == "medusa"
    found = load_medusa(tmp_path, TARGET)
    assert found.config.accuracies == accuracies
    assert found.config.shared is frozen
    states = torch.randn(3, 32, generator=torch.Generator().manual_seed(2))
    roots = torch.tensor([5, 0, 9])
    rows = found.logits(states, roots)
    wanted = rows[..., heads.draft_ids] if form == "open" else rows
    torch.testing.assert_close(wanted, heads.logits(states, roots))


def test_the_open_form_has_no_place_for_a_root_embedding(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="root_embedding: True, limit False"):
        save_open_medusa(tmp_path, tiny_medusa(MODEL, root_embedding=True), TARGET)
    assert not any(tmp_path.iterdir())


def test_a_medusa_checkpoint_by_others_loads(tmp_path: Path) -> None:
    """As FasterDecoding/Medusa writes it: nn.Sequential(ResBlock.., Linear) in an nn.ModuleList."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"0.linear.weight": (32, 32), "0.linear.bias": (32,), "1.weight": (64, 32)}
    tensors = {
        f"{head}.{name}": torch.randn(shape, generator=generator)
        for head in range(2)
        for name, shape in shapes.items()
    }
    save_file(tensors, tmp_path / "medusa_lm_head.safetensors")
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "x"}
    (tmp_path / CONFIG).write_text(json.dumps(config))
    heads = load_medusa(tmp_path, TARGET)
    h = torch.randn(32, generator=generator)
    weight, bias = tensors["1.0.linear.weight"], tensors["1.0.linear.bias"]
    z = h + torch.nn.functional.silu(weight @ h + bias)
    logits = heads.logits(h, torch.tensor(0))
    torch.testing.assert_close(logits[1], tensors["1.1.weight"] @ z)


def test_the_parts_of_a_target_are_read_from_its_files(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "qwen3", layers=3)
    parts = target_parts(str(tmp_path))
    whole = parts_of(model, parts.name, parts.tokenizer_fingerprint, parts.place)
    assert parts.identity() == whole.identity()
    assert torch.equal(parts.head, whole.head)


def test_the_open_form_has_no_first_version(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="kind: eagle, limit eagle3"):
        save_speculators(tmp_path, tiny_eagle(MODEL, kind="eagle"), TARGET)


def test_a_head_takes_the_shape_of_its_target() -> None:
    config = EagleConfig.for_target(tiny_model("gpt2", layers=4).config, 10)
    assert (config.heads, config.kv_heads, config.head_dim) == (4, 4, 8)
    assert config.taps == (1, 2)
