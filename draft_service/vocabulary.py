"""What the target's token ids mean, read from its files without loading its weights."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig

from draft_service.drafters.setup import Vocabulary
from outrider.models.hub import resolve
from outrider.models.loading import load_tokenizer, tokenizer_fingerprint


def vocabulary_of(spec: str) -> Vocabulary:
    """Vocabulary and context length of the target `spec`.

    Raises:
        OSError, ValueError: the files cannot be had or read.
    """
    where = Path(resolve(spec))
    if where.is_file():
        config = AutoConfig.from_pretrained(where.parent, gguf_file=where.name)
    else:
        config = AutoConfig.from_pretrained(resolve(spec))
    text = config.get_text_config()
    fingerprint = tokenizer_fingerprint(load_tokenizer(spec))
    return Vocabulary(spec, fingerprint, text.vocab_size, text.max_position_embeddings)
