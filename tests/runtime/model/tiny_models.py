"""Small random models: a Hugging Face folder through transformers, a GGUF through gguf's writer."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel

from runtime.model.config import ModelConfig
from runtime.model.llama import LlamaModel
from runtime.model.numeric import ON_CPU
from runtime.model.safetensors_loader import SafetensorsSource
from runtime.tiers.choice import build_model

FAMILIES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
}
SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "rope_theta": 5000.0,
    "rms_norm_eps": 1e-5,
}
TEXT = "the prefix cache keeps blocks of tokens; a block table says which. " * 8
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def random_model(family: str, **overrides: Any) -> PreTrainedModel:
    """A seeded random transformers model whose logits spread enough for argmax to mean something."""
    config_class, model_class = FAMILIES[family]
    torch.manual_seed(7)
    settings = SIZES | overrides
    settings["rope_parameters"] = {"rope_type": "default", "rope_theta": settings.pop("rope_theta")}
    if family == "qwen3":  # heads need not add up to the hidden size there
        settings["head_dim"] = 16
    model = model_class(config_class(**settings))
    for parameter in model.parameters():
        is_norm = parameter.ndim == 1 and bool((parameter == 1).all())
        torch.nn.init.normal_(parameter, mean=1.0 if is_norm else 0.0, std=0.3)
    return model.eval()


def save(model: PreTrainedModel, folder: Path, **settings: Any) -> Path:
    """As transformers saves it, with a tokenizer.json beside it."""
    model.save_pretrained(folder, **settings)
    trained_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def trained_tokenizer() -> tokenizers.Tokenizer:
    """A byte-level BPE over TEXT with 300 tokens at most."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(CONTROL_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def ours(folder: Path) -> LlamaModel:
    source = SafetensorsSource(folder)
    try:
        return build_model(source, ON_CPU)
    finally:
        source.close()


@dataclass
class GGUFRecipe:
    """What `write_gguf` puts into the file; tests change one thing and expect one refusal."""

    metadata: dict[str, Any]
    tensors: dict[str, np.ndarray]

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, arch=self.metadata.get("general.architecture", "llama"))
        for key, value in self.metadata.items():
            if key != "general.architecture":
                _ADDERS[type(value)](writer, key, value)
        for name, tensor in self.tensors.items():
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


_ADDERS: Mapping[type, Any] = {
    int: gguf.GGUFWriter.add_uint32,
    float: gguf.GGUFWriter.add_float32,
    str: gguf.GGUFWriter.add_string,
    list: gguf.GGUFWriter.add_array,
}


def gguf_recipe(model: PreTrainedModel, pre: str = "gpt-2") -> GGUFRecipe:
    """A transformers model as llama.cpp's converter writes it: its names, its interleaved q and k rows."""
    config = model_config(model)
    arch = config.architecture
    metadata = {
        "general.architecture": arch,
        f"{arch}.block_count": config.layers,
        f"{arch}.context_length": config.context_tokens,
        f"{arch}.embedding_length": config.hidden,
        f"{arch}.feed_forward_length": config.ffn,
        f"{arch}.attention.head_count": config.heads,
        f"{arch}.attention.head_count_kv": config.kv_heads,
        f"{arch}.attention.key_length": config.head_dim,
        f"{arch}.attention.value_length": config.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": config.rms_eps,
        f"{arch}.rope.freq_base": config.rope_base,
    }
    return GGUFRecipe(metadata | tokenizer_metadata(pre), dict(_gguf_tensors(model, config)))


def model_config(model: PreTrainedModel) -> ModelConfig:
    config = model.config
    return ModelConfig(
        architecture=config.model_type,
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        rope_base=config.rope_parameters["rope_theta"],
        rms_eps=config.rms_norm_eps,
        context_tokens=config.max_position_embeddings,
        tied_head=config.tie_word_embeddings,
    )


def tokenizer_metadata(pre: str) -> dict[str, Any]:
    tokenizer = trained_tokenizer()
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    tokens = [token for token, _ in vocabulary]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in CONTROL_TOKENS else 1 for token in tokens],
        "tokenizer.ggml.merges": bpe_merges(tokenizer),
        "tokenizer.ggml.eos_token_id": 2,
    }


def bpe_merges(tokenizer: tokenizers.Tokenizer) -> list[str]:
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [" ".join(merge) for merge in merges]


_LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_tensors(model: PreTrainedModel, config: ModelConfig) -> Iterator[tuple[str, np.ndarray]]:
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for layer in range(config.layers):
        names |= {f"model.layers.{layer}.{hf}": f"blk.{layer}.{ggml}" for hf, ggml in _LAYER_TENSORS.items()}
    for name, tensor in model.state_dict().items():
        module, _, kind = name.rpartition(".")
        if module == "lm_head" and config.tied_head:
            continue
        array = tensor.numpy()
        if config.architecture == "llama" and module.endswith(("q_proj", "k_proj")):
            array = _interleave_halves(array, config.head_dim)
        yield f"{names[module]}.{kind}", array


def _interleave_halves(array: np.ndarray, head_dim: int) -> np.ndarray:
    heads = array.reshape(-1, 2, head_dim // 2, array.shape[-1])
    return np.ascontiguousarray(heads.swapaxes(1, 2).reshape(array.shape))
