"""Which tokens a drafter can propose: the head's rows are most of what a draft step costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from outrider.files import replace_json
from training.files import TrainingError, read_json
from training.records import Ids, Record

PROMPT_SHARE = 0.2
PRIOR_TOKENS = 1e5
PRIOR_OFFSET = 500


@dataclass(frozen=True, eq=False)
class DraftVocabulary:
    """Target ids [rows] ascending; row j of a draft head stands for ids[j]."""

    ids: Ids
    target_size: int

    @property
    def d2t(self) -> Ids:
        """Offsets [rows]: target id = j + d2t[j]."""
        return self.ids - np.arange(len(self.ids))

    @property
    def t2d(self) -> npt.NDArray[np.bool_]:
        """Mask [target vocabulary] of the tokens that have a row."""
        mask = np.zeros(self.target_size, np.bool_)
        mask[self.ids] = True
        return mask

    @property
    def row_of(self) -> Ids:
        """The row of each target id [target vocabulary]; -1 where it has none."""
        rows = np.full(self.target_size, -1, np.int64)
        rows[self.ids] = np.arange(len(self.ids))
        return rows

    def save(self, path: Path) -> None:
        """As JSON."""
        replace_json(path, {"target_size": self.target_size, "ids": self.ids.tolist()})

    @classmethod
    def load(cls, path: Path) -> DraftVocabulary:
        """What `save` wrote.

        Raises:
            TrainingError: it is no draft vocabulary; naming the field.
        """
        content = read_json(path)
        ids, size = content.get("ids"), content.get("target_size")
        if not isinstance(size, int) or not isinstance(ids, list) or not ids:
            raise TrainingError(f"{path}: target_size and ids are needed")
        rows = np.array(ids, np.int64)
        if (np.diff(rows) <= 0).any() or rows[0] < 0 or rows[-1] >= size:
            raise TrainingError(f"{path}: ids must ascend within 0 to {size - 1}")
        return cls(rows, size)


def choose_vocabulary(
    records: Iterable[Record], rows: int, target_size: int, special: Sequence[int]
) -> DraftVocabulary:
    """The `rows` tokens of greatest score, `special` ones in any case.

    score = count in responses + 0.2 * count in prompts + 1e5 * normalised 1 / (id + 500)

    The last term stands for text that was not counted: tokenisers number tokens in the order in
    which they were merged, so a low id is a frequent one.

    Args:
        records: training side only.
        rows: of the draft head.
        target_size: of the target's vocabulary.
        special: ids that end or structure texts.
    """
    if not len(set(special)) <= rows <= target_size:
        raise TrainingError(
            f"draft_vocab_size: {rows}, limit {len(set(special))} special tokens to {target_size}"
        )
    scores = PRIOR_TOKENS * _prior(target_size)
    for record in records:
        prompt = record.ids[: record.prompt_length]
        scores += np.bincount(record.response, minlength=target_size)
        scores += PROMPT_SHARE * np.bincount(prompt, minlength=target_size)
    scores[list(special)] = np.inf
    ids = np.argsort(-scores, kind="stable")[:rows]
    return DraftVocabulary(np.sort(ids), target_size)


def coverage(records: Iterable[Record], vocabulary: DraftVocabulary) -> Mapping[str, float]:
    """Share of response tokens that have a row, under "all" and under each prompt source."""
    mask = vocabulary.t2d
    known: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for record in records:
        covered = int(mask[record.response].sum())
        for name in ("all", record.source):
            known[name] += covered
            total[name] += len(record.response)
    return {name: known[name] / total[name] for name in total if total[name]}


def _prior(size: int) -> npt.NDArray[np.float64]:
    weights = 1 / (np.arange(size) + PRIOR_OFFSET)
    return np.asarray(weights / weights.sum())
