"""How arguments of the SDK become a request."""

from __future__ import annotations

import math
from typing import Any

import pytest

from outrider import InvalidRequest
from outrider.requests import SPECULATIVE_KEYS, chat_request, text_request


def test_absent_arguments_take_the_documented_defaults() -> None:
    request = text_request("hi", None)
    assert (request.prompt, request.max_tokens, request.sampling.temperature) == (b"hi", 128, 1.0)
    assert not request.sampling.HasField("seed")
    assert not request.HasField("speculative")


def test_every_argument_reaches_its_field() -> None:
    request = text_request(
        None,
        [1, 2],
        max_tokens=5,
        temperature=0.0,
        top_k=3,
        top_p=0.5,
        min_p=0.25,
        seed=2**64 - 1,
        stop="end",
        ignore_eos=True,
        speculative={"method": "ngram", "n_max": 0, "n_min": 0, "p_min": 0.5, "tree_exact": False},
        request_class="mine",
        request_id="id",
    )
    assert list(request.prompt_token_ids.ids) == [1, 2]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (
        0.0,
        3,
        0.5,
        0.25,
    )
    assert sampling.HasField("temperature")
    assert (sampling.seed, list(request.stop), request.ignore_eos) == (2**64 - 1, ["end"], True)
    speculative = request.speculative
    assert speculative.HasField("n_max")
    assert (speculative.n_max, speculative.method, speculative.tree_exact) == (0, "ngram", False)
    assert not speculative.HasField("nodes_max")
    assert (getattr(request, "class"), request.request_id) == ("mine", "id")


def test_a_chat_keeps_roles_and_order() -> None:
    request = chat_request(
        [{"role": "system", "content": "be"}, {"role": "user", "content": "häh"}]
    )
    assert [(m.role, m.content.decode()) for m in request.chat.messages] == [
        ("system", "be"),
        ("user", "häh"),
    ]


@pytest.mark.parametrize(
    "make",
    [lambda: text_request("", None), lambda: text_request(None, []), lambda: chat_request([])],
)
def test_empty_input_is_left_for_the_server_to_refuse(make: Any) -> None:
    assert make().WhichOneof("input") is not None


@pytest.mark.parametrize(("prompt", "ids"), [(None, None), ("a", [1])])
def test_exactly_one_input_is_taken(prompt: str | None, ids: list[int] | None) -> None:
    with pytest.raises(InvalidRequest, match="prompt, prompt_token_ids: give exactly one"):
        text_request(prompt, ids)


def test_a_lone_surrogate_is_refused_by_field_and_place() -> None:
    with pytest.raises(InvalidRequest, match=r"^prompt: character 2 is the lone surrogate U\+D800"):
        text_request("ab\ud800", None)
    with pytest.raises(InvalidRequest, match=r"^messages\[0\].content: character 0"):
        chat_request([{"role": "user", "content": "\udfff"}])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_tokens": 2**31}, "max_tokens: 2147483648"),
        ({"max_tokens": 1.5}, "max_tokens: 1.5"),
        ({"temperature": "hot"}, "temperature: 'hot'"),
        ({"top_k": -1}, "top_k: -1"),
        ({"seed": -1}, "seed: -1"),
        ({"seed": 2**64}, "seed: 18446744073709551616"),
        ({"stop": ["a", 3]}, "stop: entry 1, 3"),
        ({"stop": "\ud800"}, "stop: entry 0"),
        ({"stop": 3}, "stop: 3 is not a list"),
        ({"request_class": 1}, "request_class: 1"),
        ({"speculative": ["ngram"]}, "speculative: .* is not a mapping"),
        ({"speculative": {"n_max": "four"}}, "speculative.n_max: 'four'"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name_and_value(options: Any, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        text_request("hi", None, **options)


def test_token_ids_that_do_not_fit_are_refused_by_place() -> None:
    with pytest.raises(InvalidRequest, match="prompt_token_ids: entry 1, -5"):
        text_request(None, [1, -5])


def test_the_server_judges_what_can_be_sent() -> None:
    request = text_request(
        "hi", None, max_tokens=-1, temperature=math.nan, speculative={"n_max": 10**6}
    )
    assert request.max_tokens == -1
    assert math.isnan(request.sampling.temperature)


@pytest.mark.parametrize(
    ("key", "meant"),
    [("n_maxx", "n_max"), ("num_speculative_tokens", "n_max"), ("methd", "method"), ("k", "n_max")],
)
def test_an_unknown_speculative_key_is_named_with_the_close_match(key: str, meant: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        text_request("hi", None, speculative={key: 4})
    message = str(caught.value)
    assert f"unknown key {key!r}" in message
    assert message.endswith(f"did you mean {meant!r}?")
    assert all(known in message for known in SPECULATIVE_KEYS)


def test_an_unknown_speculative_key_like_no_other_gets_no_guess() -> None:
    with pytest.raises(InvalidRequest, match=r"known keys are method, .*tree_exact$"):
        text_request("hi", None, speculative={"zzz": 4})


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown argument 'max_new_tokens'"):
        text_request("hi", None, max_new_tokens=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "message", [{"role": "user"}, {"role": "user", "content": "a", "name": "b"}, "hi"]
)
def test_a_chat_message_has_role_and_content_only(message: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"messages\[0\]: must have the keys role and content"):
        chat_request([message])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": -1}, "top_k: -1, limit 0 to 4294967295"),
        ({"seed": 2**64}, f"seed: {2**64}, limit 0 to {2**64 - 1}"),
        ({"max_tokens": 2**40}, f"max_tokens: {2**40}, limit 0 to {2**31 - 1}"),
        (
            {"speculative": {"n_max": 2**31}},
            f"speculative.n_max: {2**31}, limit 0 to {2**31 - 1}",
        ),
    ],
)
def test_a_number_that_its_field_cannot_hold_is_refused_with_the_limit(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        text_request("hi", None, **options)
    assert str(caught.value) == message
