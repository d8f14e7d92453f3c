"""Drafters built by NAME=PATH from checkpoints on disk, and refused with what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from draft_service.drafters.registry import build_drafter
from draft_service.drafters.setup import Setup
from draft_service.vocabulary import vocabulary_of
from outrider.core.round import Budget, SamplingParams
from outrider.drafting import specs
from outrider.drafting.base import Drafter
from outrider.drafting.specs import DrafterRefused, check_path
from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.heads.draft_model_files import save_draft_model, trained_tensors
from outrider.models.heads.eagle_files import save_eagle, save_speculators
from outrider.models.heads.layers import layers_of
from outrider.models.heads.medusa_files import save_medusa, save_open_medusa
from outrider.models.heads.target import target_parts
from outrider.models.loading import load_model
from tests.heads import every_second, tiny_eagle, tiny_medusa
from tests.tiny import save_tiny

LAYERS, VOCAB = 4, 64
PROMPT = [5, 9, 2, 33, 21, 5, 9, 2]
FORMS = {
    "eagle": ("eagle", "eagle open"),
    "medusa": ("medusa", "medusa open"),
    "draft_model": ("draft_model",),
}
PAIRS = [(method, form) for method, forms in FORMS.items() for form in forms]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, and a checkpoint of each method and form for it."""
    folder = tmp_path_factory.mktemp("trained")
    model = save_tiny(folder / "target", layers=LAYERS, hidden=64)
    parts = target_parts(str(folder / "target"))
    save_eagle(folder / "eagle", tiny_eagle(model), parts, frozen_head=False)
    save_speculators(folder / "eagle open", tiny_eagle(model), parts)
    save_medusa(folder / "medusa", tiny_medusa(model), parts, frozen_head=True)
    save_open_medusa(folder / "medusa open", tiny_medusa(model), parts)
    ids, kept = every_second(VOCAB), (0, 3)
    tensors = trained_tensors(layers_of(model, kept))
    save_draft_model(folder / "draft_model", tensors, kept, ids, parts)
    return folder


def _setup(folder: Path, target: str = "target") -> Setup:
    spec = str(folder / target)
    return Setup(spec, vocabulary_of(spec), "float32")


def _proposed(drafter: Drafter, target: CausalLM) -> tuple[int, ...]:
    """What it drafts behind the prompt, with the features that it asked for."""
    from outrider.core.round import Features

    session = drafter.open(PROMPT, SamplingParams(temperature=0.0))
    if drafter.features is not None:
        hidden = target.forward(
            [Segment.chain(target.new_cache(), PROMPT[:-1])], drafter.features.taps
        )
        assert hidden.taps is not None
        data = hidden.taps.bfloat16().contiguous().view(torch.uint8).numpy().tobytes()
        width = hidden.taps.shape[1]
        drafter.observe(session, [], [Features(0, len(PROMPT) - 1, width, data)])
    while not drafter.prefill(session, 4):
        pass
    tree = drafter.propose([(session, Budget(3, 3))])[0].tree
    drafter.close(session)
    return tree.tokens[1:]


@pytest.mark.parametrize(("method", "form"), PAIRS)
def test_a_checkpoint_becomes_a_drafter_of_its_method(folder: Path, method: str, form: str) -> None:
    drafter = build_drafter(f"{method}={folder / form}", _setup(folder))
    assert drafter.method == method
    assert drafter.model_name == form
    tokens = _proposed(drafter, load_model(str(folder / "target"), dtype="float32"))
    assert len(tokens) == 3
    if form != "medusa open":
        assert all(token % 2 == 0 for token in tokens), "only these ids have rows"


def _no_map(file: Path) -> None:
    tensors = load_file(file)
    del tensors["d2t"]
    save_file(tensors, file)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


@pytest.mark.parametrize(("damage", "message"), [(_no_map, "d2t is missing"), (_cut, "truncated")])
@pytest.mark.parametrize("method", FORMS)
def test_a_damaged_checkpoint_is_refused_at_the_start(
    folder: Path, tmp_path: Path, method: str, damage: Callable[[Path], None], message: str
) -> None:
    for file in (folder / method).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    damage(tmp_path / "model.safetensors")
    with pytest.raises(DrafterRefused, match=message) as refused:
        build_drafter(f"{method}={tmp_path}", _setup(folder))
    assert str(tmp_path / "model.safetensors") in str(refused.value)


@pytest.mark.parametrize("method", FORMS)
def test_a_checkpoint_of_another_target_is_refused(folder: Path, method: str) -> None:
    if not (folder / "other").is_dir():
        save_tiny(folder / "other", layers=LAYERS, hidden=64, seed=1)
    with pytest.raises(DrafterRefused, match=r"embedding_hash is .*, of target other"):
        build_drafter(f"{method}={folder / method}", _setup(folder, "other"))


@pytest.mark.parametrize("method", ["eagle", "medusa"])
def test_without_a_path_there_must_be_a_checkpoint(
    folder: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specs, "CHECKPOINTS", (tmp_path,))
    with pytest.raises(DrafterRefused, match=f"{method} needs a path"):
        build_drafter(method, _setup(folder))
    with pytest.raises(DrafterRefused, match=f"{method} needs a path"):
        check_path(method, "default")
    with pytest.raises(DrafterRefused, match="is no directory"):
        build_drafter(f"{method}={tmp_path / 'none'}", _setup(folder))
