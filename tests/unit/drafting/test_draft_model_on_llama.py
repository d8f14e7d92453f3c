"""The drafter on a real, tiny random Llama with our own cache.

Stale rows would change what it proposes.
"""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draft_service.drafters.draft_model import DraftModelDrafter
from outrider.core.round import Budget, SamplingParams
from outrider.core.tree import TokenTree
from outrider.drafting.base import DraftSession
from outrider.models.causal_lm import CausalLM

GREEDY = SamplingParams(temperature=0.0)
SEEDED = SamplingParams(seed=5)
VOCAB = 61


@pytest.fixture(scope="module")
def model() -> CausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.4,
    )
    return CausalLM.from_model(LlamaForCausalLM(config), name="tiny", tokenizer_fingerprint="f00d")


def prompt(seed: int, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB, (length,), generator=generator).tolist()


def opened(one: DraftModelDrafter, tokens: list[int], sampling: SamplingParams) -> DraftSession:
    session = one.open(tokens, sampling)
    assert one.prefill(session)
    return session


def fresh(
    model: CausalLM, tokens: list[int], sampling: SamplingParams, budget: Budget
) -> TokenTree:
    one = DraftModelDrafter(model)
    return one.propose([(opened(one, tokens, sampling), budget)])[0].tree


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
@pytest.mark.parametrize("budget", [Budget(4, 4), Budget(3, 8)])
@pytest.mark.parametrize("accepted", range(5))
def test_after_any_acceptance_proposals_equal_those_of_a_fresh_session(
    model: CausalLM, sampling: SamplingParams, budget: Budget, accepted: int
) -> None:
    one = DraftModelDrafter(model)
    session = opened(one, prompt(1, 9), sampling)
    for round_ in range(4):
        tree = one.propose([(session, budget)])[0].tree
        assert tree == fresh(model, session.tokens, sampling, budget)
        spine = tree.path(next(n for n in range(len(tree)) if tree.depths[n] == tree.depth))
        one.observe(session, [*(tree.tokens[n] for n in spine[:accepted]), round_])


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_batched_proposals_equal_those_alone(model: CausalLM, sampling: SamplingParams) -> None:
    one = DraftModelDrafter(model)
    lengths = [1, 5, 12, 40]
    budgets = [Budget(4, 4), Budget(2, 5), Budget(8, 8), Budget(1, 1)]
    sessions = [opened(one, prompt(n, n), sampling) for n in lengths]
    proposals = one.propose(list(zip(sessions, budgets, strict=True)))
    for proposal, n, budget in zip(proposals, lengths, budgets, strict=True):
        assert proposal.tree == fresh(model, prompt(n, n), sampling, budget)


def test_greedy_chain_is_what_transformers_generates() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.4,
        eos_token_id=None,
    )
    reference = LlamaForCausalLM(config).eval()
    tokens = prompt(3, 7)
    generated = reference.generate(torch.tensor([tokens]), max_new_tokens=8, do_sample=False)[
        0
    ].tolist()
    model = CausalLM.from_model(reference, name="tiny", tokenizer_fingerprint="f00d")
    assert fresh(model, tokens, GREEDY, Budget(8, 8)) == TokenTree.chain(
        tokens[-1], generated[len(tokens) :]
    )


def test_unseeded_draft_declares_where_its_tokens_came_from(model: CausalLM) -> None:
    one = DraftModelDrafter(model)
    session = opened(one, prompt(2, 6), SamplingParams())
    proposal = one.propose([(session, Budget(4, 4, m=16))])[0]
    assert sorted(proposal.drawn_from) == [0, 1, 2, 3]
    assert all(len(q.ids) == 16 for q in proposal.drawn_from.values())


def test_prefill_in_slices_equals_prefill_at_once(model: CausalLM) -> None:
    one = DraftModelDrafter(model)
    session = one.open(prompt(4, 50), GREEDY)
    while not one.prefill(session, 16):
        pass
    assert one.propose([(session, Budget(6, 6))])[0].tree == fresh(
        model, prompt(4, 50), GREEDY, Budget(6, 6)
    )
