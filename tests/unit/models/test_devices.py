"""The generic decoder keeps to its model's device and dtype.

PyTorch's meta device stands for a GPU: it computes shapes only, and refuses tensors of another
device just so.
"""

from __future__ import annotations

import pytest
import torch

from outrider.models import causal_lm
from outrider.models.cache import BLOCK
from outrider.models.causal_lm import CausalLM, Segment
from tests.tiny import FAMILIES, FINGERPRINT, tiny_model

META = torch.device("meta")


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.mark.parametrize("family", FAMILIES)
def test_chains_trees_and_compactions_stay_on_the_device(
    family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causal_lm, "weights_hash", lambda model: "no weights")
    model = tiny_model(family).to(device=META, dtype=dtype)
    lm = CausalLM.from_model(
        model, name="meta", tokenizer_fingerprint=FINGERPRINT, kv_bytes=1 << 20
    )
    assert lm.decoder.name == "generic"
    assert lm.decoder.cache_dtype == dtype
    caches = [lm.new_cache() for _ in range(3)]
    lm.forward([Segment.chain(cache, [1] * (BLOCK + 3)) for cache in caches])
    tree = [1, 2, 3, 4], [-1, 0, 0, 1]
    hidden = lm.forward(
        [
            Segment.chain(caches[0], [5]),
            Segment(caches[1], *tree, tree_exact=True),
            Segment(caches[2], *tree, tree_exact=False),
        ],
        taps=(0, lm.layers),
    )
    assert hidden.states.shape == (9, lm.hidden_size)
    assert hidden.states.device == META
    logits = lm.logits(hidden.states[[0, 8]])
    assert (logits.shape, logits.dtype, logits.device) == ((2, lm.vocab_size), torch.float32, META)
    caches[1].keep(BLOCK + 3, [BLOCK + 3, BLOCK + 5])
    assert caches[1].fork(BLOCK + 4).length == BLOCK + 4


def test_a_tensor_of_another_device_is_refused() -> None:
    """The negative control: the device that stands for a GPU can tell."""
    with pytest.raises(RuntimeError, match="device"):
        torch.zeros(3, device=META)[:2] + torch.zeros(2)
