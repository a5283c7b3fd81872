"""A Hugging Face folder as a weight source: config.json and one or several safetensors files."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtime.errors import (
    ModelFileCorruptError,
    ModelFileMissingError,
    UnsupportedArchitectureError,
    UnsupportedModelFeatureError,
)
from runtime.model.config import SUPPORTED_ARCHITECTURES, ModelConfig
from runtime.model.embedding import DenseEmbedding, Embedding
from runtime.model.tokenizer import Tokenizer, folder_tokenizer
from runtime.model.weights import weight_shapes

_LAYER_NAMES: Final = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
}
_MODEL_NAMES: Final = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
}
_IGNORED_SUFFIXES: Final = (".rotary_emb.inv_freq",)
_FLOATS: Final = (torch.float32, torch.bfloat16, torch.float16)
_ROPE_BASE: Final = 10000.0


class RopeSettings(BaseModel):
    """`rope_parameters` (transformers 5) or `rope_scaling` (transformers 4), in the spellings of both."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    rope_type: str = ""
    type: str = "default"
    """The older name, which counts where `rope_type` is not there."""
    rope_theta: float | None = None
    partial_rotary_factor: float = 1.0
    full_attention: None = None
    sliding_attention: None = None
    """Settings per kind of layer."""

    @property
    def kind(self) -> str:
        return self.rope_type or self.type


class HFConfig(BaseModel):
    """What we read of config.json. Other keys are the exporter's business: they do not change the maths."""

    # strict: text or a truth value in place of a number is a damaged file, not another spelling.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int
    vocab_size: int
    rope_theta: float | None = None
    rope_parameters: RopeSettings | None = None
    rope_scaling: RopeSettings | None = None
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False
    use_sliding_window: Literal[False] = False
    layer_types: list[Literal["full_attention"]] | None = None
    is_causal: Literal[True] = True
    quantization_config: None = None


class SafetensorsSource:
    """Weights of a folder; every tensor's presence and shape is checked before any is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = hf_config(folder)
        self._stack = ExitStack()
        try:
            self._file_of = self._open(_weight_files(folder))
            self._check_shapes()
        except BaseException:
            self._stack.close()
            raise

    def read(self, name: str) -> Tensor:
        return self._stored(name).to(torch.float32)

    def embedding(self) -> Embedding:
        return DenseEmbedding(self._stored("embed").clone())

    def tokenizer(self) -> Tokenizer:
        return folder_tokenizer(self.folder)

    def close(self) -> None:
        self._stack.close()

    def _stored(self, name: str) -> Tensor:
        stored = _stored_name(name)
        tensor: Tensor = self._file_of[stored].get_tensor(stored)
        if tensor.dtype not in _FLOATS:
            raise UnsupportedModelFeatureError(f"tensor type {tensor.dtype}", f"{stored} in {self.folder}")
        return tensor

    def _open(self, paths: list[Path]) -> dict[str, Any]:
        file_of: dict[str, Any] = {}
        for path in paths:
            if not path.is_file():
                raise ModelFileMissingError(path, "the index names it, but it is not there")
            # Ours says why a file cannot be read, safetensors that there is none.
            path.open("rb").close()
            try:
                # safetensors checks that header and offsets agree with the file's size.
                handle = self._stack.enter_context(safe_open(path, framework="pt"))
            except SafetensorError as error:
                raise ModelFileCorruptError(path, f"not a whole safetensors file: {error}") from error
            file_of |= dict.fromkeys(handle.keys(), handle)
        return file_of

    def _check_shapes(self) -> None:
        known = set()
        for name, shape in weight_shapes(self.config):
            stored = _stored_name(name)
            known.add(stored)
            if stored not in self._file_of:
                raise ModelFileCorruptError(self.folder, f"tensor {stored} is missing")
            found = tuple(self._file_of[stored].get_slice(stored).get_shape())
            if found != shape:
                raise ModelFileCorruptError(
                    self.folder, f"tensor {stored} has shape {found}, the model needs {shape}"
                )
        if self.config.tied_head:
            known.add(_MODEL_NAMES["head"])
        for stored in sorted(self._file_of.keys() - known):
            if not stored.endswith(_IGNORED_SUFFIXES):
                raise UnsupportedModelFeatureError(f"tensor {stored}", f"{self.folder}: it would not be used")


def _stored_name(name: str) -> str:
    if name in _MODEL_NAMES:
        return _MODEL_NAMES[name]
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}"


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        single = folder / "model.safetensors"
        if not single.is_file():
            raise ModelFileMissingError(single, "the folder has neither this file nor an index of shards")
        return [single]
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        # A shard is a file of this folder: an index must not make us open others.
        if not all(Path(name).name == name for name in names):
            raise ValueError("a shard outside the folder")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileCorruptError(index, f"not an index of shards: {error}") from error
    return [folder / name for name in names]


def hf_config(folder: Path) -> ModelConfig:
    """Configuration from config.json; names the key that is missing, wrong or not supported."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelFileMissingError(path)
    raw = path.read_bytes()
    try:
        model_type = json.loads(raw)["model_type"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileCorruptError(path, f"not a model configuration: {error!r}") from error
    if model_type not in SUPPORTED_ARCHITECTURES:
        raise UnsupportedArchitectureError(str(model_type), SUPPORTED_ARCHITECTURES)
    try:
        config = HFConfig.model_validate_json(raw)
    except ValidationError as error:
        raise _refusal(path, error) from error
    try:
        return _model_config(config, path)
    except ValueError as error:
        raise ModelFileCorruptError(path, str(error)) from error


def _refusal(path: Path, error: ValidationError) -> ModelFileCorruptError | UnsupportedModelFeatureError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] in ("literal_error", "none_required"):
        return UnsupportedModelFeatureError(key, f"{path}: {first['input']!r} is not supported")
    return ModelFileCorruptError(path, f"{key}: {first['msg']}")


def _rope_base(config: HFConfig, path: Path) -> float:
    """The base that transformers would use; UnsupportedModelFeatureError for positions computed otherwise."""
    settings = [rope for rope in (config.rope_scaling, config.rope_parameters) if rope is not None]
    for rope in settings:
        if rope.kind != "default":
            raise UnsupportedModelFeatureError("rope scaling", f"{path}: {rope.kind}")
        if rope.partial_rotary_factor != 1.0:
            raise UnsupportedModelFeatureError(
                "partial_rotary_factor", f"{path}: {rope.partial_rotary_factor}"
            )
    named = [*(rope.rope_theta for rope in settings), config.rope_theta]
    return next((base for base in named if base is not None), _ROPE_BASE)


def _model_config(config: HFConfig, path: Path) -> ModelConfig:
    heads = config.num_attention_heads
    kv_heads, head_dim = config.num_key_value_heads, config.head_dim
    return ModelConfig(
        architecture=config.model_type,
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=config.hidden_size // max(heads, 1) if head_dim is None else head_dim,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        rope_base=_rope_base(config, path),
        rms_eps=config.rms_norm_eps,
        context_tokens=config.max_position_embeddings,
        tied_head=config.tie_word_embeddings,
    )
