"""Settings of the orchestrator."""

from __future__ import annotations

from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from outrider.serving.auth import split_address
from outrider.serving.settings import ServiceSettings

REDIS_SCHEMES = ("redis://", "rediss://", "unix://")


class OrchestratorSettings(ServiceSettings):
    """Flags of `python -m orchestrator`; environment prefix OUTRIDER_ORCHESTRATOR_."""

    model_config = SettingsConfigDict(env_prefix="OUTRIDER_ORCHESTRATOR_")

    listen: str = Field(
        "127.0.0.1:50050", description="HOST:PORT to serve on; port 0 takes a free one"
    )
    target: str = Field("127.0.0.1:50051", description="HOST:PORT of the target service")
    draft: list[str] = Field(
        default_factory=list,
        description="HOST:PORT of a draft service, repeatable; a name may stand for replicas",
    )
    tokenizer: str = Field(
        "default", description="the target's Hugging Face directory, hub id or GGUF file"
    )
    redis_url: SecretStr | None = Field(
        None, description="Redis for shared statistics; none without it"
    )
    max_requests: int = Field(256, ge=1, le=65536, description="requests in progress at once")
    max_depth: int = Field(16, ge=1, le=128, description="greatest n_max")
    max_nodes: int = Field(64, ge=1, le=1024, description="greatest nodes_max")
    support: int = Field(32, ge=1, le=256, description="ids in a q~ of drawn children")
    draft_deadline_s: float = Field(
        2.0, gt=0, le=600, description="longest wait for a proposal, seconds"
    )
    target_deadline_s: float = Field(
        60.0, gt=0, le=3600, description="longest wait for the target, seconds"
    )
    peers_deadline_s: float = Field(
        120.0, gt=0, le=3600, description="longest wait for peers at the start, seconds"
    )
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="port of /metrics for Prometheus; none without it"
    )
    metrics_host: str = Field("127.0.0.1", description="address that /metrics is served on")
    inject_draft_latency_ms: float = Field(
        0.0, ge=0, le=10_000, description="delay of each message to and from drafts; for tests"
    )
    inject_target_latency_ms: float = Field(
        0.0, ge=0, le=10_000, description="delay of each message to and from targets; for tests"
    )
    refresh_s: float = Field(
        2.0, gt=0, le=600, description="pause between two looks at the peers, seconds"
    )

    @field_validator("target")
    @classmethod
    def _target_address(cls, value: str) -> str:
        split_address(value)
        return value

    @field_validator("draft")
    @classmethod
    def _draft_addresses(cls, value: list[str]) -> list[str]:
        for address in value:
            split_address(address)
        return value

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.max_nodes < self.max_depth:
            raise ValueError(f"max_nodes: {self.max_nodes}, limit max_depth {self.max_depth}")
        return self

    @field_validator("redis_url")
    @classmethod
    def _known_scheme(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(REDIS_SCHEMES):
            raise ValueError(f"redis_url: limit a URL with one of {', '.join(REDIS_SCHEMES)}")
        return value
