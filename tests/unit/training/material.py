"""A tiny target with texts of its own, made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from transformers import PreTrainedModel

from outrider.models.causal_lm import CausalLM
from outrider.models.heads.target import TargetParts, parts_of
from outrider.models.numerics import weights_hash
from tests.tiny import FINGERPRINT, tiny_model
from training.batches import Dataset
from training.draft_model import DraftModelLearner
from training.facts import Target
from training.features import FeaturePlan, build_features
from training.generate import Recipe, generate
from training.head import Head
from training.prefill import Prefill
from training.prompts import EncodedPrompt
from training.records import Record, digest_of, split
from training.trainer import Material
from training.vocabulary import DraftVocabulary, choose_vocabulary

VOCABULARY = 64
CPU = torch.device("cpu")


def encoded(ids: Sequence[int], source: str = "test") -> EncodedPrompt:
    digest = digest_of(ids)
    return EncodedPrompt(tuple(ids), source, digest, digest)


def random_prompts(count: int, seed: int = 0) -> list[EncodedPrompt]:
    rng = np.random.default_rng(seed)
    return [encoded(rng.integers(1, VOCABULARY - 1, 6).tolist()) for _ in range(count)]


def record(ids: Sequence[int], prompt_length: int = 2, mode: str = "greedy") -> Record:
    digest = digest_of(ids)
    return Record(np.array(ids), prompt_length, mode, "test", digest, digest, "eos")


def engine(model: PreTrainedModel) -> CausalLM:
    return CausalLM.from_model(
        model, name="tiny", tokenizer_fingerprint=FINGERPRINT, kv_bytes=32 << 20
    )


@dataclass(frozen=True)
class World:
    """A target, what it wrote, and its features."""

    model: PreTrainedModel
    lm: CausalLM
    facts: Target
    parts: TargetParts
    records: list[Record]
    material: Material

    def learner(self, dropout: float = 0.1) -> DraftModelLearner:
        vocabulary = self.material.vocabulary
        return DraftModelLearner(self.model, (0, 2), vocabulary, self.parts, dropout)


@cache
def world(family: str = "llama", rows: int = 40) -> World:
    """Three layers, 60 texts; about 5 % of them are held out."""
    model = tiny_model(family, VOCABULARY, layers=3, hidden=32, seed=1)
    model.requires_grad_(False)
    facts = Target.of(model, "tiny", weights_hash(model))
    lm = engine(tiny_model(family, VOCABULARY, layers=3, hidden=32, seed=1))
    recipe = Recipe(slots=16, max_tokens=24)
    records = list(generate(lm, random_prompts(60), recipe, frozenset(lm.eos_ids)))
    records = [r for r in records if len(r.response) > 2]
    plan = FeaturePlan.of(facts, (1,))
    features = build_features(Prefill(model), records, Path(mkdtemp()), plan)
    train, held_out = split(records)
    vocabulary: DraftVocabulary = choose_vocabulary(train, rows, VOCABULARY, [VOCABULARY - 1])
    ids = torch.from_numpy(vocabulary.ids)
    sides = [Dataset(side, features, (), 64, CPU) for side in (train, held_out)]
    material = Material(*sides, vocabulary, Head.of(model, ids), Head.of(model))
    return World(model, lm, facts, parts_of(model, "tiny", FINGERPRINT), records, material)
