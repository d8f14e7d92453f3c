"""Settings of services: flags, environment, and nonsense refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from outrider.serving.settings import ServiceSettings


class Example(ServiceSettings):
    """A service's own settings."""

    model_config = SettingsConfigDict(env_prefix="OUTRIDER_EXAMPLE_")
    drafter: list[str] = Field(default_factory=list)
    redis_url: str | None = None
    max_sessions: int = Field(64, ge=1, le=4096)


def test_flags_are_field_names_in_kebab_case_and_lists_repeat() -> None:
    settings = Example.from_args(
        [
            "--drafter",
            "ngram",
            "--drafter",
            "draft_model=/models/a",
            "--max-sessions",
            "3",
            "--insecure",
        ]
    )
    assert settings.drafter == ["ngram", "draft_model=/models/a"]
    assert (settings.max_sessions, settings.insecure) == (3, True)


def test_flags_win_over_the_environment_and_that_over_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTRIDER_EXAMPLE_MAX_SESSIONS", "5")
    monkeypatch.setenv("OUTRIDER_EXAMPLE_GRACE_S", "7")
    settings = Example.from_args(["--max-sessions", "6"])
    assert (settings.max_sessions, settings.grace_s, settings.max_message_mib) == (6, 7.0, 16)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--max-sessions", "0"], "max_sessions: '0': Input should be greater than or equal to 1"),
        (["--grace-s", "soon"], "grace_s: 'soon'"),
        (["--listen", "nowhere"], "listen: 'nowhere': address 'nowhere' is not HOST:PORT"),
        (["--listen", "127.0.0.1:65536"], "port '65536'"),
        (["--listen", "0.0.0.0:50050"], "listen: 0.0.0.0:50050 is not loopback"),
        (["--tls-cert", "/none.pem"], "tls_cert: '/none.pem': Path does not point to a file"),
        (
            ["--log-level", "loud"],
            "log_level: 'loud': Input should be 'debug', 'info', 'warning' or 'error'",
        ),
        (["--tokn", "x"], "unrecognized arguments: --tokn"),
    ],
)
def test_a_bad_flag_is_named_with_its_value_and_the_limit(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        Example.from_args(argv)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_nonsense_combinations_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.pem"
    file.write_text("x")
    for values, message in (
        ({"tls_cert": file}, "tls_cert and tls_key"),
        ({"tls_ca": file}, "tls_ca: given without"),
        ({"tls_cert": file, "tls_key": file, "insecure": True}, "insecure: contradicts"),
        ({"token": " "}, "token: is empty"),
        ({"token": "ä"}, "token: must be ASCII"),
    ):
        with pytest.raises(ValidationError, match=message):
            Example(**values)


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1"])
def test_every_form_of_loopback_may_be_plaintext(listen: str) -> None:
    assert Example(listen=listen).listen == listen


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "target:1", "127.0.0.1.evil.example:1"]
)
def test_anything_else_needs_tls_or_a_flag(listen: str) -> None:
    with pytest.raises(ValidationError, match="not loopback"):
        Example(listen=listen)
    assert Example(listen=listen, insecure=True).listen == listen


def test_settings_are_frozen() -> None:
    settings = Example()
    with pytest.raises(ValidationError):
        settings.grace_s = 1.0  # type: ignore[misc]


def test_the_description_has_every_setting_and_no_secret() -> None:
    secret = "s3cret"  # noqa: S105 - it is none
    described = Example(token=secret, redis_url="redis://user:pass@host:6379/0").describe()
    assert secret not in described
    assert "pass" not in described
    assert "redis_url=redis://***@host:6379/0" in described
    assert all(f"{name}=" in described for name in Example.model_fields)


def test_a_bad_token_is_not_repeated_in_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Example.from_args(["--token", "s3crät"])
    shown = capsys.readouterr().err
    assert "token: must be ASCII" in shown
    assert "s3cr" not in shown


def test_peers_are_reached_with_the_own_token_and_certificate(tmp_path: Path) -> None:
    file = tmp_path / "a.pem"
    file.write_text("x")
    secret = "t"  # noqa: S105 - it is none
    security = Example(tls_cert=file, tls_key=file, tls_ca=file, token=secret).security
    assert (security.ca, security.cert, security.key) == (file, file, file)
    assert security.metadata == (("authorization", "Bearer t"),)
    assert not Example(tls_cert=file, tls_key=file).security.encrypted
