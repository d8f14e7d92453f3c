"""A GGUF file becomes a Hugging Face directory with the same logits, once for its content."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import PreTrainedModel
from transformers.convert_slow_tokenizer import bytes_to_unicode

from outrider.models import hub
from outrider.models.causal_lm import Segment
from outrider.models.hub import ModelSpecError
from outrider.models.loading import load_model, load_tokenizer
from tests.tiny import tiny_model

EOS = 257
VOCAB = 258
LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def interleaved(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows of query and key projections in the order that GGUF's rotary embedding wants."""
    rows, columns = weight.shape
    return (
        weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def write_gguf(path: Path, model: PreTrainedModel) -> None:
    """A tiny Llama with a byte-level tokenizer as GGUF, float32."""
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*bytes_to_unicode().values(), "ab", "<eos>"])
    writer.add_token_types([gguf.TokenType.NORMAL] * EOS + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(EOS)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    for layer in range(config.num_hidden_layers):
        for ours, theirs in LAYER.items():
            weight = state[f"model.layers.{layer}.{ours}.weight"]
            if ours.endswith("q_proj"):
                weight = interleaved(weight, config.num_attention_heads)
            elif ours.endswith("k_proj"):
                weight = interleaved(weight, config.num_key_value_heads)
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "home"))
    return tmp_path / "tiny.gguf"


def test_a_gguf_file_loads_with_the_logits_of_its_model(file: Path) -> None:
    model = tiny_model("llama", VOCAB)
    write_gguf(file, model)
    lm = load_model(str(file), dtype="float32")
    tokens = [3, 200, 7, 99]
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0]
    logits = lm.logits(lm.forward([Segment.chain(lm.new_cache(), tokens)]).states)
    assert (logits - expected).abs().max() < 1e-4
    assert (lm.eos_ids, lm.vocab_size, lm.context_length) == ((EOS,), VOCAB, 512)


def test_the_tokenizer_and_its_chat_template_come_along(file: Path) -> None:
    write_gguf(file, tiny_model("llama", VOCAB))
    tokenizer = load_tokenizer(str(file))
    assert tokenizer.decode(tokenizer("abba", add_special_tokens=False)["input_ids"]) == "abba"
    assert (
        tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False) == "Hi"
    )


def test_a_file_is_converted_once_for_its_content(file: Path) -> None:
    write_gguf(file, tiny_model("llama", VOCAB))
    first = hub.resolve(str(file))
    assert hub.resolve(str(file)) == first
    write_gguf(file, tiny_model("llama", VOCAB, seed=1))
    assert hub.resolve(str(file)) != first
    assert len(hub.cached_models()) == 2


def test_a_broken_gguf_file_is_refused_by_name(file: Path) -> None:
    file.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(ModelSpecError, match=r"tiny\.gguf.*cannot read it"):
        hub.resolve(str(file))
    assert hub.cached_models() == []
