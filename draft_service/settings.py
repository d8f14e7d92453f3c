"""Settings of the draft service: flags, environment, defaults."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from draft_service.engine import Limits
from outrider.drafting.specs import check_distinct, default_specs
from outrider.models.hub import DEFAULT
from outrider.serving.settings import Device, Dtype, ServiceSettings


class DraftSettings(ServiceSettings):
    """`python -m draft_service`; the environment's prefix is OUTRIDER_DRAFT_."""

    model_config = SettingsConfigDict(env_prefix="OUTRIDER_DRAFT_", cli_prog_name="draft_service")

    listen: str = Field(
        "127.0.0.1:50052", description="HOST:PORT to serve on; port 0 takes a free one"
    )
    drafter: list[str] = Field(
        [], description="NAME or NAME=PATH, repeatable; default: all the target has"
    )
    target: str = Field(
        DEFAULT, min_length=1, description="the target, for its tokenizer and its drafters"
    )
    dtype: Dtype = Field("auto", description="of draft models; auto, float32, bfloat16 or int8")
    device: Device = Field("cpu", description="cpu or cuda:N")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; default: all cores")
    max_sessions: int = Field(64, ge=1, le=100_000, description="most sessions open at once")
    max_depth: int = Field(16, ge=1, le=256, description="greatest depth of a tree")
    max_nodes: int = Field(64, ge=1, le=4096, description="most drafted nodes of a tree")
    max_m: int = Field(256, ge=1, le=65_536, description="most ids of a draft distribution")
    prefill_rows: int = Field(
        128, ge=1, le=65_536, description="prompt tokens between two batches of drafts"
    )
    ngram_past_tokens: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="tokens of past outputs that ngram looks up for all requests; 0: none, since "
        "a request's speed would tell of others' texts",
    )
    queue: int = Field(32, ge=1, le=65_536, description="requests of one session that may wait")

    @field_validator("drafter")
    @classmethod
    def _known_and_distinct(cls, specs: list[str]) -> list[str]:
        check_distinct(specs)
        return specs

    @property
    def drafter_specs(self) -> list[str]:
        """What was asked for; else every drafter that can be had for the target without a path."""
        return self.drafter or list(default_specs(self.target))

    @property
    def limits(self) -> Limits:
        """Bounds of the engine."""
        return Limits(
            max_sessions=self.max_sessions,
            max_depth=self.max_depth,
            max_nodes=self.max_nodes,
            max_m=self.max_m,
            prefill_rows=self.prefill_rows,
            queue=self.queue,
        )
