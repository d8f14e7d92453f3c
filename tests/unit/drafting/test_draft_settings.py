from importlib import import_module
from pathlib import Path

import pytest

from draft_service.drafters.registry import build_drafter
from draft_service.drafters.setup import Setup, Vocabulary, check_vocabulary
from draft_service.settings import DraftSettings
from outrider.drafting import specs
from outrider.drafting.specs import DRAFTERS, DrafterRefused, split_spec

VOCABULARY = Vocabulary("big", "aaaa", 100, 64)


def test_repeated_drafter_flags_are_kept_in_order() -> None:
    settings = DraftSettings.from_args(["--drafter", "draft_model=/models/x", "--drafter", "ngram"])
    assert settings.drafter_specs == ["draft_model=/models/x", "ngram"]


def test_default_target_comes_with_every_drafter_that_has_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specs, "CHECKPOINTS", tmp_path)
    assert DraftSettings.from_args([]).drafter_specs == ["ngram", "draft_model"]
    for name in ("eagle", "medusa"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    assert DraftSettings.from_args([]).drafter_specs == list(DRAFTERS)
    assert DraftSettings.from_args(["--target", "/models/y"]).drafter_specs == ["ngram"]


def test_other_target_without_a_path_comes_with_the_drafters_that_need_none() -> None:
    assert DraftSettings.from_args(["--target", "/models/y"]).drafter_specs == ["ngram"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--drafter", "magic"], "drafter 'magic' is unknown, limit one of ngram, draft_model"),
        (["--drafter", "ngram", "--drafter", "ngram"], "each may come once"),
        (["--drafter", "draft_model="], "has an empty path"),
        (["--device", "tpu"], "device: 'tpu'"),
        (["--max-depth", "0"], "max_depth: '0'"),
    ],
)
def test_nonsense_is_refused_by_field_value_and_limit(
    argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        DraftSettings.from_args(argv)
    assert expected in capsys.readouterr().err


def test_limits_come_from_settings() -> None:
    limits = DraftSettings.from_args(
        ["--max-depth", "3", "--max-nodes", "5", "--max-m", "7"]
    ).limits
    assert (limits.max_depth, limits.max_nodes, limits.max_m) == (3, 5, 7)


def test_spec_splits_at_its_first_equals_sign() -> None:
    assert split_spec("draft_model=/a=b") == ("draft_model", "/a=b")
    assert split_spec("ngram") == ("ngram", None)


def test_ngram_is_built_by_name_and_refuses_a_path() -> None:
    setup = Setup("big", VOCABULARY)
    assert build_drafter("ngram", setup).method == "ngram"
    with pytest.raises(DrafterRefused, match="takes no path"):
        build_drafter("ngram=/x", setup)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_name_has_a_file_that_builds_it(name: str) -> None:
    assert callable(import_module(f"draft_service.drafters.{name}").build)


def test_draft_model_of_an_unknown_target_needs_a_path() -> None:
    with pytest.raises(DrafterRefused, match="draft_model needs a path"):
        build_drafter("draft_model", Setup("big", VOCABULARY))


@pytest.mark.parametrize(
    ("fingerprint", "size", "sides"),
    [("bbbb", 100, ("small is bbbb", "big aaaa")), ("aaaa", 99, ("small is 99", "big 100"))],
)
def test_draft_model_with_another_vocabulary_is_refused_naming_both_sides(
    fingerprint: str, size: int, sides: tuple[str, str]
) -> None:
    with pytest.raises(DrafterRefused) as error:
        check_vocabulary(VOCABULARY, "small", fingerprint, size)
    assert all(side in str(error.value) for side in sides)
    check_vocabulary(VOCABULARY, "small", "aaaa", 100)
