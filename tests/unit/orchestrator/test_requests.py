"""What a request becomes; its refusals are tested over the wire."""

from typing import Any

import pytest

from orchestrator.requests import Bounds, Method, Request, parse
from outrider.core.round import SamplingParams
from outrider.serving.errors import InvalidArgument
from outrider.v1 import orchestrator_pb2 as pb
from outrider.v1 import types_pb2

BOUNDS = Bounds(vocab_size=100, context_length=64, prompt_bytes=1000, max_depth=8, max_nodes=16)
METHODS = [Method("draft_model", 5), Method("ngram", 3)]


def parsed(methods: list[Method] = METHODS, **fields: Any) -> Request:
    message = pb.GenerateRequest(
        **{"prompt_token_ids": pb.TokenIds(ids=[1, 2, 3]), "max_tokens": 4, **fields}
    )
    return parse(message, None, BOUNDS, methods)


def speculation(methods: list[Method] = METHODS, **fields: Any) -> tuple[str, int, int]:
    wanted = parsed(methods, speculative=pb.Speculative(**fields)).speculation
    return wanted.method, wanted.depth, wanted.nodes


def test_absent_fields_take_their_defaults() -> None:
    request = parsed()
    assert request.sampling == SamplingParams(1.0, 0, 1.0, 0.0, None, 0)
    assert (request.prompt, request.max_tokens, request.stop) == ([1, 2, 3], 4, ())
    assert not request.ignore_eos
    assert request.class_ == "sampled"
    assert len(request.request_id) == 32
    assert request.speculation.tree_exact


def test_zero_where_zero_means_something_is_not_absence() -> None:
    request = parsed(sampling=types_pb2.SamplingParams(temperature=0.0, seed=0))
    assert request.sampling.greedy
    assert request.sampling.seed == 0
    assert request.class_ == "greedy"
    assert speculation(n_max=0) == ("", 0, 0)


def test_labels_are_kept() -> None:
    request = parsed(**{"class": "mine", "request_id": "r1"})
    assert (request.class_, request.request_id) == ("mine", "r1")


def test_default_is_a_chain_of_the_first_methods_recommended_depth() -> None:
    assert speculation() == ("draft_model", 5, 5)
    assert speculation(method="ngram") == ("ngram", 3, 3)
    assert speculation(n_max=2) == ("draft_model", 2, 2)
    assert speculation(n_max=2, nodes_max=7) == ("draft_model", 2, 7)


def test_auto_is_the_default_where_it_is_served() -> None:
    methods = [*METHODS, Method("auto", 6)]
    assert speculation(methods) == ("auto", 6, 6)
    assert speculation(methods, n_max=3) == ("auto", 3, 3)
    assert speculation(methods, method="ngram") == ("ngram", 3, 3)
    assert speculation(methods, method="plain") == ("", 0, 0)


def test_a_method_that_recommends_nodes_gets_them_unless_the_request_says_otherwise() -> None:
    methods = [Method("lookahead", 4, 12), Method("ngram", 3)]
    assert speculation(methods) == ("lookahead", 4, 12)
    assert speculation(methods, n_max=2) == ("lookahead", 2, 12)
    assert speculation(methods, n_max=2, nodes_max=2) == ("lookahead", 2, 2)
    assert speculation(methods, method="ngram") == ("ngram", 3, 3)
    assert speculation(methods, n_max=0) == ("", 0, 0)


def test_recommended_nodes_are_never_fewer_than_the_depth_nor_more_than_allowed() -> None:
    assert speculation([Method("m", 4, 12)], n_max=8) == ("m", 8, 12)
    assert speculation([Method("m", 4, 6)], n_max=8) == ("m", 8, 8)
    assert speculation([Method("m", 4, 99)]) == ("m", 4, BOUNDS.max_nodes)


def test_off_has_no_method() -> None:
    assert speculation(enabled=False) == ("", 0, 0)
    assert speculation(method="ngram", n_max=0) == ("", 0, 0)
    assert speculation(methods=[]) == ("", 0, 0)
    assert speculation(method="plain") == ("", 0, 0)
    assert speculation(method="plain", n_max=4, n_min=4) == ("", 0, 0)
    assert speculation(methods=[], method="plain") == ("", 0, 0)
    assert speculation(enabled=True) == ("draft_model", 5, 5)


def test_recommended_depth_never_exceeds_what_the_deployment_allows() -> None:
    assert speculation(methods=[Method("deep", 20)]) == ("deep", 8, 8)


def test_method_where_none_is_loaded_is_refused() -> None:
    with pytest.raises(
        InvalidArgument, match=r"speculative\.method: 'ngram' is not served; limit plain"
    ):
        speculation(methods=[], method="ngram")


def test_text_that_cannot_fit_is_refused_before_it_is_tokenised() -> None:
    def never(_: str) -> dict[str, list[int]]:
        raise AssertionError("tokenised")

    text = pb.GenerateRequest(prompt=b"x" * 1001, max_tokens=1)
    with pytest.raises(InvalidArgument, match="prompt: 1001 bytes, limit 1000"):
        parse(text, never, BOUNDS, [])
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content=b"x" * 501)] * 2)
    with pytest.raises(InvalidArgument, match=r"chat\.messages content: 1002 bytes, limit 1000"):
        parse(pb.GenerateRequest(chat=chat, max_tokens=1), never, BOUNDS, [])
    ids = pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=[0] * 64), max_tokens=1)
    with pytest.raises(InvalidArgument, match="prompt: 64 tokens, limit 63"):
        parse(ids, never, BOUNDS, [])
