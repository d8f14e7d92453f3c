"""Writes our own prompts as a file for `outrider bench`, in Spec-Bench's format.

python -m benchmarks.prompts build/prompts.jsonl [--each 3]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests import prompts as own


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
