"""How the draft service starts on models from disk, and which it refuses."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from draft_service import __main__ as program
from draft_service.drafters.draft_model import DraftModelDrafter
from draft_service.drafters.registry import build_drafter
from draft_service.drafters.setup import Setup
from draft_service.vocabulary import vocabulary_of
from outrider.core.round import Budget, SamplingParams


def write_model(folder: Path, words: str, vocab_size: int) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=77,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=words[0]).save_pretrained(folder)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_model(tmp_path / "target", "abcdefgh", 8)


@pytest.fixture
def argv(monkeypatch: pytest.MonkeyPatch, target: Path) -> Iterator[list[str]]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    arguments = ["draft_service", "--listen", "127.0.0.1:0", "--target", str(target)]
    monkeypatch.setattr("sys.argv", arguments)
    yield arguments
    root.handlers[:] = handlers
    root.setLevel(level)


def test_vocabulary_is_read_from_the_targets_files(target: Path) -> None:
    vocabulary = vocabulary_of(str(target))
    assert (vocabulary.name, vocabulary.size, vocabulary.context_length) == ("target", 8, 77)
    assert vocabulary.tokenizer_fingerprint


def test_draft_model_with_the_targets_tokenizer_is_built_and_drafts(
    target: Path, tmp_path: Path
) -> None:
    draft = write_model(tmp_path / "draft", "abcdefgh", 8)
    drafter = build_drafter(f"draft_model={draft}", Setup(str(target), vocabulary_of(str(target))))
    assert isinstance(drafter, DraftModelDrafter)
    assert drafter.model_name == "draft"
    assert drafter.numerics is drafter.model.numerics
    session = drafter.open([1, 2, 3], SamplingParams(temperature=0.0))
    assert drafter.propose([(session, Budget(4, 4))])[0].tree.drafted == 4


def test_draft_with_another_tokenizer_is_refused_at_start_naming_both(
    argv: list[str], target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_model(tmp_path / "other", "hgfedcba", 8)
    argv += ["--drafter", f"draft_model={other}"]
    assert program.main() == 1
    message = capsys.readouterr().err
    assert "tokenizer fingerprint of draft model other is" in message
    assert f"of target target {vocabulary_of(str(target)).tokenizer_fingerprint}" in message


def test_draft_with_another_vocabulary_size_is_refused_at_start_naming_both(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_model(tmp_path / "other", "abcdefgh", 16)
    argv += ["--drafter", f"draft_model={other}"]
    assert program.main() == 1
    assert (
        "vocabulary size of draft model other is 16, of target target 8" in capsys.readouterr().err
    )


def test_target_that_is_not_there_is_refused_at_start(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    argv[-1] = "/nowhere/model.gguf"
    assert program.main() == 1
    assert "/nowhere/model.gguf" in capsys.readouterr().err
