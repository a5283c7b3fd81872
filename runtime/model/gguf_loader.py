"""GGUF as a weight source: names, configuration and row order of llama.cpp, translated once."""

import math
from pathlib import Path
from typing import Final

import gguf
import torch
from torch import Tensor

from runtime.errors import ModelFileCorruptError, UnsupportedArchitectureError, UnsupportedModelFeatureError
from runtime.model.config import SUPPORTED_ARCHITECTURES, ModelConfig
from runtime.model.embedding import DenseEmbedding, Embedding, QuantisedEmbedding
from runtime.model.gguf_file import GGUFFile, MetadataValue, TensorEntry, can_dequantise
from runtime.model.gguf_tokenizer import gguf_tokenizer
from runtime.model.tokenizer import Tokenizer
from runtime.model.weights import weight_shapes

_LAYER_NAMES: Final = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "ffn_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
}
_FLOATS: Final = (
    gguf.GGMLQuantizationType.F32,
    gguf.GGMLQuantizationType.F16,
    gguf.GGMLQuantizationType.BF16,
)
_OTHER_MATHS: Final[dict[str, tuple[str, tuple[MetadataValue, ...]]]] = {
    "rope.scaling.type": ("rope scaling", ("none",)),
    "rope.scaling.factor": ("rope scaling", (0.0, 1.0)),
    "rope.scale_linear": ("rope scaling", (0.0, 1.0)),
    "rope.scaling.attn_factor": ("rope scaling", (0.0, 1.0)),
    "attention.causal": ("attention that looks ahead", (True,)),
    "attention.scale": ("a scale of the attention", (0.0,)),
    "attention.clamp_kqv": ("clamped queries, keys and values", (0.0,)),
    "attention.max_alibi_bias": ("ALiBi", (0.0,)),
    "logit_scale": ("a scale of the logits", (0.0, 1.0)),
    "expert_count": ("experts", (0,)),
}
"""Keys of an architecture that change the computation: what they mean, and the values that change nothing."""
_MODEL_NAMES: Final = {"embed": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight"}


class GGUFSource:
    """Weights of an open GGUF file; every tensor's presence and shape is checked before any is read."""

    def __init__(self, path: Path) -> None:
        self._file = GGUFFile(path)
        try:
            self.config = gguf_config(self._file)
            self._entries = _find_weights(self._file, self.config)
        except BaseException:
            self._file.close()
            raise

    def read(self, name: str) -> Tensor:
        """float32, rows in the order of the Hugging Face layout."""
        weight = torch.from_numpy(self._file.read(self._entries[name]))
        part = name.rsplit(".", 1)[-1]
        if self.config.architecture == "llama" and part in ("q", "k"):
            heads = self.config.heads if part == "q" else self.config.kv_heads
            return _unpermute(weight, heads)
        return weight

    def embedding(self) -> Embedding:
        entry = self._entries["embed"]
        if entry.kind in _FLOATS:
            return DenseEmbedding(torch.from_numpy(self._file.read(entry)))
        return QuantisedEmbedding(self._file.read_packed(entry, 0, entry.shape[0]), entry.kind)

    def tokenizer(self) -> Tokenizer:
        return gguf_tokenizer(self._file)

    def close(self) -> None:
        self._file.close()


def _find_weights(file: GGUFFile, config: ModelConfig) -> dict[str, TensorEntry]:
    entries: dict[str, TensorEntry] = {}
    for name, shape in weight_shapes(config):
        stored = _stored_name(name)
        entry = file.tensors.get(stored)
        if entry is None:
            raise ModelFileCorruptError(file.path, f"tensor {stored} is missing")
        if entry.shape != shape:
            raise ModelFileCorruptError(
                file.path, f"tensor {stored} has shape {entry.shape}, the model needs {shape}"
            )
        if not can_dequantise(entry.kind):
            raise UnsupportedModelFeatureError(
                f"tensor type {entry.kind.name}", f"{stored} in {file.path} cannot be dequantised"
            )
        entries[name] = entry
    # A tensor nobody asked for (an extra bias, scaled rope frequencies, experts) would change the result.
    unused = sorted(file.tensors.keys() - {entry.name for entry in entries.values()})
    if unused:
        raise UnsupportedModelFeatureError(f"tensor {unused[0]}", f"{file.path}: it would not be used")
    return entries


def _unpermute(weight: Tensor, heads: int) -> Tensor:
    """Undo llama.cpp's interleaving of the two rotary halves within each head's rows."""
    rows, columns = weight.shape
    pairs = weight.view(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)


def _stored_name(name: str) -> str:
    if name in _MODEL_NAMES:
        return _MODEL_NAMES[name]
    _, layer, part = name.split(".")
    return f"blk.{layer}.{_LAYER_NAMES[part]}"


def gguf_config(file: GGUFFile) -> ModelConfig:
    """Configuration from the metadata; names the key that is missing, wrong or not supported."""
    metadata = _Metadata(file.path, file.metadata)
    architecture = metadata.text("general.architecture")
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise UnsupportedArchitectureError(architecture, SUPPORTED_ARCHITECTURES)
    metadata.refuse_other_maths(architecture)
    heads = metadata.whole(f"{architecture}.attention.head_count")
    hidden = metadata.whole(f"{architecture}.embedding_length")
    head_dim = metadata.whole(f"{architecture}.attention.key_length", hidden // max(heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if metadata.whole(f"{architecture}.{key}", head_dim) != head_dim:
            raise UnsupportedModelFeatureError(
                f"{architecture}.{key}", f"differs from the head size {head_dim}"
            )
    embedding = file.tensors.get("token_embd.weight")
    try:
        return ModelConfig(
            architecture=architecture,
            hidden=hidden,
            layers=metadata.whole(f"{architecture}.block_count"),
            heads=heads,
            kv_heads=metadata.whole(f"{architecture}.attention.head_count_kv", heads),
            head_dim=head_dim,
            ffn=metadata.whole(f"{architecture}.feed_forward_length"),
            vocab=embedding.shape[0] if embedding else metadata.whole(f"{architecture}.vocab_size"),
            rope_base=metadata.real(f"{architecture}.rope.freq_base", 10000.0),
            rms_eps=metadata.real(f"{architecture}.attention.layer_norm_rms_epsilon"),
            context_tokens=metadata.whole(f"{architecture}.context_length"),
            tied_head="output.weight" not in file.tensors,
        )
    except ValueError as error:
        raise ModelFileCorruptError(file.path, str(error)) from error


class _Metadata:
    """Typed look-ups; a wrong type or a missing key without a default is a corrupt file."""

    def __init__(self, path: Path, values: dict[str, MetadataValue]) -> None:
        self._path = path
        self._values = values

    def text(self, key: str) -> str:
        value = self._values.get(key)
        if not isinstance(value, str):
            raise self._other_than("a text", key, value)
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._other_than("a whole number", key, value)
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self._values.get(key, default)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise self._other_than("a number", key, value)
        return float(value)

    def _other_than(self, wanted: str, key: str, value: MetadataValue | None) -> ModelFileCorruptError:
        # A value may be a list of a million.
        return ModelFileCorruptError(self._path, f"metadata {key} is not {wanted} but {value!r:.80}")

    def refuse_other_maths(self, architecture: str) -> None:
        """UnsupportedModelFeatureError for a key that asks for another computation than ours."""
        for key, (feature, neutral) in _OTHER_MATHS.items():
            value = self._values.get(f"{architecture}.{key}")
            if value is not None and value not in neutral:
                raise UnsupportedModelFeatureError(
                    feature, f"{self._path}: {architecture}.{key} is {value!r:.80}"
                )
