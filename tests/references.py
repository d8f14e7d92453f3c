"""transformers' texts, kept from run to run: they depend on the prompt and the releases alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from tests.greedy import TOKENS, Reference


class KeptReferences:
    """Greedy texts by transformers, each computed once and appended to a file of JSON lines."""

    def __init__(self, reference: Reference, file: Path) -> None:
        self._reference = reference
        self._file = file
        self._known: dict[str, list[int]] = {}
        if file.exists():
            rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
            self._known = {row["key"]: row["text"] for row in rows}

    def generate(self, prompt: Sequence[int]) -> list[int]:
        """The generated ids, EOS included."""
        what = [transformers.__version__, torch.__version__, TOKENS, list(prompt)]
        key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
        if key not in self._known:
            self._known[key] = self._reference.generate(prompt)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "text": self._known[key]}) + "\n")
        return self._known[key]
