"""A random Llama small enough for every test, saved as a Hugging Face folder with a byte-level tokenizer.

The token `<|poison|>` has an embedding that is not a number: whoever has it in a prompt gets broken logits.
"""

import json
from pathlib import Path

import numpy as np
import tokenizers
from safetensors.numpy import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers

POISON = "<|poison|>"
CONTEXT_TOKENS = 512
_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", POISON)
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 256 + len(_SPECIALS),
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "max_position_embeddings": CONTEXT_TOKENS,
    "tie_word_embeddings": False,
    "eos_token_id": 256,
}


def save_tiny_model(folder: Path, **changes: object) -> Path:
    """`changes` replace entries of config.json, the weights keep their shapes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG | changes))
    _tokenizer().save(str(folder / "tokenizer.json"))
    save_file(_weights(), str(folder / "model.safetensors"))
    return folder


def _tokenizer() -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE({token: index for index, token in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIALS])
    return inner


def _weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    hidden, vocab, ffn, kv_width = 64, 256 + len(_SPECIALS), 128, 32

    def matrix(rows: int, columns: int) -> np.ndarray:
        return random.normal(0.0, 0.15, (rows, columns)).astype(np.float32)

    embedding = random.normal(0.0, 1.0, (vocab, hidden)).astype(np.float32)
    embedding[-1] = np.nan
    weights = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": np.ones(hidden, np.float32),
        "lm_head.weight": matrix(vocab, hidden),
    }
    for layer in range(2):
        shapes = {
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (kv_width, hidden),
            "self_attn.v_proj": (kv_width, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (ffn, hidden),
            "mlp.up_proj": (ffn, hidden),
            "mlp.down_proj": (hidden, ffn),
        }
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = matrix(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = np.ones(hidden, np.float32)
    return weights
