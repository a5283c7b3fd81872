"""The weights of a decoder as they are held in memory: what every tier of kernels computes with."""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.model.config import ModelConfig
from runtime.model.embedding import Embedding, TiedEmbedding
from runtime.model.linear import Linear, LinearMaker, PlainLinear
from runtime.model.numeric import Placement
from runtime.model.weights import WeightSource


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. qkv [heads + 2 kv_heads, head_dim] rows; gate_up: gate's rows, then up's.

    qk_norm: [heads + kv_heads, head_dim], qwen3 only.
    """

    attn_norm: Tensor
    qkv: Linear
    qk_norm: Tensor | None
    o: Linear
    ffn_norm: Tensor
    gate_up: Linear
    down: Linear

    @property
    def linears(self) -> tuple[Linear, ...]:
        return self.qkv, self.o, self.gate_up, self.down

    @property
    def norms(self) -> tuple[Tensor, ...]:
        held = (self.attn_norm, self.ffn_norm, self.qk_norm)
        return tuple(norm for norm in held if norm is not None)


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All of them, each once: linears as the tier wants them, norms and tables in the placement's dtype."""

    config: ModelConfig
    placement: Placement
    embedding: Embedding
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear

    @classmethod
    def read(cls, source: WeightSource, placement: Placement, make: LinearMaker) -> "DecoderWeights":
        """Reads one layer at a time and keeps only the fused copies."""
        config = source.config
        embedding = source.embedding().to(placement)
        # The head first: it is the largest, and what it is made from exists beside it for a moment.
        head = make(placement.put(source.read("embed" if config.tied_head else "head")), None)
        if config.tied_head and isinstance(head, PlainLinear):
            embedding = TiedEmbedding(head.weight)
        layers = tuple(_read_layer(source, index, placement, make) for index in range(config.layers))
        return cls(config, placement, embedding, layers, placement.put(source.read("norm")), head)

    @property
    def inverse_wavelengths(self) -> Tensor:
        """[head_dim / 2] float32, on the CPU: how fast each pair of a head turns with its position."""
        head_dim = self.config.head_dim
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        return 1.0 / self.config.rope_base**exponents

    @property
    def size_bytes(self) -> int:
        """Bytes of all weights as they are held."""
        linears = [self.head, *(linear for layer in self.layers for linear in layer.linears)]
        norms = [self.norm, *(norm for layer in self.layers for norm in layer.norms)]
        return (
            self.embedding.table_bytes
            + sum(linear.weight_bytes for linear in linears)
            + sum(norm.nbytes for norm in norms)
        )


def _read_layer(source: WeightSource, index: int, placement: Placement, make: LinearMaker) -> LayerWeights:
    config = source.config

    def read(*parts: str) -> Tensor:
        pieces = [source.read(f"layers.{index}.{part}") for part in parts]
        return placement.put(pieces[0] if len(pieces) == 1 else torch.cat(pieces))

    qk_norm = None
    if config.has_qk_norm:
        qk_norm = torch.stack([read("q_norm")] * config.heads + [read("k_norm")] * config.kv_heads)
    qkv_bias = read("q_bias", "k_bias", "v_bias") if config.has_qkv_bias else None
    return LayerWeights(
        attn_norm=read("attn_norm"),
        qkv=make(read("q", "k", "v"), qkv_bias),
        qk_norm=qk_norm,
        o=make(read("o"), None),
        ffn_norm=read("ffn_norm"),
        gate_up=make(read("gate", "up"), None),
        down=make(read("down"), None),
    )
