"""Checkpoints as other software reads them: whole, and in formats that are not ours."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import PreTrainedModel

from outrider.models.convert import open_to_readers, quiet
from outrider.models.heads.checkpoint import CONFIG, method_of
from outrider.models.heads.draft_model_files import load_draft_model
from outrider.models.heads.eagle_files import load_eagle, save_speculators
from outrider.models.heads.layers import layers_of
from outrider.models.heads.medusa_files import load_medusa, save_open_medusa
from training.files import TrainingError
from training.target import TrainingTarget


def export(checkpoint: Path, target: TrainingTarget, out: Path) -> str:
    """Writes the open form of a checkpoint into `out`; returns its method.

    A draft model becomes a Hugging Face directory with the whole vocabulary, as transformers'
    assisted generation wants it; an EAGLE head takes `speculators`' layout, Medusa heads that of
    FasterDecoding/Medusa.

    Raises:
        CheckpointError: the checkpoint is damaged or another target's.
        TrainingError: `out` has files.
    """
    if out.exists() and any(out.iterdir()):
        raise TrainingError(f"out: {out} has files, limit an empty folder")
    method = method_of(checkpoint)
    if method == "eagle":
        save_speculators(out, load_eagle(checkpoint, target.parts), target.parts)
    elif method == "medusa":
        save_open_medusa(out, load_medusa(checkpoint, target.parts), target.parts)
    else:
        _export_draft_model(checkpoint, target, out)
    return method


def best_of(run: Path) -> Path:
    """The checkpoint of a run's folder, or the folder itself where it is a checkpoint.

    Raises:
        TrainingError: it is neither.
    """
    if (run / CONFIG).exists():
        return run
    try:
        name = json.loads((run / "history.json").read_text())["best"]
    except (OSError, ValueError, KeyError) as error:
        raise TrainingError(f"{run}: is neither a checkpoint nor a run: {error}") from error
    return run / str(name)


def _export_draft_model(checkpoint: Path, target: TrainingTarget, out: Path) -> None:
    """The trained layers between embedding and head of the whole vocabulary, in bfloat16."""
    loaded = load_draft_model(checkpoint, target.model, target.parts)
    whole: PreTrainedModel = layers_of(target.model, loaded.layers)
    whole.base_model.load_state_dict(loaded.model.base_model.state_dict())
    whole.generation_config = target.model.generation_config
    with quiet():
        whole.to(torch.bfloat16).save_pretrained(out)  # type: ignore[arg-type]
    open_to_readers(out)
    target.tokenizer.save_pretrained(out)
