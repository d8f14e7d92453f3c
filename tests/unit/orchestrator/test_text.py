"""Text as it comes must add up to the text as a whole, whatever the tokens are."""

import random

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from orchestrator.text import TextStream

END = 256


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|end|>", special=True)])
    return made


def parts(tokenizer: Tokenizer, ids: list[int], *stop: str) -> tuple[list[str], bool]:
    """What each token gave, what the end gave, and whether a stop string was complete."""
    stream = TextStream(tokenizer, stop)
    texts = []
    for token in ids:
        texts.append(stream.push(token))
        if stream.stopped:
            break
    return [*texts, stream.finish()], stream.stopped


def test_whole_characters_come_with_the_token_that_completes_them(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("aé🙂").ids
    assert parts(tokenizer, ids) == (["a", "", "é", "", "", "", "🙂", ""], False)


def test_half_a_character_at_the_end_is_not_lost(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("aé").ids[:-1]
    assert parts(tokenizer, ids) == (["a", "", "\ufffd"], False)


def test_special_tokens_give_no_text(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("ab").ids, END, *tokenizer.encode("c").ids]
    assert parts(tokenizer, ids)[0] == ["a", "b", "", "c", ""]


def test_any_bytes_add_up_to_what_the_tokenizer_decodes(tokenizer: Tokenizer) -> None:
    rng = random.Random(7)
    for _ in range(200):
        valid = tokenizer.encode("".join(rng.choice("ab é日🙂\n") for _ in range(12))).ids
        ids = [token if rng.random() < 0.9 else rng.randrange(END + 1) for token in valid]
        texts, stopped = parts(tokenizer, ids)
        assert "".join(texts) == tokenizer.decode(ids, skip_special_tokens=True)
        assert not stopped


def test_any_stop_string_ends_the_text_before_its_first_place_and_nothing_behind_it_was_sent(
    tokenizer: Tokenizer,
) -> None:
    rng = random.Random(8)
    hits = 0
    for _ in range(500):
        text = "".join(rng.choice("abé") for _ in range(20))
        stops = ["".join(rng.choice("abé") for _ in range(rng.randint(1, 5))) for _ in range(2)]
        ids = tokenizer.encode(text).ids
        texts, stopped = parts(tokenizer, ids, *stops)
        # the first stop string to be complete ends the text; of two complete at once, the longer
        # one
        ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
        expected = text[: min(ends)[1]] if ends else text
        assert "".join(texts) == expected
        assert stopped == bool(ends)
        hits += stopped
    assert 50 < hits < 450


def test_beginning_of_a_stop_string_is_held_back_and_released(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("xSTOxSTOP").ids
    texts, stopped = parts(tokenizer, ids, "STOP")
    assert texts == ["x", "", "", "", "STOx", "", "", "", "", ""]
    assert stopped


def test_beginning_of_a_stop_string_at_the_end_is_text(tokenizer: Tokenizer) -> None:
    assert parts(tokenizer, tokenizer.encode("xST").ids, "STOP") == (["x", "", "", "ST"], False)


def test_text_that_was_sent_is_never_part_of_a_stop_string(tokenizer: Tokenizer) -> None:
    texts, stopped = parts(tokenizer, tokenizer.encode("aaab").ids, "aab")
    assert "".join(texts) == "a"
    assert stopped


def test_stop_string_that_only_the_end_completes_ends_the_text(tokenizer: Tokenizer) -> None:
    whole = tokenizer.encode("ab\N{GRINNING FACE}").ids
    stream = TextStream(tokenizer, ["b\N{REPLACEMENT CHARACTER}"])
    text = "".join(stream.push(token) for token in whole[:-2]) + stream.finish()
    assert (text, stream.stopped) == ("a", True)
