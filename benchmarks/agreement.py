"""How often a trained drafter's likeliest token is the target's own, at every token of its texts.

    python -m benchmarks.agreement [--out FILE]

The target answers the fixed part of Spec-Bench greedily, loops cut; each shipped checkpoint is then
asked at every column, as in training. Services begin rounds behind what was refused, where drafting
is harder: what they see at their first positions is less (`benchmarks.acceptance`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from benchmarks import report
from benchmarks.report import Limit
from benchmarks.spec_bench import SUBSET
from outrider.cli.prompts import read_prompts
from outrider.drafting.specs import CHECKPOINTS, default_checkpoint
from outrider.models.heads.draft_model_files import load_draft_model
from outrider.models.heads.eagle_files import load_eagle
from outrider.models.heads.medusa_files import load_medusa
from outrider.models.hub import DEFAULT
from training.acceptance import Acceptance
from training.batches import Dataset
from training.draft_model import DraftModelLearner
from training.eagle import EagleLearner, EagleRecipe
from training.evaluate import evaluate
from training.features import FeatureCache, FeaturePlan, build_features
from training.generate import Recipe, generate
from training.head import Head
from training.learner import Learner
from training.medusa import MedusaLearner
from training.prompts import EncodedPrompt, encode_messages
from training.records import Record, digest_of
from training.target import TrainingTarget
from training.vocabulary import DraftVocabulary

LIMITS = {"eagle": 0.45, "draft_model": 0.40, "medusa": 0.35}
TOKENS = 128
LONGEST = 1024


def learner_of(method: str, folder: Path, target: TrainingTarget) -> tuple[Learner, Any]:
    """A shipped checkpoint as training has it, and its draft ids [rows]."""
    if method == "draft_model":
        draft = load_draft_model(folder, target.model, target.parts)
        vocabulary = DraftVocabulary(draft.ids.numpy(), target.facts.vocab_size)
        made = DraftModelLearner(target.model, draft.layers, vocabulary, target.parts)
        made.model = draft.model
        return made, draft.ids
    if method == "eagle":
        head = load_eagle(folder, target.parts)
        vocabulary = DraftVocabulary(head.draft_ids.numpy(), target.facts.vocab_size)
        eagle = EagleLearner(target.model, vocabulary, target.parts, EagleRecipe(head.config.taps))
        eagle.eagle = head
        return eagle, head.draft_ids
    heads = load_medusa(folder, target.parts)
    vocabulary = DraftVocabulary(heads.draft_ids.numpy(), target.facts.vocab_size)
    config = heads.config
    medusa = MedusaLearner(target.model, vocabulary, target.parts, config.heads, config.layers)
    medusa.medusa = heads
    return medusa, heads.draft_ids


def texts(target: TrainingTarget, tokens: int) -> list[Record]:
    """The target's answers, by task group."""
    prompts = []
    for prompt in read_prompts(SUBSET, chat=True):
        ids = encode_messages([("user", prompt.text)], target.tokenizer)
        digest = digest_of(ids)
        prompts.append(EncodedPrompt(tuple(ids), prompt.category, digest, digest))
    engine = target.engine(kv_rows=1 << 16)
    recipe = Recipe(greedy_share=1.0, max_tokens=tokens)
    return list(generate(engine, prompts, recipe, frozenset(engine.eos_ids)))


def measure(
    method: str,
    folder: Path,
    target: TrainingTarget,
    records: Sequence[Record],
    cache: FeatureCache,
) -> Acceptance:
    """What a checkpoint's drafts would have been worth."""
    learner, ids = learner_of(method, folder, target)
    data = Dataset(records, cache, learner.taps, LONGEST, torch.device("cpu"))
    row_of = DraftVocabulary(ids.numpy(), target.facts.vocab_size).row_of
    return evaluate(learner, data, row_of, Head.of(target.model), ids)


def table(found: dict[str, Acceptance]) -> Table:
    """Figures for people."""
    made = Table("drafter", "first", "given those before", "chain 4", "tree 12", "sum min(p, q)")
    for method, each in found.items():
        later = " ".join(f"{share:.2f}" for share in each.conditional[1:])
        figures = [f"{each.score:.2f}", f"{each.tree[12]:.2f}", f"{each.overlap[0]:.2f}"]
        made.add_row(method, f"{each.first:.3f}", later, *figures)
    return made


def main() -> int:
    """Measures, prints, stores; 1 where a limit is missed."""
    parser = report.parser(__doc__, "agreement")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    given = parser.parse_args()
    torch.set_num_threads(report.keep_to(given.cores))
    target = TrainingTarget(DEFAULT)
    folders = {m: f for m in LIMITS if (f := default_checkpoint(m, DEFAULT)) is not None}
    if not folders:
        parser.error(f"checkpoints: none in {', '.join(map(str, CHECKPOINTS))}")
    records = texts(target, given.tokens)
    taps = sorted({tap for method in folders for tap in _taps(method, folders[method], target)})
    with tempfile.TemporaryDirectory() as folder:
        plan = FeaturePlan.of(target.facts, taps)
        cache = build_features(target.prefill(), records, Path(folder), plan)
        found = {m: measure(m, f, target, records, cache) for m, f in folders.items()}
    report.console().print(table(found))
    limits = [
        Limit(f"{method}, first token", each.first, LIMITS[method], least=True)
        for method, each in found.items()
    ]
    run = {"tokens": given.tokens, "texts": len(records), "dtype": target.dtype}
    drafters = {method: each.to_json() for method, each in found.items()}
    return report.finish(given.out, run, {"drafters": drafters}, limits)


def _taps(method: str, folder: Path, target: TrainingTarget) -> tuple[int, ...]:
    return learner_of(method, folder, target)[0].taps


if __name__ == "__main__":
    sys.exit(main())
