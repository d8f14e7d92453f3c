from importlib import import_module
from pathlib import Path

import pytest

from draft_service.drafters.registry import build_drafter
from draft_service.drafters.setup import Setup, Vocabulary, check_vocabulary
from draft_service.settings import DraftSettings
from outrider.drafting import specs
from outrider.drafting.ngram import NgramDrafter
from outrider.drafting.specs import DRAFTERS, DrafterRefused, split_spec

VOCABULARY = Vocabulary("big", "aaaa", 100, 64)


def test_repeated_drafter_flags_are_kept_in_order() -> None:
    settings = DraftSettings.from_args(["--drafter", "draft_model=/models/x", "--drafter", "ngram"])
    assert settings.drafter_specs == ["draft_model=/models/x", "ngram"]


def test_default_target_comes_with_every_drafter_that_has_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specs, "CHECKPOINTS", (tmp_path,))
    assert DraftSettings.from_args([]).drafter_specs == ["ngram", "draft_model", "lookahead"]
    for name in ("eagle", "medusa"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    assert DraftSettings.from_args([]).drafter_specs == list(DRAFTERS)
    other = DraftSettings.from_args(["--target", "/models/y"])
    assert other.drafter_specs == ["ngram", "lookahead"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (
            ["--drafter", "magic"],
            "drafter 'magic' is unknown, limit one of ngram, draft_model, eagle, medusa, "
            "lookahead, auto",
        ),
        (["--drafter", "ngram", "--drafter", "ngram"], "each may come once"),
        (["--drafter", "draft_model="], "has an empty path"),
        (["--device", "tpu"], "device: 'tpu'"),
        (["--max-depth", "0"], "max_depth: '0'"),
        (["--ngram-past-tokens", "-1"], "ngram_past_tokens: '-1'"),
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


@pytest.mark.parametrize("name", ["ngram", "lookahead"])
def test_drafters_without_a_model_are_built_by_name_and_refuse_a_path(name: str) -> None:
    setup = Setup("big", VOCABULARY)
    assert build_drafter(name, setup).method == name
    with pytest.raises(DrafterRefused, match=f"{name} takes no path"):
        build_drafter(f"{name}=/x", setup)


def test_past_outputs_are_remembered_only_where_a_setting_says_so() -> None:
    assert DraftSettings.from_args([]).ngram_past_tokens == 0
    assert DraftSettings.from_args(["--ngram-past-tokens", "7"]).ngram_past_tokens == 7
    for tokens in (0, 7):
        drafter = build_drafter("ngram", Setup("big", VOCABULARY, ngram_past_tokens=tokens))
        assert isinstance(drafter, NgramDrafter)
        assert (0 if drafter.past is None else drafter.past.limit) == tokens


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
