"""Asks a service for its health: `python -m outrider.serving.healthcheck HOST:PORT`, status 0 if
SERVING.

Without an argument the address comes from OUTRIDER_HEALTHCHECK. Containers run this inside
themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

DEADLINE_S = 5.0


def problem(address: str, deadline_s: float = DEADLINE_S) -> str | None:
    """None if the server at `address` (plaintext) reports SERVING, else what is wrong with it."""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=deadline_s, wait_for_ready=True
            )
        except grpc.RpcError as error:
            return f"{address}: {error.code().name}"
    if reply.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    return f"{address}: {health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)}"


def main(argv: Sequence[str]) -> str | None:
    """Exit message; None is success."""
    address = argv[0] if argv else os.environ.get("OUTRIDER_HEALTHCHECK", "")
    return (
        problem(address) if address else "usage: python -m outrider.serving.healthcheck HOST:PORT"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
