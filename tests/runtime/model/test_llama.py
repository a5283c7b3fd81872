"""The forward agrees with transformers on the same weights, and computes no more than it is asked for."""

from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from runtime.errors import ContextOverflowError
from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.gguf_loader import GGUFSource
from runtime.model.llama import LlamaModel
from runtime.model.numeric import Placement
from runtime.model.paged_kv import PagedKV
from tests.fakes.loaded_model import load_model
from tests.runtime.model import tiny_models

TOKENS = [(7 * index * index + 3 * index) % 300 for index in range(40)]
RELATIVE_TOLERANCE = 1e-4


def all_logits(model: LlamaModel, tokens: list[int], chunk_tokens: int = 1000) -> Tensor:
    kv = ContiguousKV(model.config, len(tokens), model.placement)
    parts = []
    for start in range(0, len(tokens), chunk_tokens):
        chunk = tokens[start : start + chunk_tokens]
        parts.append(model.forward(ForwardBatch((Span(chunk, start, len(chunk)),)), kv))
    return torch.cat(parts)


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Within RELATIVE_TOLERANCE of the largest logit, and the same argmax."""
    assert (found - expected).abs().max() <= RELATIVE_TOLERANCE * expected.abs().max()
    assert torch.equal(found.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("tier", ["aten", "native"])
@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied head"])
@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_logits_agree_with_transformers(family: str, tied: bool, tier: str, tmp_path: Path) -> None:
    model = tiny_models.random_model(family, tie_word_embeddings=tied)
    loaded = load_model(tiny_models.save(model, tmp_path), tier=tier).model
    if loaded.tier != tier:
        pytest.skip("no compiler: the native tier is not here")
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS])).logits[0]
    # Whole, as prompts are computed, and a few at a time, as decodes are.
    for chunk_tokens in (len(TOKENS), 7, 1):
        assert_close(all_logits(loaded, TOKENS, chunk_tokens), expected)


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_logits_of_a_gguf_agree_with_transformers(family: str, tmp_path: Path) -> None:
    model = tiny_models.random_model(family, tie_word_embeddings=family != "llama")
    path = tiny_models.gguf_recipe(model).write(tmp_path / "tiny.gguf")
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS])).logits[0]
    assert_close(all_logits(load_model(path).model, TOKENS), expected)


def test_logits_of_the_real_gguf_agree_with_transformers(real_gguf: Path) -> None:
    loaded = load_model(real_gguf)
    text = "<|im_start|>user\nName three rivers of Europe.<|im_end|>\n<|im_start|>assistant\nThe Rhine, "
    tokens = loaded.tokenizer.encode(text)
    found = all_logits(loaded.model, tokens)
    del loaded
    reference = _in_transformers(real_gguf)
    with torch.inference_mode():
        expected = reference(torch.tensor([tokens])).logits[0]
    assert_close(found, expected)


def _in_transformers(path: Path) -> PreTrainedModel:
    source = GGUFSource(path)
    config = source.config
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                hidden_size=config.hidden,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.kv_heads,
                intermediate_size=config.ffn,
                vocab_size=config.vocab,
                max_position_embeddings=config.context_tokens,
                rms_norm_eps=config.rms_eps,
                tie_word_embeddings=True,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope_base},
            )
        )
    model = model.to_empty(device="cpu")
    # to_empty loses what was computed and not loaded: the rotary wavelengths.
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    layers = model.model.layers
    model.model.embed_tokens.weight.data.copy_(source.read("embed"))
    model.model.norm.weight.data.copy_(source.read("norm"))
    for index, layer in enumerate(layers):
        parts = {
            "attn_norm": layer.input_layernorm,
            "q": layer.self_attn.q_proj,
            "k": layer.self_attn.k_proj,
            "v": layer.self_attn.v_proj,
            "o": layer.self_attn.o_proj,
            "ffn_norm": layer.post_attention_layernorm,
            "gate": layer.mlp.gate_proj,
            "up": layer.mlp.up_proj,
            "down": layer.mlp.down_proj,
        }
        for name, module in parts.items():
            module.weight.data.copy_(source.read(f"layers.{index}.{name}"))
    source.close()
    model.tie_weights()
    return model.eval()


def test_only_the_rows_asked_for_get_logits(tiny: LlamaModel) -> None:
    kv = PagedKV(tiny.config, 8, 16, tiny.placement)
    spans = (
        Span(TOKENS[:5], 0, 0, [0]),
        Span(TOKENS[:9], 0, 1, [1]),
        Span(TOKENS[:7], 0, 2, [2]),
    )
    logits = tiny.forward(ForwardBatch(spans), kv)
    assert logits.shape == (3, tiny.config.vocab)
    expected = all_logits(tiny, TOKENS[:9])
    torch.testing.assert_close(logits, expected[[8, 5, 6]], atol=1e-4, rtol=1e-4)


def test_a_chunk_in_the_middle_of_a_prompt_gets_no_logits(tiny: LlamaModel) -> None:
    kv = ContiguousKV(tiny.config, 8, tiny.placement)
    assert tiny.forward(ForwardBatch((Span(TOKENS[:8], 0, 0),)), kv).shape == (0, tiny.config.vocab)


def test_a_position_behind_the_trained_context_is_refused(tiny: LlamaModel) -> None:
    kv = ContiguousKV(tiny.config, 600, tiny.placement)
    with pytest.raises(ContextOverflowError, match="513 tokens do not fit a context of 512"):
        tiny.forward(ForwardBatch((Span([1], 512),)), kv)


def test_weights_are_held_once(tiny: LlamaModel, tiny_hf: PreTrainedModel) -> None:
    assert tiny.weights_bytes == sum(parameter.nbytes for parameter in tiny_hf.parameters())


def test_a_quantised_table_is_not_widened(real_gguf: Path) -> None:
    model = load_model(real_gguf).model
    parameters = 134_515_008
    q8_0_table_bytes = 49_152 * 576 // 32 * 34
    assert model.weights_bytes == 4 * parameters + q8_0_table_bytes


def test_bfloat16_agrees_with_float32_to_its_precision(tiny: LlamaModel, tiny_folder: Path) -> None:
    narrow = load_model(tiny_folder, dtype="bfloat16").model
    assert narrow.placement == Placement.named("bfloat16", "cpu")
    found, expected = all_logits(narrow, TOKENS), all_logits(tiny, TOKENS)
    assert found.dtype == torch.float32
    assert (found - expected).abs().max() <= 0.1 * expected.abs().max()


@pytest.mark.parametrize("spans", [(), (Span([], 0, 0),), (Span([1, 2], 0, 3),), (Span([1], -1),)], ids=str)
def test_a_batch_that_makes_no_sense_is_refused(spans: tuple[Span, ...]) -> None:
    with pytest.raises(ValueError, match="span"):
        ForwardBatch(spans)
