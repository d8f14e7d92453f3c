"""The part of Spec-Bench that this project measures on: ten prompts of each task group.

    python -m benchmarks.spec_bench QUESTIONS [--out FILE]

QUESTIONS is Spec-Bench's data/spec_bench/question.jsonl (hemingkx/Spec-Bench, Apache-2.0).
Taken are first turns of at most 700 tokens in the default target's chat format, per group those
whose question_id has the least SHA-256; no drafter is trained on any prompt of the file. The
category of a line is its task group, `task` what Spec-Bench calls it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from outrider.models.hub import DEFAULT
from outrider.models.tokenizer import load_tokenizer

SUBSET = Path(__file__).parent / "data" / "spec_bench_60.jsonl"
EACH, LONGEST = 10, 700
GROUPS = ("translation", "summarization", "qa", "math_reasoning", "rag")
OTHER = "multi_turn"  # MT-bench's categories


def group_of(category: str) -> str:
    """The task group of a category."""
    return category if category in GROUPS else OTHER


def subset(
    questions: list[dict[str, Any]], tokenizer: PreTrainedTokenizerBase
) -> list[dict[str, Any]]:
    """The chosen lines, groups in turn, so that any number of first lines is a mixed set."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in sorted(questions, key=_order):
        group = group_of(line["category"])
        if len(found[group]) < EACH and _tokens(tokenizer, line["turns"][0]) <= LONGEST:
            found[group].append(
                {
                    "question_id": line["question_id"],
                    "category": group,
                    "task": line["category"],
                    "turns": line["turns"][:1],
                }
            )
    return [line for row in zip(*(found[g] for g in (*GROUPS, OTHER)), strict=True) for line in row]


def _order(line: dict[str, Any]) -> str:
    return hashlib.sha256(str(line["question_id"]).encode()).hexdigest()


def _tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    messages = [{"role": "user", "content": text}]
    ids: Any = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    return len(ids)


def main() -> None:
    """Writes the subset."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("questions", type=Path)
    parser.add_argument("--out", type=Path, default=SUBSET)
    given = parser.parse_args()
    lines = given.questions.read_text(encoding="utf-8").splitlines()
    chosen = subset([json.loads(line) for line in lines], load_tokenizer(DEFAULT))
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in chosen)
    given.out.write_text(text, encoding="utf-8")
    print(f"{len(chosen)} prompts in {given.out}")  # noqa: T201


if __name__ == "__main__":
    main()
