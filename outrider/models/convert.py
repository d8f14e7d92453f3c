"""GGUF files become Hugging Face directories: float32 safetensors, tokenizer, chat template."""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as hf_logging

from outrider.models.hub import ModelSpecError, Progress, silent


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers' own progress bars out of our logs."""
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def convert_gguf(gguf: Path, out: Path, *, name: str, progress: Progress = silent) -> None:
    """Writes a Hugging Face directory with the dequantised weights of a GGUF file.

    Args:
        gguf: the file.
        out: directory to fill.
        name: recorded as the model's name.
        progress: told of each step.

    Raises:
        ModelSpecError: transformers cannot read the file.
    """
    steps = ("reading", "writing weights", "writing tokenizer")
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    with quiet():
        progress(steps[0], 0, len(steps))
        try:
            with redirect_stderr(io.StringIO()):  # its bar for GGUF tensors heeds no setting
                loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
                tokenizer = AutoTokenizer.from_pretrained(**source)
        except (ValueError, KeyError, OSError, NotImplementedError) as error:
            raise ModelSpecError(
                f"model {str(gguf)!r}: transformers cannot read it: {error}"
            ) from error
        progress(steps[1], 1, len(steps))
        _plain(loaded, name).save_pretrained(out)
        progress(steps[2], 2, len(steps))
        tokenizer.save_pretrained(out)
        open_to_readers(out)
        progress(steps[2], len(steps), len(steps))


def open_to_readers(folder: Path) -> None:
    """Gives the weights of a saved model the mode of its other files, which follow the umask.

    safetensors writes files that only their owner may read.
    """
    mode = (folder / "config.json").stat().st_mode
    for weights in folder.glob("*.safetensors"):
        weights.chmod(stat.S_IMODE(mode))


def _plain(loaded: PreTrainedModel, name: str) -> PreTrainedModel:
    """A model that may be saved: one loaded from GGUF counts as quantised and refuses."""
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config._name_or_path = name
    plain = type(loaded)(config)
    plain.load_state_dict(loaded.state_dict())
    plain.generation_config = loaded.generation_config
    return plain
