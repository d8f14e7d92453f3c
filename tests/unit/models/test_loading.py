"""Directories load as they were saved; draft models are cut from them.

Nonsense is refused by name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outrider.models.causal_lm import Segment
from outrider.models.cut import cut_model, noisy_copy
from outrider.models.hub import ModelSpecError
from outrider.models.inspection import inspect_model
from outrider.models.loading import load_model, load_tokenizer, tokenizer_fingerprint
from tests.tiny import FAMILIES, save_tiny, tiny_tokenizer

TOKENS = [3, 14, 15, 9, 26]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny(made, layers=3)
    return made


def test_a_directory_loads_with_the_logits_of_transformers(folder: Path, tmp_path: Path) -> None:
    reference = save_tiny(tmp_path, layers=3)
    lm = load_model(str(folder), dtype="float32")
    assert (lm.name, lm.layers, lm.vocab_size, lm.context_length, lm.eos_ids) == (
        "tiny",
        3,
        64,
        512,
        (63,),
    )
    assert lm.dtype == torch.float32
    logits = lm.logits(lm.forward([Segment.chain(lm.new_cache(), TOKENS)]).states)
    with torch.inference_mode():
        expected = reference(torch.tensor([TOKENS])).logits[0]
    assert (logits - expected).abs().max() < 1e-4


def test_bfloat16_is_used_where_asked(folder: Path) -> None:
    lm = load_model(str(folder), dtype="bfloat16")
    assert lm.dtype == torch.bfloat16
    assert lm.numerics.dtype == "bfloat16"
    assert (
        lm.logits(lm.forward([Segment.chain(lm.new_cache(), TOKENS)]).states).dtype == torch.float32
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "int3"}, "dtype 'int3': expected one of auto, float32"),
        ({"device": "tpu"}, "device 'tpu': expected cpu or cuda:N"),
        ({"device": "cuda:99"}, "device 'cuda:99': this machine has"),
        ({"threads": 0}, "threads: 0, limit 1 or more"),
    ],
)
def test_nonsense_settings_are_refused_by_name(
    folder: Path, arguments: dict[str, str], message: str
) -> None:
    with pytest.raises(ModelSpecError, match=message):
        load_model(str(folder), **arguments)  # type: ignore[arg-type]


def test_a_directory_without_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ModelSpecError, match="cannot be read"):
        load_model(str(tmp_path))


def test_inspection_tells_what_loading_finds(folder: Path) -> None:
    facts, lm = inspect_model(str(folder)), load_model(str(folder), dtype="float32")
    assert facts.eos_ids == lm.eos_ids
    assert facts.tokenizer_fingerprint == lm.tokenizer_fingerprint
    assert (facts.layers, facts.hidden_size, facts.vocab_size) == (
        lm.layers,
        lm.hidden_size,
        lm.vocab_size,
    )
    assert facts.parameters == sum(p.numel() for p in save_tiny(folder, layers=3).parameters())
    assert facts.dtypes == ("F32",)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cut_runs_the_first_layers_of_its_target(family: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "target", family, layers=3)
    cut_model(str(tmp_path / "target"), 2, tmp_path / "cut")
    target, draft = (
        load_model(str(tmp_path / name), dtype="float32") for name in ("target", "cut")
    )
    assert draft.layers == 2
    assert draft.tokenizer_fingerprint == target.tokenizer_fingerprint
    assert draft.vocab_size == target.vocab_size
    taps = [
        lm.forward([Segment.chain(lm.new_cache(), TOKENS)], taps=(1,)).taps
        for lm in (target, draft)
    ]
    assert taps[0] is not None
    assert torch.equal(taps[0], taps[1])


@pytest.mark.parametrize("layers", [0, 4])
def test_a_cut_of_layers_that_are_not_there_is_refused(
    folder: Path, tmp_path: Path, layers: int
) -> None:
    with pytest.raises(ModelSpecError, match=f"layers: {layers}, limit 1 to 3"):
        cut_model(str(folder), layers, tmp_path)


def test_noise_moves_the_logits_with_its_scale_and_its_seed(folder: Path, tmp_path: Path) -> None:
    def logits(place: Path) -> torch.Tensor:
        lm = load_model(str(place), dtype="float32")
        return lm.logits(lm.forward([Segment.chain(lm.new_cache(), TOKENS)]).states)

    plain, seen = logits(folder), []
    for scale, seed in ((0.01, 1), (0.01, 1), (0.01, 2), (0.1, 1)):
        out = tmp_path / str(len(seen))
        noisy_copy(str(folder), out, scale, seed)
        seen.append(logits(out) - plain)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    assert 0 < seen[0].abs().max() < seen[3].abs().max()


def test_the_tokenizer_fingerprint_follows_the_vocabulary_only(folder: Path) -> None:
    saved = load_tokenizer(str(folder))
    fingerprint = tokenizer_fingerprint(saved)
    assert fingerprint == tokenizer_fingerprint(tiny_tokenizer(64))
    saved.chat_template = "{{ messages }}"
    saved(["w1 w2", "w3"], truncation=True, max_length=1)
    saved.backend_tokenizer.enable_padding()
    assert fingerprint == tokenizer_fingerprint(saved)
    assert fingerprint != tokenizer_fingerprint(tiny_tokenizer(65))
    saved.add_tokens(["more"])
    assert fingerprint != tokenizer_fingerprint(saved)
