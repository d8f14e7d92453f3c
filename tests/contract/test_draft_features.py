"""Feature rows on their way to a drafter."""

from __future__ import annotations

from draft_server import request, serving

from draft_service.engine import Limits
from outrider.v1 import types_pb2


async def test_features_that_come_in_bulk_are_worked_off_in_slices_before_the_draft() -> None:
    async with serving(Limits(prefill_rows=4)) as server:
        call = await server.opened([7], method="slow")
        for round_, rows, slices in ((1, 4, 0), (2, 12, 1)):
            server.slow.log.clear()
            message = request(round_, 1 + round_, [8])
            data = bytes(2 * rows)
            features = types_pb2.Features(start=0, rows=rows, width=1, data=data)
            message.request.features.append(features)  # type: ignore[attr-defined]
            await call.write(message)
            assert (await call.read()).proposal.base_len == 1 + round_
            assert server.slow.log == [("prefill", 7)] * slices + [("propose", 7)]
