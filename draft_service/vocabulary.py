"""What the target's token ids mean, read from its files without loading its weights."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig

from draft_service.drafters.setup import Vocabulary
from outrider.models.hub import DEFAULT, DEFAULT_NAME, ModelSpecError, resolve
from outrider.models.loading import load_tokenizer, tokenizer_fingerprint


def vocabulary_of(spec: str) -> Vocabulary:
    """Vocabulary and context length of the target `spec`; the default target is fetched where it is
    missing.

    Raises:
        ModelSpecError: the target cannot be had, or has no readable configuration.
    """
    place = resolve(spec)
    fingerprint = tokenizer_fingerprint(load_tokenizer(str(place)))
    try:
        text = AutoConfig.from_pretrained(place).get_text_config()
    except (OSError, ValueError) as error:
        raise ModelSpecError(
            f"model {spec!r}: its configuration cannot be read: {error}"
        ) from error
    name = DEFAULT_NAME if spec == DEFAULT else place.name if isinstance(place, Path) else place
    return Vocabulary(name, fingerprint, text.vocab_size, text.max_position_embeddings)
