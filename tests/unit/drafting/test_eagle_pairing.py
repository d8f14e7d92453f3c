"""A head whose prediction is known finds out features that stand at the wrong position."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draft_service.drafters.eagle import EagleDrafter
from outrider.core.round import Budget, Features, SamplingParams
from outrider.models.heads.config import EagleConfig
from outrider.models.heads.eagle import EagleHead
from outrider.models.heads.eagle_torch import TorchEagle
from outrider.models.heads.start import start_eagle
from tests.tiny import tiny_model

VOCAB, HIDDEN = 32, 64
TARGET = tiny_model(vocab=VOCAB, layers=6, hidden=HIDDEN)


def _echo() -> EagleHead:
    """A head that repeats the token at its feature's own position: the tap is the embedding."""
    config = EagleConfig.for_target(TARGET.config, VOCAB, taps=(0,))
    head = start_eagle(config, TARGET, torch.arange(VOCAB))
    with torch.no_grad():
        head.fc.weight.copy_(torch.eye(HIDDEN))
        head.layers[0].self_attn.o_proj.weight.zero_()
        head.layers[0].mlp.down_proj.weight.zero_()
        head.norm.weight.fill_(1.0)
        head.lm_head.weight.copy_(torch.nn.functional.normalize(head.embed_tokens.weight, dim=1))
    return head


@pytest.mark.parametrize(("shift", "agreement"), [(0, 1.0), (1, 0.0), (-1, 0.0)])
def test_a_feature_that_is_one_position_off_predicts_the_wrong_token(
    shift: int, agreement: float
) -> None:
    head = _echo()
    drafter = EagleDrafter(TorchEagle(head), head.config)
    period = [3, 11]
    text = period * 6
    states = head.embed_tokens.weight[torch.tensor(text)].detach().bfloat16()
    right = []
    for length in range(4, 10):
        session = drafter.open(text[:length], SamplingParams(temperature=0.0))
        given = states.roll(shift, dims=0)[: length - 1].contiguous()
        data = given.view(torch.uint8).numpy().tobytes()
        drafter.observe(session, [], [Features(0, length - 1, HIDDEN, data)])
        tree = drafter.propose([(session, Budget(1, 1))])[0].tree
        right.append(tree.tokens[1:] == (text[length],))
    assert np.mean(right) == agreement
