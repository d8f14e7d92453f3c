"""Runs beside the `speculators` library, in an environment of its own, and without this package.

    python speculators_side.py FOLDER

FOLDER/ours is a checkpoint of ours, FOLDER/target its target, FOLDER/text.safetensors token ids and
features. Loads ours with the library and writes what it drafts to FOLDER/ours.json; makes heads of
its own, saves them to FOLDER/theirs-N and what they draft to FOLDER/theirs-N.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from speculators import SpeculatorsConfig, VerifierConfig  # type: ignore[import-not-found]
from speculators.model import SpeculatorModel  # type: ignore[import-not-found]
from speculators.models.eagle3 import (  # type: ignore[import-not-found]
    Eagle3DraftModel,
    Eagle3SpeculatorConfig,
)
from speculators.proposals.greedy import (  # type: ignore[import-not-found]
    GreedyTokenProposalConfig,
)
from transformers import AutoConfig

STEPS = 3
SWITCHES: list[tuple[str, dict[str, bool]]] = [
    ("llama", {}),
    ("llama", {"norm_before_residual": True, "norm_output": True, "fc_norm": True}),
    ("qwen3", {"norm_before_fc": True}),
]


def drafted(model: Any, text: dict[str, torch.Tensor]) -> list[list[int]]:
    """What the library's training forward drafts at each row and step, as draft ids."""
    tokens, features = text["tokens"], text["features"]
    with torch.no_grad():
        steps = model.float().eval()(
            hidden_states=features[:, :-1],
            input_ids=tokens[:, 1:],
            document_ids=torch.zeros_like(tokens[:, 1:]),
            ttt_steps=STEPS,
        )
    return [step[0].tolist() for step in steps]


def make(
    folder: Path, target: Path, family: str, switches: dict[str, bool], taps: list[int]
) -> Any:
    """A random head of theirs for the target, over every third of its tokens."""
    verifier = AutoConfig.from_pretrained(target)
    layer = AutoConfig.for_model(
        family,
        **{
            name: getattr(verifier, name)
            for name in (
                "vocab_size",
                "hidden_size",
                "intermediate_size",
                "num_attention_heads",
                "num_key_value_heads",
                "head_dim",
                "max_position_embeddings",
            )
        },
        num_hidden_layers=1,
    )
    layer._attn_implementation = "eager"
    ids = torch.arange(0, verifier.vocab_size, 3)
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=len(ids),
        eagle_aux_hidden_state_layer_ids=taps,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig.from_pretrained(str(target)),
        ),
        **{"norm_before_residual": False, **switches},
    )
    model = Eagle3DraftModel(config)
    t2d = torch.zeros(verifier.vocab_size, dtype=torch.bool)
    t2d[ids] = True
    model.load_vocab_mappings(t2d, ids - torch.arange(len(ids)))
    model.load_verifier_weights()
    for name, parameter in model.named_parameters():
        if name != "embed_tokens.weight":
            parameter.data = torch.randn_like(parameter) * parameter.shape[-1] ** -0.5
            parameter.data += 1.0 if parameter.dim() == 1 else 0.0
    model.save_pretrained(folder)
    return model


def main(folder: Path) -> None:
    """See the module."""
    text = load_file(folder / "text.safetensors")
    ours = json.loads((folder / "ours" / "config.json").read_text())
    config = Eagle3SpeculatorConfig.from_pretrained(folder / "ours")
    config.transformer_layer_config._attn_implementation = "eager"
    model = SpeculatorModel.from_pretrained(folder / "ours", config=config)
    (folder / "ours.json").write_text(json.dumps(drafted(model, text)))
    taps = ours["eagle_aux_hidden_state_layer_ids"]
    for number, (family, switches) in enumerate(SWITCHES):
        torch.manual_seed(number)
        place = folder / f"theirs-{number}"
        model = make(place, folder / "target", family, switches, taps)
        place.with_suffix(".json").write_text(json.dumps(drafted(model, text)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
