"""Tokenizers, and the fingerprint that tells whether two of them give the same ids the same
meaning.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from outrider.models.hub import ModelSpecError, Progress, resolve, silent


def load_tokenizer(spec: str, progress: Progress = silent) -> PreTrainedTokenizerBase:
    """The tokenizer of a model spec, with its chat template.

    Raises:
        ModelSpecError: there is none, or it cannot be fetched.
    """
    place = resolve(spec, progress)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError) as error:
        raise ModelSpecError(f"tokenizer {spec!r}: cannot be loaded: {error}") from error
    # Without files transformers makes an empty one of the family, which gives no ids at all.
    if len(tokenizer.get_vocab()) <= len(tokenizer.added_tokens_decoder):
        raise ModelSpecError(f"tokenizer {spec!r}: has no vocabulary, its files are missing")
    return tokenizer


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 over vocabulary, merges, special and added tokens; not over padding or templates."""
    added = {
        str(number): [str(token), bool(token.special)]
        for number, token in sorted(tokenizer.added_tokens_decoder.items())
    }
    content: dict[str, Any] = {"added": added, "special": _special(tokenizer)}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        model = json.loads(backend.to_str())["model"]
        content["model"] = {key: model.get(key) for key in ("type", "vocab", "merges", "unk_token")}
    else:
        content["model"] = tokenizer.get_vocab()
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _special(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    return {
        "bos": tokenizer.bos_token_id,
        "eos": tokenizer.eos_token_id,
        "unk": tokenizer.unk_token_id,
    }
