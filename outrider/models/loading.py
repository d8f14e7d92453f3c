"""From a model spec to a model that runs."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from outrider.models.auto_dtype import FLOAT32, choose, stored_choice
from outrider.models.causal_lm import CausalLM
from outrider.models.convert import quiet
from outrider.models.hub import DEFAULT, DEFAULT_NAME, ModelSpecError, Progress, resolve, silent
from outrider.models.tokenizer import load_tokenizer, tokenizer_fingerprint

__all__ = [
    "load_model",
    "load_pretrained",
    "load_tokenizer",
    "settled_dtype",
    "tokenizer_fingerprint",
]

logger = logging.getLogger(__name__)

AUTO, INT8 = "auto", "int8"
KV_BYTES = 1 << 30
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def parse_device(device: str) -> torch.device:
    """The device of a setting such as "cpu" or "cuda:1".

    Raises:
        ModelSpecError: it is not one, or this machine does not have it.
    """
    try:
        parsed = torch.device(device)
    except RuntimeError:
        raise ModelSpecError(f"device {device!r}: expected cpu or cuda:N") from None
    if parsed.type not in ("cpu", "cuda"):
        raise ModelSpecError(f"device {device!r}: expected cpu or cuda:N")
    if parsed.type == "cuda" and (parsed.index or 0) >= torch.cuda.device_count():
        raise ModelSpecError(
            f"device {device!r}: this machine has {torch.cuda.device_count()} CUDA devices"
        )
    return parsed


def parse_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype in which weights are loaded; "auto" is bfloat16 beyond the CPU, where
    `outrider.models.auto_dtype` decides, and int8 is rounded from float32.

    Raises:
        ModelSpecError: the name is unknown.
    """
    if dtype == AUTO:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype == INT8:
        if device.type != "cpu":
            raise ModelSpecError("dtype 'int8': its products are for processors, use bfloat16")
        return torch.float32
    if dtype not in _DTYPES:
        known = ", ".join((*_DTYPES, INT8))
        raise ModelSpecError(f"dtype {dtype!r}: expected one of auto, {known}")
    return _DTYPES[dtype]


def load_pretrained(place: Path | str, dtype: torch.dtype) -> PreTrainedModel:
    """The plain transformers model in a directory or behind a hub id.

    Raises:
        ModelSpecError: it cannot be found, fetched or read.
    """
    try:
        with quiet():
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(place, dtype=dtype)
    except (OSError, ValueError) as error:
        what = (
            "cannot be read"
            if isinstance(place, Path)
            else "is no directory or file, and no hub gave it"
        )
        raise ModelSpecError(f"model {str(place)!r}: {what}: {error}") from error
    return model


def settled_dtype(dtype: str, spec: str, device: str) -> str:
    """The dtype of a model that goes along with the one at `spec` and is not measured itself.

    "auto" on a CPU becomes what was stored for that model, or else float32; all others stay.

    Raises:
        ModelSpecError: naming the setting and its value.
    """
    if dtype != AUTO or parse_device(device).type != "cpu":
        return dtype
    choice = stored_choice(resolve(spec))
    return FLOAT32 if choice is None else choice.dtype


def load_model(
    spec: str,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    threads: int | None = None,
    kv_bytes: int = KV_BYTES,
    progress: Progress = silent,
) -> CausalLM:
    """Loads a model for inference.

    Args:
        spec: "default", a Hugging Face directory, a GGUF file, or a hub id.
        dtype: float32, bfloat16, float16, int8 (see `CausalLM.from_model`), or auto:
            on a CPU bfloat16 where it is exact and not slower, see `outrider.models.auto_dtype`.
        device: cpu or cuda:N.
        threads: of torch, for this whole process; as torch has them where None.
        kv_bytes: ceiling of the memory of keys and values.
        progress: told what is fetched or converted.

    Raises:
        ModelSpecError: naming the setting and its value.
        UnsupportedModelError: the model cannot run packed.
    """
    where = parse_device(device)
    parse_dtype(dtype, where)  # refuses, before anything is fetched
    if threads is not None:
        if threads < 1:
            raise ModelSpecError(f"threads: {threads}, limit 1 or more")
        torch.set_num_threads(threads)
    place = resolve(spec, progress)
    fingerprint = tokenizer_fingerprint(load_tokenizer(str(place)))
    name = DEFAULT_NAME if spec == DEFAULT else place.name if isinstance(place, Path) else place

    def load(dtype: str) -> CausalLM:
        model = load_pretrained(place, parse_dtype(dtype, where))
        torch.nn.Module.to(model, where)
        return CausalLM.from_model(
            model,
            name=name,
            tokenizer_fingerprint=fingerprint,
            quantization=INT8 if dtype == INT8 else "none",
            kv_bytes=kv_bytes,
        )

    measured = dtype == AUTO and where.type == "cpu"
    loaded = choose(place, load) if measured else load(dtype)
    numerics, decoder = loaded.numerics, loaded.decoder.name
    logger.info("loaded %s: %s decoder, %s, %s", name, decoder, numerics.dtype, numerics.kernels)
    return loaded
