"""Which tokens a drafter can propose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.training.material import record
from training.files import TrainingError
from training.vocabulary import DraftVocabulary, choose_vocabulary, coverage

TEXTS = [record([50, 51, *[900] * 5000, *[901] * 30]), record([52, 53, *[902] * 4000])]


def test_frequent_special_and_likely_tokens_are_kept() -> None:
    chosen = choose_vocabulary(TEXTS, 100, 1000, special=[999])
    assert len(chosen.ids) == 100
    assert {900, 902, 999} <= set(chosen.ids.tolist())
    assert 901 not in chosen.ids  # 30 times in a small text say less than a low number
    assert {0, 1, 2} <= set(chosen.ids.tolist())


@pytest.mark.parametrize(("responses", "first"), [(250, 800), (150, 700)])
def test_prompts_count_a_fifth(responses: int, first: int) -> None:
    texts = [record([700] * 1000 + [1], 1000), record([800] * responses + [1], 0)]
    assert choose_vocabulary(texts, 1, 1000, []).ids.tolist() == [first]


def test_maps_lead_there_and_back() -> None:
    chosen = DraftVocabulary(np.array([2, 5, 9]), 12)
    assert (np.arange(3) + chosen.d2t).tolist() == [2, 5, 9]
    assert np.flatnonzero(chosen.t2d).tolist() == [2, 5, 9]
    assert chosen.row_of[[2, 5, 9, 3]].tolist() == [0, 1, 2, -1]


def test_coverage_is_the_share_of_response_tokens_by_source() -> None:
    texts = [record([9, 9, 2, 5, 7, 2]), record([1, 1, 7, 7])]
    found = coverage(texts, DraftVocabulary(np.array([2, 5]), 12))
    assert found == {"all": 3 / 6, "test": 3 / 6}


def test_it_is_stored_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    chosen = DraftVocabulary(np.array([2, 5, 9]), 12)
    chosen.save(path)
    assert DraftVocabulary.load(path).ids.tolist() == [2, 5, 9]
    DraftVocabulary(np.array([2, 9, 5]), 12).save(path)
    with pytest.raises(TrainingError, match="ids must ascend within 0 to 11"):
        DraftVocabulary.load(path)


def test_too_few_or_too_many_rows_are_refused() -> None:
    for rows in (0, 13):
        with pytest.raises(TrainingError, match=f"draft_vocab_size: {rows}, limit 1 special"):
            choose_vocabulary([], rows, 12, [3])
