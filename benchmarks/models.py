"""One set of weights in every form that a peer reads: a Hugging Face folder and GGUF files."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

from runtime.bench.cli import demo_model
from runtime.model.gguf_file import GGUFFile
from runtime.model.gguf_loader import GGUFSource
from runtime.model.weights import WeightSource, weight_shapes

Weights = Iterator[tuple[str, torch.Tensor]]

_HF_LAYER: Final = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
_HF_MODEL: Final = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight"}
_GGUF_LAYER: Final = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "ffn_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}
_GGUF_MODEL: Final = {"embed": "token_embd.weight", "norm": "output_norm.weight"}
_GGUF_TYPES: Final = {
    "float32": (gguf.GGMLQuantizationType.F32, 0),
    "bfloat16": (gguf.GGMLQuantizationType.BF16, 32),
}
_SEED: Final = 20_261_129


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder of the Llama family with the tokenizer of SmolLM2 and a tied head."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    is_random: bool

    def config(self, dtype: str) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 49_152,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "rope_theta": 100_000.0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
            "dtype": dtype,
            "torch_dtype": dtype,
        }


SHAPES: Final = {
    shape.name: shape
    for shape in (
        Shape("smollm2-135m", 576, 30, 9, 3, 64, 1536, is_random=False),
        Shape("random-264m", 1024, 17, 16, 8, 64, 3072, is_random=True),
    )
}


def export(shape: Shape, dtype: str, folder: Path) -> Path:
    """Makes folder/hf and folder/model.gguf in `dtype` unless they are there; returns `folder`."""
    done = folder / "exported.json"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with closing(GGUFSource(demo_model())) as source:
        _write_folder(shape, dtype, source, folder / "hf")
        _write_gguf(shape, dtype, source, folder / "model.gguf")
    digests = {path.name: _sha256(path) for path in (folder / "hf/model.safetensors", folder / "model.gguf")}
    unfinished = done.with_suffix(".new")
    unfinished.write_text(json.dumps({"shape": shape.name, "dtype": dtype, "sha256": digests}, indent=1))
    os.replace(unfinished, done)
    return folder


def _weights(shape: Shape, source: WeightSource) -> Weights:
    """float32 weights by the runtime's names, rows in the order of Hugging Face."""
    if not shape.is_random:
        for name, _ in weight_shapes(source.config):
            yield name, source.read(name)
        return
    draws = torch.Generator().manual_seed(_SEED)
    for name, size in _random_sizes(shape):
        is_norm = len(size) == 1
        yield name, torch.ones(size) if is_norm else torch.randn(size, generator=draws) * size[-1] ** -0.5


def _random_sizes(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    q_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "embed", (49_152, shape.hidden)
    yield "norm", (shape.hidden,)
    for layer in range(shape.layers):
        for part, size in {
            "attn_norm": (shape.hidden,),
            "q": (q_width, shape.hidden),
            "k": (kv_width, shape.hidden),
            "v": (kv_width, shape.hidden),
            "o": (shape.hidden, q_width),
            "ffn_norm": (shape.hidden,),
            "gate": (shape.ffn, shape.hidden),
            "up": (shape.ffn, shape.hidden),
            "down": (shape.hidden, shape.ffn),
        }.items():
            yield f"layers.{layer}.{part}", size


def _write_folder(shape: Shape, dtype: str, source: GGUFSource, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    kind = getattr(torch, dtype)
    tensors = {
        _renamed(name, _HF_MODEL, "model.layers", _HF_LAYER): tensor.to(kind).contiguous()
        for name, tensor in _weights(shape, source)
    }
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(shape.config(dtype), indent=1))
    source.tokenizer().save(folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}, indent=1)
    )
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))


def _write_gguf(shape: Shape, dtype: str, source: GGUFSource, path: Path) -> None:
    """Metadata and tokenizer of the demo's file; sizes and weights of the shape."""
    kind, file_type = _GGUF_TYPES[dtype]
    writer = gguf.GGUFWriter(path, "llama")
    with closing(GGUFFile(demo_model())) as demo:
        metadata = {**demo.metadata, **_sizes_of(shape, file_type)}
    for name, value in metadata.items():
        if name != "general.architecture":
            writer.add_key_value(name, value, _value_type(value))
    for name, tensor in _weights(shape, source):
        array = _permuted(name, shape, tensor).numpy()
        stored = _renamed(name, _GGUF_MODEL, "blk", _GGUF_LAYER)
        if array.ndim == 1:
            writer.add_tensor(stored, array.astype(np.float32))
        else:
            writer.add_tensor(stored, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _value_type(value: Any) -> gguf.GGUFValueType:
    """As llama.cpp writes them: a whole number is unsigned, but for those in lists."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return gguf.GGUFValueType.UINT32 if is_whole else gguf.GGUFValueType.get_type(value)


def _sizes_of(shape: Shape, file_type: int) -> dict[str, int]:
    return {
        "general.file_type": file_type,
        "llama.block_count": shape.layers,
        "llama.embedding_length": shape.hidden,
        "llama.feed_forward_length": shape.ffn,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.rope.dimension_count": shape.head_dim,
    }


def _permuted(name: str, shape: Shape, tensor: torch.Tensor) -> torch.Tensor:
    """llama.cpp interleaves the two rotary halves within each head's rows of q and k."""
    part = name.rsplit(".", 1)[-1]
    if part not in ("q", "k"):
        return tensor
    heads = shape.heads if part == "q" else shape.kv_heads
    rows, columns = tensor.shape
    halves = tensor.view(heads, 2, rows // heads // 2, columns)
    return halves.transpose(1, 2).reshape(rows, columns).contiguous()


def _renamed(name: str, of_model: dict[str, str], prefix: str, of_layer: dict[str, str]) -> str:
    if name in of_model:
        return of_model[name]
    _, layer, part = name.split(".")
    return f"{prefix}.{layer}.{of_layer[part]}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
