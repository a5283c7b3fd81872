"""The decoder of the Llama family. Both arms run this code; only the KV store they hand in differs."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

from runtime.errors import ContextOverflowError
from runtime.model.config import ModelConfig
from runtime.model.embedding import Embedding
from runtime.model.forward_batch import ForwardBatch, KVStore, StepAttention
from runtime.model.linear import Linear, make_linear
from runtime.model.numeric import Placement
from runtime.model.weights import WeightSource


@dataclass(frozen=True, slots=True)
class _Layer:
    attn_norm: Tensor
    qkv: Linear
    qk_norm: Tensor | None
    """[heads + kv_heads, head_dim], qwen3 only."""
    o: Linear
    ffn_norm: Tensor
    gate_up: Linear
    down: Linear


class LlamaModel:
    """Weights and forward. `build` reads the weights one layer at a time and keeps only the fused copies."""

    def __init__(self, config: ModelConfig, embedding: Embedding, placement: Placement) -> None:
        self.config = config
        self.placement = placement
        self._embedding = embedding
        self._layers: list[_Layer] = []
        self._norm: Tensor
        self._head: Linear
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        self._inverse_wavelengths = (1.0 / config.rope_base**exponents).to(placement.device)

    @classmethod
    def build(cls, source: WeightSource, placement: Placement) -> "LlamaModel":
        config = source.config
        model = cls(config, source.embedding().to(placement), placement)
        # The head first: it is the largest, and its plain and packed copies exist together for a moment.
        model._head = make_linear(placement.put(source.read("embed" if config.tied_head else "head")))
        model._norm = placement.put(source.read("norm"))
        model._layers = [_read_layer(source, index, placement) for index in range(config.layers)]
        return model

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weights as they are held."""
        linears = [
            linear for layer in self._layers for linear in (layer.qkv, layer.o, layer.gate_up, layer.down)
        ]
        norms = [norm for layer in self._layers for norm in (layer.attn_norm, layer.ffn_norm, layer.qk_norm)]
        return (
            self._embedding.table_bytes
            + self._norm.nbytes
            + sum(linear.weight_bytes for linear in [self._head, *linears])
            + sum(norm.nbytes for norm in norms if norm is not None)
        )

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kv: KVStore) -> Tensor:
        """Logits [n, vocab] float32 of the rows that the spans ask for, in span order; n may be 0.

        Writes K and V of all rows into `kv`. ContextOverflowError for a position that was never trained.
        """
        longest = max(span.context_tokens for span in batch.spans)
        if longest > self.config.context_tokens:
            raise ContextOverflowError(longest, self.config.context_tokens)
        device = self.placement.device
        token_ids = torch.tensor([token for span in batch.spans for token in span.token_ids], device=device)
        attention = kv.begin(batch)
        cos, sin = self._rotations(batch)
        x = self._embedding.rows(token_ids)
        for index, layer in enumerate(self._layers):
            x = self._block(x, index, layer, attention, (cos, sin))
        wanted = batch.logit_rows()
        if len(wanted) < batch.tokens:
            x = x.index_select(0, torch.tensor(wanted, dtype=torch.int64, device=device))
        if not wanted:
            return x.new_empty(0, self.config.vocab, dtype=torch.float32)
        return self._head(self._normalise(x, self._norm)).float()

    def _rotations(self, batch: ForwardBatch) -> tuple[Tensor, Tensor]:
        """cos and signed sin [T, 1, head_dim] of the batch's positions, computed in float32."""
        positions = torch.cat(
            [
                torch.arange(span.start_tokens, span.context_tokens, dtype=torch.float32)
                for span in batch.spans
            ]
        ).to(self._inverse_wavelengths.device)
        angles = positions.unsqueeze(1) * self._inverse_wavelengths
        cos, sin = angles.cos(), angles.sin()
        dtype = self.placement.dtype
        return (
            torch.cat([cos, cos], dim=1).unsqueeze(1).to(dtype),
            torch.cat([-sin, sin], dim=1).unsqueeze(1).to(dtype),
        )

    def _block(
        self, x: Tensor, index: int, layer: _Layer, attention: StepAttention, rotations: tuple[Tensor, Tensor]
    ) -> Tensor:
        config = self.config
        qkv = layer.qkv(self._normalise(x, layer.attn_norm)).view(len(x), -1, config.head_dim)
        queries_keys = qkv[:, : config.heads + config.kv_heads]
        if layer.qk_norm is not None:
            normalised = F.rms_norm(queries_keys, (config.head_dim,), eps=config.rms_eps)
            queries_keys.copy_(normalised * layer.qk_norm)
        # Rotary positions over halves, in place: (a, b) -> (a cos - b sin, b cos + a sin).
        cos, sin = rotations
        swapped = torch.roll(queries_keys, config.head_dim // 2, dims=-1)
        queries_keys.mul_(cos).addcmul_(swapped, sin)
        kv = qkv[:, config.heads :].view(len(x), 2, config.kv_heads, config.head_dim)
        attended = attention.attend(index, qkv[:, : config.heads], kv)
        x = layer.o(attended).add_(x)
        gate, up = layer.gate_up(self._normalise(x, layer.ffn_norm)).chunk(2, dim=-1)
        return layer.down(F.silu(gate).mul_(up)).add_(x)

    def _normalise(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_eps)


def _read_layer(source: WeightSource, index: int, placement: Placement) -> _Layer:
    config = source.config

    def read(*parts: str) -> Tensor:
        return placement.put(torch.cat([source.read(f"layers.{index}.{part}") for part in parts]))

    qk_norm = None
    if config.has_qk_norm:
        head_norms = [read("q_norm")] * config.heads + [read("k_norm")] * config.kv_heads
        qk_norm = torch.stack(head_norms)
    return _Layer(
        attn_norm=read("attn_norm"),
        qkv=make_linear(
            read("q", "k", "v"), read("q_bias", "k_bias", "v_bias") if config.has_qkv_bias else None
        ),
        qk_norm=qk_norm,
        o=make_linear(read("o")),
        ffn_norm=read("ffn_norm"),
        gate_up=make_linear(read("gate", "up")),
        down=make_linear(read("down")),
    )
