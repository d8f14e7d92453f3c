"""Settings of the target service."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from outrider.serving.settings import Device, Dtype, ServiceSettings
from target_service.limits import EngineLimits


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
        "auto",
        description="auto, float32, bfloat16, or int8 (weights, activations, keys and values)",
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
    max_batch: int = Field(64, ge=1, le=4096, description="sessions in one step")
    kv_cache_mib: int = Field(
        1024, ge=1, le=1 << 24, description="MiB of keys and values, over all sessions"
    )
    prefix_cache: float = Field(
        0.5, ge=0.0, le=1.0, description="share of it that past texts may keep; 0: none"
    )

    @property
    def engine_limits(self) -> EngineLimits:
        """The bounds that the engine keeps."""
        return EngineLimits(
            self.max_sessions,
            self.max_batch,
            self.prefill_rows,
            self.max_nodes,
            self.prefix_cache,
        )
