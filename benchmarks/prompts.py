"""Our own prompts: as token ids for the benchmarks, and as a file for `outrider bench`, in
Spec-Bench's format.

python -m benchmarks.prompts build/prompts.jsonl [--each 3]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from tests import prompts as own


def chat_ids(tokenizer: PreTrainedTokenizerBase, count: int) -> list[list[int]]:
    """Token ids of the first `count` prompts, the kinds in turn, in the model's chat format."""
    found = []
    for prompt in own.interleaved(count):
        ids: Any = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt.prompt}],
            add_generation_prompt=True,
            return_dict=False,
        )
        found.append(list(ids))
    return found


def running_text(tokenizer: PreTrainedTokenizerBase, tokens: int, start: int = 0) -> list[int]:
    """Exactly `tokens` ids of our own texts, chained as often as needed; another `start`, another
    text.
    """
    texts = [prompt.prompt for prompt in own.load()]
    ids: list[int] = []
    turn = start
    while len(ids) < tokens:
        ids += tokenizer.encode(texts[turn % len(texts)] + "\n", add_special_tokens=False)
        turn += 1
    return ids[:tokens]


def main() -> None:
    """Writes the first prompts of each kind, the kinds in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=3, help="prompts of each kind")
    given = parser.parse_args()
    chosen = own.interleaved(given.each * len(own.KINDS))
    lines = [
        json.dumps({"question_id": number, "category": prompt.kind, "turns": [prompt.prompt]})
        for number, prompt in enumerate(chosen, start=1)
    ]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
