"""The model's weights as the kernels of a decode step take them: plain tensors, nothing copied."""

from dataclasses import dataclass

from torch import Tensor

from runtime.model.config import ModelConfig
from runtime.model.decoder_weights import DecoderWeights, LayerWeights
from runtime.model.embedding import DenseEmbedding, TiedEmbedding
from runtime.model.linear import Linear, PlainLinear


@dataclass(frozen=True, slots=True)
class StepLayer:
    """Weights [out, in] of one layer; bias and head norms where the family has them."""

    attn_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    o: Tensor
    ffn_norm: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def of(cls, layer: LayerWeights) -> "StepLayer":
        return cls(
            attn_norm=layer.attn_norm,
            qkv=_plain(layer.qkv).weight,
            qkv_bias=_plain(layer.qkv).bias,
            qk_norm=layer.qk_norm,
            o=_plain(layer.o).weight,
            ffn_norm=layer.ffn_norm,
            gate_up=_plain(layer.gate_up).weight,
            down=_plain(layer.down).weight,
        )


@dataclass(frozen=True, slots=True)
class StepWeights:
    """table [vocab, hidden] may be the head itself and may be of any precision."""

    config: ModelConfig
    table: Tensor
    wavelengths: Tensor
    layers: tuple[StepLayer, ...]
    norm: Tensor
    head: Tensor

    @classmethod
    def of(cls, weights: DecoderWeights) -> "StepWeights":
        """ValueError for weights that only the aten tier can read (quantised, or packed by torch)."""
        embedding = weights.embedding
        if isinstance(embedding, TiedEmbedding):
            table = embedding.head
        elif isinstance(embedding, DenseEmbedding):
            table = embedding.table
        else:
            raise ValueError(f"{type(embedding).__name__} is not a table that a kernel can read")
        return cls(
            config=weights.config,
            table=table,
            wavelengths=weights.inverse_wavelengths.to(weights.placement.device),
            layers=tuple(StepLayer.of(layer) for layer in weights.layers),
            norm=weights.norm,
            head=_plain(weights.head).weight,
        )


def _plain(linear: Linear) -> PlainLinear:
    if not isinstance(linear, PlainLinear):
        raise ValueError(f"{type(linear).__name__} keeps its weight in a layout of its own")
    return linear
