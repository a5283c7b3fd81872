"""Random models of each family, as small as the architecture allows, loaded in no time."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from safetensors.numpy import save_file

from runtime.model.llama import LlamaModel
from runtime.model.numeric import Placement
from runtime.tiers.choice import choose_tier
from tests.fakes.loaded_model import load_model
from tests.fakes.tiny_model import CONTEXT_TOKENS, POISON, save_tiny_model

FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
VOCABULARY = 260
POISON_ID = VOCABULARY - 1
"""The last special token of the tiny model, POISON: whoever has it in a prompt gets broken logits."""
_HIDDEN, _HEADS, _KV_HEADS, _HEAD_DIM, _FFN, _LAYERS = 24, 4, 2, 8, 16, 2


@cache
def tiers() -> tuple[str, ...]:
    """The tiers of kernels that work on this machine's processor."""
    placement = Placement.named("float32", "cpu")
    return tuple(name for name in ("aten", "native") if choose_tier(name, placement).name == name)


@cache
def small_model(family: str, tier: str = "aten") -> LlamaModel:
    """The same weights at every call."""
    with TemporaryDirectory() as folder:
        return load_model(save_small_model(family, Path(folder)), tier=tier).model


def save_small_model(family: str, folder: Path) -> Path:
    """A Hugging Face folder with the tiny model's tokenizer, which has POISON at its end."""
    assert POISON
    save_tiny_model(folder)
    config = {
        "architectures": [FAMILIES[family]],
        "model_type": family,
        "hidden_size": _HIDDEN,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "head_dim": _HEAD_DIM,
        "intermediate_size": _FFN,
        "vocab_size": VOCABULARY,
        "rope_theta": 1000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT_TOKENS,
        "tie_word_embeddings": False,
        "eos_token_id": 256,
    }
    if family == "qwen2":  # heads make up the hidden size there
        config |= {"hidden_size": _HEADS * _HEAD_DIM}
        del config["head_dim"]
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(family, int(config["hidden_size"])), str(folder / "model.safetensors"))
    return folder


def _weights(family: str, hidden: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)

    def drawn(*shape: int, spread: float = 0.35) -> np.ndarray:
        return random.normal(0.0, spread, shape).astype(np.float32)

    query, key = _HEADS * _HEAD_DIM, _KV_HEADS * _HEAD_DIM
    embedding = drawn(VOCABULARY, hidden, spread=1.0)
    embedding[POISON_ID] = np.nan
    weights = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": 1 + drawn(hidden, spread=0.1),
        "lm_head.weight": drawn(VOCABULARY, hidden),
    }
    for layer in range(_LAYERS):
        parts = {
            "self_attn.q_proj.weight": drawn(query, hidden),
            "self_attn.k_proj.weight": drawn(key, hidden),
            "self_attn.v_proj.weight": drawn(key, hidden),
            "self_attn.o_proj.weight": drawn(hidden, query),
            "mlp.gate_proj.weight": drawn(_FFN, hidden),
            "mlp.up_proj.weight": drawn(_FFN, hidden),
            "mlp.down_proj.weight": drawn(hidden, _FFN),
            "input_layernorm.weight": 1 + drawn(hidden, spread=0.1),
            "post_attention_layernorm.weight": 1 + drawn(hidden, spread=0.1),
        }
        if family == "qwen2":
            widths = {"q": query, "k": key, "v": key}
            parts |= {f"self_attn.{name}_proj.bias": drawn(width) for name, width in widths.items()}
        if family == "qwen3":
            parts |= {f"self_attn.{name}_norm.weight": 1 + drawn(_HEAD_DIM, spread=0.1) for name in "qk"}
        weights |= {f"model.layers.{layer}.{name}": value for name, value in parts.items()}
    return weights
