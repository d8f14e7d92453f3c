"""Bytes that are no message, and errors that are longer than a status may be."""

import grpc
import pytest
from stack import deployment

from outrider.serving.channels import connect
from outrider.v1 import orchestrator_pb2 as pb

BAD_UTF8 = (
    pb.GenerateRequest(stop=["ab"], prompt=b"x").SerializeToString().replace(b"ab", b"\xff\xfe")
)


async def refusal(address: str, method: str, data: bytes, *, stream: bool) -> tuple[str, str]:
    """Status and message of raw bytes sent to a method."""
    async with connect(address) as channel:
        if stream:
            call = channel.stream_stream(method)(timeout=10)
            await call.write(data)
        else:
            call = channel.unary_stream(method)(data, timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
    return error.value.code().name, error.value.details() or ""


async def test_bytes_that_are_no_message_are_refused_as_such() -> None:
    async with deployment() as stack:
        address = stack.client.address
        door = "/outrider.v1.Orchestrator/Generate"
        for data in (BAD_UTF8, b"\xff\xff\xff"):
            code, details = await refusal(address, door, data, stream=False)
            assert code == "INVALID_ARGUMENT"
            assert details.startswith("message: ")
            assert "GenerateRequest" in details
        long = pb.GenerateRequest(
            prompt=b"x", max_tokens=1, speculative=pb.Speculative(method="é" * 100_000)
        ).SerializeToString()
        code, details = await refusal(address, door, long, stream=False)
        assert (code, details[:18]) == ("INVALID_ARGUMENT", "speculative.method")
        assert len(details) < 1000
        verify = "/outrider.v1.Target/Verify"
        target = stack.service._settings.target
        code, details = await refusal(target, verify, b"\xff\xff\xff", stream=True)
        assert code == "INVALID_ARGUMENT"
        assert "TargetRequest" in details
