"""From a corpus to what a trainer takes: split, draft vocabulary, features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from outrider.models.progress import Progress, silent
from training.batches import Dataset
from training.features import FeatureCache, FeaturePlan, build_features, missing_from
from training.files import TrainingError
from training.head import Head
from training.records import Record, split
from training.shards import read_corpus
from training.target import TrainingTarget
from training.trainer import Material
from training.vocabulary import DraftVocabulary, choose_vocabulary


@dataclass(frozen=True)
class Preparation:
    """What is taken of a corpus.

    Args:
        data: the corpus.
        features: folder of the feature cache; in the corpus where None.
        draft_vocab_size: rows of the draft head.
        longest: tokens of a sequence that are used.
        measured: held-out sequences that are measured, at most.
        feature_dtype: float16 or bfloat16.
    """

    data: Path
    features: Path | None = None
    draft_vocab_size: int = 16384
    longest: int = 768
    measured: int = 120
    feature_dtype: str = "float16"

    @property
    def feature_folder(self) -> Path:
        """Where features are."""
        return self.features or self.data / "features"


def records_of(data: Path) -> list[Record]:
    """All sequences of a corpus.

    Raises:
        TrainingError: it has none.
    """
    records = list(read_corpus(data))
    if not records:
        raise TrainingError(f"data: {data} has no sequences; `outrider train data` makes them")
    return records


def vocabulary_of(
    preparation: Preparation, target: TrainingTarget, records: Sequence[Record]
) -> DraftVocabulary:
    """The one stored with the corpus; counted and stored at the first call.

    Raises:
        TrainingError: its size is out of range, or the stored one is another target's.
    """
    size = target.facts.vocab_size
    path = preparation.data / f"vocabulary-{preparation.draft_vocab_size}.json"
    if path.exists():
        stored = DraftVocabulary.load(path)
        if stored.target_size != size:
            raise TrainingError(f"{path}: target_size is {stored.target_size}, wanted {size}")
        return stored
    train, _ = split(records)
    rows = preparation.draft_vocab_size
    chosen = choose_vocabulary(train, rows, size, target.special_ids())
    chosen.save(path)
    return chosen


def features_of(
    preparation: Preparation,
    target: TrainingTarget,
    records: Sequence[Record],
    taps: Sequence[int],
    progress: Progress = silent,
) -> FeatureCache:
    """Features of all `records`, those that are missing computed now."""
    folder = preparation.feature_folder
    wanted = FeaturePlan.of(target.facts, taps, preparation.feature_dtype)
    plan = wanted.or_stored(folder)
    if not missing_from(folder, plan, records):
        return FeatureCache(folder)
    return build_features(target.prefill(), records, folder, plan, progress)


def prepare(
    preparation: Preparation,
    target: TrainingTarget,
    vocabulary: DraftVocabulary,
    records: Sequence[Record],
    taps: tuple[int, ...],
    progress: Progress = silent,
) -> Material:
    """What a trainer takes.

    Raises:
        TrainingError: see what it calls.
    """
    train, held_out = split(records)
    held_out = sorted(held_out, key=lambda record: record.digest)[: preparation.measured]
    features = features_of(preparation, target, [*train, *held_out], taps, progress)
    where, longest = target.where, preparation.longest
    rows = torch.from_numpy(vocabulary.ids)
    return Material(
        train=Dataset(train, features, taps, longest, where),
        held_out=Dataset(held_out, features, taps, longest, where),
        vocabulary=vocabulary,
        teacher_head=Head.of(target.model, rows).to(where),
        target_head=Head.of(target.model).to(where),
    )
