"""Settings of the target service."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from outrider.serving.settings import Device, Dtype, ServiceSettings
from target_service.engine import EngineLimits


class TargetSettings(ServiceSettings):
    """Flags of `python -m target_service`; environment prefix OUTRIDER_TARGET_."""

    model_config = SettingsConfigDict(env_prefix="OUTRIDER_TARGET_")

    listen: str = Field(
        "127.0.0.1:50051", description="HOST:PORT to serve on; port 0 takes a free one"
    )
    model: str = Field(
        "default", description="Hugging Face directory, hub id or GGUF file; default: SmolLM2-135M"
    )
    dtype: Dtype = Field(
        "auto", description="auto, float32, bfloat16, or int8 (weights and activations)"
    )
    device: Device = Field("cpu", description="cpu, cuda or cuda:N")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; default: all cores")
    profile: bool = Field(True, description="measure passes at the start, for GetInfo; 3 s at most")
    max_sessions: int = Field(64, ge=1, le=4096, description="sessions open at once")
    max_nodes: int = Field(64, ge=1, le=1024, description="most nodes of a tree, the root excluded")
    max_support: int = Field(256, ge=1, le=4096, description="most ids in a q~")
    prefill_rows: int = Field(
        128, ge=16, le=65536, description="rows of prefill in one step, over all sessions"
    )
    prefill_chunk: int = Field(
        64, ge=1, le=8192, description="prefill is cut at multiples of this position"
    )

    @property
    def engine_limits(self) -> EngineLimits:
        """The bounds that the engine keeps."""
        return EngineLimits(self.max_sessions, self.prefill_rows, self.prefill_chunk)
