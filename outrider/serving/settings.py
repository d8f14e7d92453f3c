"""Settings that every service has; each service adds its own in a subclass."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, FilePath, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from outrider.serving.auth import Security, is_loopback, split_address
from outrider.serving.channels import MAX_MESSAGE_MIB, MIB

PASSWORD = re.compile(r"(?<=://)([^/@\s]*)@")

Dtype = Literal["auto", "float32", "bfloat16", "int8"]
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")]


class ServiceSettings(BaseSettings):
    """One frozen object, built in `__main__` from flags and environment, printed once with secrets
    hidden.

    A subclass sets its own prefix: `model_config =
        SettingsConfigDict(env_prefix="OUTRIDER_TARGET_")`. Flags
    are the field names in kebab-case; a list field's flag may be repeated.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="OUTRIDER_",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        protected_namespaces=(),
    )

    listen: str = Field("127.0.0.1:0", description="HOST:PORT to serve on; port 0 takes a free one")
    insecure: bool = Field(False, description="allow plaintext beyond loopback")
    tls_cert: FilePath | None = Field(None, description="file of the own certificate (PEM)")
    tls_key: FilePath | None = Field(None, description="file of its key (PEM)")
    tls_ca: FilePath | None = Field(
        None, description="file of the authority behind others' certificates"
    )
    token: SecretStr | None = Field(
        None, description="bearer token of all callers; better by environment"
    )
    grace_s: float = Field(
        10.0, ge=0, le=3600, description="seconds that running calls get when draining"
    )
    max_message_mib: int = Field(MAX_MESSAGE_MIB, ge=1, le=1024, description="largest message, MiB")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least level logged"
    )

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        split_address(value)
        return value

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key: one is given without the other")
        if self.tls_ca is not None and self.tls_cert is None:
            raise ValueError("tls_ca: given without tls_cert and tls_key")
        if self.tls_cert is not None and self.insecure:
            raise ValueError("insecure: contradicts tls_cert")
        if self.tls_cert is None and not self.insecure and not is_loopback(self.listen):
            raise ValueError(
                f"listen: {self.listen} is not loopback; give tls_cert and tls_key, or insecure"
            )
        if self.token is not None and not self.token.get_secret_value().isascii():
            raise ValueError("token: must be ASCII")
        if self.token is not None and not self.token.get_secret_value().strip():
            raise ValueError("token: is empty")
        return self

    @classmethod
    def from_args(cls, argv: Sequence[str]) -> Self:
        """Settings from flags (without the program's name), then the environment, then defaults.

        Raises:
            SystemExit: 2 behind a message that names each bad flag, its value and the limit; 0
                behind --help.
        """
        try:
            return cls(_cli_parse_args=list(argv))  # type: ignore[call-arg]
        except ValidationError as error:
            for problem in problems(error):
                sys.stderr.write(f"error: {problem}\n")
        except SettingsError as error:
            sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2)

    @property
    def max_message_bytes(self) -> int:
        """Largest message, bytes."""
        return self.max_message_mib * MIB

    @property
    def security(self) -> Security:
        """How this service proves itself to the services that it calls."""
        return Security(
            ca=self.tls_ca,
            cert=self.tls_cert if self.tls_ca is not None else None,
            key=self.tls_key if self.tls_ca is not None else None,
            token=None if self.token is None else self.token.get_secret_value(),
            insecure=self.insecure,
        )

    def describe(self) -> str:
        """One line with every setting, secrets and the credentials within URLs hidden."""
        return " ".join(f"{name}={_hide(getattr(self, name))}" for name in type(self).model_fields)


def problems(error: ValidationError, value: str = "") -> list[str]:
    """What is wrong, a line for each field: its name, what was given, and the limit.

    Args:
        value: the name of what was validated, where it is no field.
    """
    found = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"]) or value
        given = f"{name}: {problem['input']!r}: " if name and name != "token" else ""
        found.append(f"{given}{problem['msg'].removeprefix('Value error, ')}")
    return found


def _hide(value: object) -> str:
    return PASSWORD.sub("***@", str(value))
