"""The one row that a model is tried with compiles all kernels: no request waits for them."""

from __future__ import annotations

import logging
import subprocess
import sys

import numba
import pytest

from outrider.models.lean import threads

COUNTING = """
import sys, torch
from numba.core.dispatcher import Dispatcher
from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.linear import packing_available
from tests.tiny import FINGERPRINT, tiny_model

torch.set_num_threads(1)

def compiled():
    from outrider.models.lean import attention, rows
    kernels = [k for module in (attention, rows) for k in vars(module).values()
               if isinstance(k, Dispatcher)]
    assert len(kernels) > 5
    return sum(len(kernel.signatures) for kernel in kernels)

for dtype, quantization in ((torch.float32, "none"), (torch.bfloat16, "none"),
                            (torch.float32, "int8")):
    if not packing_available(dtype, torch.device("cpu")):
        continue
    counts = []
    for family in ("llama", "mistral", "qwen2", "qwen3"):
        lm = CausalLM.from_model(tiny_model(family, hidden=64).to(dtype), name="tiny",
            tokenizer_fingerprint=FINGERPRINT, quantization=quantization, decoder="lean")
        counts.append(compiled())
        first, second = lm.new_cache(), lm.new_cache()
        lm.forward([Segment.chain(first, [1] * 70)])
        tree = Segment(first, [1, 2, 3], [-1, 0, 0])
        lm.logits(lm.forward([tree, Segment.chain(second, [5, 6])], taps=(1,)).states[[1, 2]])
        counts.append(compiled())
    print(*counts)
assert torch.get_num_threads() == 1, "the kernels' threads have changed torch's"
"""


def test_chains_trees_and_windows_compile_nothing_that_one_row_did_not() -> None:
    out = subprocess.run(
        [sys.executable, "-c", COUNTING], capture_output=True, text=True, check=True
    )
    lines = [[int(count) for count in line.split()] for line in out.stdout.splitlines()]
    assert lines
    for counts in lines:
        assert len(set(counts)) == 1
    # The counts can tell: another dtype takes other machine code.
    assert len({counts[0] for counts in lines}) == len(lines)


def test_the_fallback_layer_gets_one_thread_and_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(threads.numba.config, "NUMBA_NUM_THREADS", 2)
    taken: list[int] = []
    monkeypatch.setattr(threads.numba, "set_num_threads", taken.append)
    for layer, last in (("omp", 2), ("workqueue", 1)):
        threads._layer.cache_clear()
        monkeypatch.setattr(numba, "threading_layer", lambda layer=layer: layer)
        with caplog.at_level(logging.WARNING):
            threads.take_threads()
            threads.take_threads()
        assert taken[-1] == last
    threads._layer.cache_clear()
    assert caplog.text.count("libgomp1") == 1
