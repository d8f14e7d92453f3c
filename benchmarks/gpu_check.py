"""What holds on this machine's GPU, and how fast it is: nothing is read or fetched.

    benchmarks/gpu_check.sh [--out FILE] [--device cpu --tiny]

Models with random weights are made on the device. In float32 packed forwards of chains and trees
must equal transformers' own forward of each path; greedy texts with drafts are compared with plain
ones, and where they part the tie must be near, since a GPU adds in another order for another number
of rows. Then, for a 1B and an 8B shape in bfloat16: milliseconds of a pass by rows and context,
and tokens a second of transformers, of ours, and of ours with prompt lookup. Texts of random
weights repeat themselves, so prompt lookup gains more here than on real ones.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from benchmarks import in_process, path_check
from benchmarks.gpu_tables import tables
from benchmarks.in_process import Text
from benchmarks.random_models import CHECKED, LARGE, TINY, Shape, own_model, transformers_model
from outrider.cli import provenance
from outrider.models.causal_lm import CausalLM, Segment

RESULT = Path(__file__).parent / "results" / "gpu.json"
TOLERANCE = 1e-4  # of a logit in float32
NEAR = {torch.float32: 1e-3, torch.bfloat16: 0.15}  # gaps of the two best, in deviations
DEPTH, STREAMS, PROMPT = 4, 8, 64
ROWS = (1, 2, 4, 8, 16, 32, 64)
SPARE_BYTES = 3 << 30  # for activations, the logits of a pass, and the allocator's own
NO_GPU = 2


def main() -> int:
    """Checks, measures, prints, stores; 1 where something does not hold, 2 without a GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--seconds", type=float, default=400, help="no shape begins after them")
    given = parser.parse_args()
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        say("gpu_check: there is no CUDA device here, so nothing was checked")
        return NO_GPU
    started = time.perf_counter()
    exact = exactness(device, cases=6 if given.tiny else 60)
    shapes: dict[str, Any] = {}
    for shape in TINY if given.tiny else LARGE:
        reason = why_skipped(shape, device, given.seconds - (time.perf_counter() - started))
        shapes[shape.name] = {"skipped": reason} if reason else speeds(shape, device, given.tiny)
    held = all(row["held"] for row in exact) and all(s.get("held", True) for s in shapes.values())
    found: dict[str, Any] = {
        "run": {
            "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
            "tiny": given.tiny,
            **provenance.facts(),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - started, 1),
        },
        "exactness": exact,
        "shapes": shapes,
        "held": held,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for line in tables(found):
        say(line)
    say(f"stored in {given.out} after {found['run']['seconds']} s")
    return int(not held)


def say(line: str) -> None:
    """To people."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def exactness(device: torch.device, cases: int) -> list[dict[str, Any]]:
    """Forwards against transformers' in float32; texts with drafts against plain ones."""
    rows: list[dict[str, Any]] = []
    for shape in CHECKED:
        reference = transformers_model(shape, torch.float32, device)
        own = own_model(transformers_model(shape, torch.float32, device), shape, 8192)
        error = path_check.greatest_error(reference, own, cases)
        name = f"{shape.name}, float32, forwards"
        row = {"name": name, "greatest_error": error, "limit": TOLERANCE}
        rows.append({**row, "held": error < TOLERANCE})
        for dtype in NEAR:
            if dtype != torch.float32:
                own = own_model(transformers_model(shape, dtype, device), shape, 8192)
            rows += _texts(own, shape, dtype, device)
    return rows


def _texts(
    own: CausalLM, shape: Shape, dtype: torch.dtype, device: torch.device
) -> list[dict[str, Any]]:
    prompts, tokens = prompts_of(shape, STREAMS), 48
    plain = in_process.run(own, prompts, tokens, [in_process.plain] * STREAMS)
    rows = []
    for kind in ("chains", "trees"):
        drafts = [
            in_process.knowing(
                [*prompt, *text.tokens], DEPTH, shape.vocab, branches=kind == "trees"
            )
            for prompt, text in zip(prompts, plain, strict=True)
        ]
        drafted = in_process.run(own, prompts, tokens, drafts)
        name = f"{shape.name}, {str(dtype).removeprefix('torch.')}, texts by {kind}"
        rows.append({"name": name, **path_check.parted(own, prompts, plain, drafted, NEAR[dtype])})
    return rows


def why_skipped(shape: Shape, device: torch.device, seconds_left: float) -> str | None:
    """What keeps a shape from being measured; None where nothing does."""
    if seconds_left <= 0:
        return "no time was left"
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        needed = shape.parameters * 2 + shape.kv_bytes(_room(False), torch.bfloat16) + SPARE_BYTES
        if free < needed:
            return f"{free / 2**30:.0f} GiB are free, {needed / 2**30:.0f} are needed"
    return None


def speeds(shape: Shape, device: torch.device, tiny: bool) -> dict[str, Any]:
    """Passes by rows and context, and rates at 1 and 8 streams, in bfloat16."""
    dtype, tokens, turns = torch.bfloat16, 16 if tiny else 96, 1 if tiny else 3
    prompts = prompts_of(shape, STREAMS)
    model = transformers_model(shape, dtype, device)
    rates: dict[str, dict[str, float]] = {"transformers": {}, "plain": {}, "ngram": {}}
    for streams in (1, STREAMS):
        measured = [transformers_rate(model, prompts[:streams], tokens) for _ in range(turns)]
        rates["transformers"][str(streams)] = statistics.median(measured)
    own = own_model(model, shape, _room(tiny))
    compared: dict[str, Any] = {}
    for streams in (1, STREAMS):
        some = prompts[:streams]
        both = _own_rates(own, some, tokens, turns)
        for name, texts in both.items():
            rates[name][str(streams)] = statistics.median(map(in_process.rate, texts))
        compared[str(streams)] = path_check.parted(
            own, some, both["plain"][0], both["ngram"][0], NEAR[dtype]
        )
    found = {
        "decoder": own.decoder.name,
        "parameters": shape.parameters,
        "pass_ms": profile(own, device, tiny),
        "tokens_per_second": rates,
        "texts": compared,
        "held": all(row["held"] for row in compared.values()),
    }
    del own, model
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return found


def _own_rates(
    own: CausalLM, prompts: Sequence[Sequence[int]], tokens: int, turns: int
) -> dict[str, list[list[Text]]]:
    """Texts of every turn, plain and with drafts in turn."""
    found: dict[str, list[list[Text]]] = {"plain": [], "ngram": []}
    for _ in range(turns):
        for name, texts in found.items():
            drafts: list[in_process.Propose] = [
                in_process.plain if name == "plain" else in_process.ngrams(prompt, DEPTH)
                for prompt in prompts
            ]
            texts.append(in_process.run(own, prompts, tokens, drafts))
    return found


@torch.inference_mode()
def transformers_rate(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], tokens: int
) -> float:
    """Tokens a second behind the first of transformers' own greedy decoding, one batch."""
    ids = torch.tensor(prompts, device=model.device)
    seconds = []
    for count in (1, tokens, 1, tokens):  # the first turn warms up
        started = time.perf_counter()
        out = model.generate(  # type: ignore[operator]
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count
        )
        out.cpu()
        seconds.append(time.perf_counter() - started)
    return len(prompts) * (tokens - 1) / (seconds[3] - seconds[2])


def profile(own: CausalLM, device: torch.device, tiny: bool) -> dict[str, dict[str, float]]:
    """Median milliseconds of a pass with its head: by context, then by rows."""
    found: dict[str, dict[str, float]] = {}
    for context in _contexts(tiny):
        text, cache = [(7 * i + i * i) % own.vocab_size for i in range(context)], own.new_cache()
        for start in range(0, context, 64):
            own.forward([Segment.chain(cache, text[start : start + 64])])
        found[str(context)] = {}
        for rows in ROWS:
            seconds = []
            for _ in range(3 if tiny else 8):
                started = time.perf_counter()
                own.logits(own.forward([Segment.chain(cache, text[:rows])]).states)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                seconds.append(time.perf_counter() - started)
                cache.keep(context)
            found[str(context)][str(rows)] = statistics.median(seconds[1:]) * 1000
    return found


def _contexts(tiny: bool) -> tuple[int, ...]:
    return (64, 100) if tiny else (256, 1024, 4096)


def _room(tiny: bool) -> int:
    """Tokens of keys and values that the measurements hold at once, with whole blocks to spare."""
    return 2 * (_contexts(tiny)[-1] + 128) + STREAMS * 512


def prompts_of(shape: Shape, count: int) -> list[list[int]]:
    """Prompts of one length that differ from each other and repeat no n-gram of their own."""
    return [[(31 * i + 97 * n + i * i) % shape.vocab for i in range(PROMPT)] for n in range(count)]


if __name__ == "__main__":
    sys.exit(main())
