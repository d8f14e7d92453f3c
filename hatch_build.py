"""Generates the gRPC stubs from proto/ before a build; they are not committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent


def generate(root: Path = ROOT) -> None:
    """Writes outrider/v1/*_pb2*.py and .pyi.

    Raises:
        RuntimeError: protoc refused a file.
    """
    from grpc_tools import protoc  # only the build environment has it

    protos = sorted(str(path) for path in (root / "proto").rglob("*.proto"))
    outputs = [f"--{kind}_out={root}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"-I{root / 'proto'}", *outputs, *protos]) != 0:
        raise RuntimeError("protoc failed")


class StubHook(BuildHookInterface):  # type: ignore[misc]
    """Runs `generate` for wheels and editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        generate(Path(self.root))


if __name__ == "__main__":
    generate()
