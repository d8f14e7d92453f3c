"""/metrics of a running orchestrator: names that tools know, sums that are the requests' own."""

import asyncio
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from stack import Stack, deployment, fixed

from orchestrator.metrics import PHASES
from orchestrator.state import Reason

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(stack: Stack) -> Samples:
    assert stack.service.metrics_served is not None
    url = f"http://127.0.0.1:{stack.service.metrics_served.port}/metrics"

    def read() -> str:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return str(reply.read().decode())

    text = await asyncio.to_thread(read)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, tuple(sorted({"model_name": "tiny", **labels}.items()))), 0.0)


async def test_counters_under_both_names_are_the_sums_of_the_requests_reports() -> None:
    async with deployment(metrics_port=0) as stack:
        results = await asyncio.gather(
            *(
                stack.generate(f"{n} Once", 40, ignore_eos=True, speculative=fixed(k, "noisy"))
                for n, k in enumerate((4, 2, 3, 0))
            ),
            stack.generate("a a a", 40, stop=["a"], speculative=fixed(4, "same")),
        )
        samples = await scrape(stack)
    reports = [result.speculation for result in results]
    for prefix in ("vllm:", "outrider_"):
        base = f"{prefix}spec_decode_num_"
        assert value(samples, f"{base}drafts_total") == sum(r.rounds for r in reports) > 0
        assert value(samples, f"{base}draft_tokens_total") == sum(r.drafted for r in reports)
        assert value(samples, f"{base}accepted_tokens_total") == sum(r.accepted for r in reports)
        for position in range(4):
            name = f"{base}accepted_tokens_per_pos_total"
            assert value(samples, name, position=str(position)) == sum(
                r.accepted_per_position[position]
                for r in reports
                if position < len(r.accepted_per_position)
            )
    for position in range(4):
        name = "outrider_spec_decode_num_draft_tokens_per_pos_total"
        assert value(samples, name, position=str(position)) == sum(
            r.drafted_per_position[position]
            for r in reports
            if position < len(r.drafted_per_position)
        )
    assert value(samples, "outrider_generation_tokens_total") == sum(
        len(result.token_ids) for result in results
    )
    assert value(samples, "outrider_requests_running") == 0


async def test_decisions_depths_and_phases_are_told() -> None:
    async with deployment(metrics_port=0) as stack:
        await stack.generate("Once", 64, ignore_eos=True, speculative={"n_max": 6})
        samples = await scrape(stack)
    reasons = {reason.value for reason in Reason}
    found = {
        dict(labels)["reason"]: count
        for (name, labels), count in samples.items()
        if name == "outrider_controller_decisions_total"
    }
    assert found.keys() <= reasons
    assert sum(found.values()) > 0
    assert value(samples, "outrider_draft_depth_count") > 0
    for phase in PHASES:
        assert value(samples, "outrider_round_seconds_count", phase=phase) > 0, phase


async def test_without_a_port_nothing_is_served() -> None:
    async with deployment() as stack:
        assert stack.service.metrics_served is None


async def test_a_port_that_is_taken_is_refused_at_the_start() -> None:
    async with deployment(metrics_port=0) as stack:
        assert stack.service.metrics_served is not None
        with pytest.raises(OSError, match="in use"):
            async with deployment(metrics_port=stack.service.metrics_served.port):
                pass
