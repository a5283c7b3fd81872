"""The decoder of the Llama family. Every arm and every tier of kernels run this code or stand in for it."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

from runtime.errors import ContextOverflowError
from runtime.model.decoder_weights import DecoderWeights, LayerWeights
from runtime.model.forward_batch import ForwardBatch, KVStore, StepAttention
from runtime.model.tier import Tier


class LlamaModel:
    """Weights and forward. A tier that takes a batch whole computes it; others go layer by layer."""

    def __init__(self, weights: DecoderWeights, tier: Tier) -> None:
        self.config = weights.config
        self.placement = weights.placement
        self.tier = tier.name
        self._weights = weights
        self._tier = tier
        self._inverse_wavelengths = weights.inverse_wavelengths.to(self.placement.device)

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weights as they are held."""
        return self._weights.size_bytes

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kv: KVStore) -> Tensor:
        """Logits [n, vocab] float32 of the rows that the spans ask for, in span order; n may be 0.

        Writes K and V of all rows into `kv`. ContextOverflowError for a position that was never trained.
        """
        longest = max(span.context_tokens for span in batch.spans)
        if longest > self.config.context_tokens:
            raise ContextOverflowError(longest, self.config.context_tokens)
        logits = self._tier.step(batch, kv)
        return self._layer_by_layer(batch, kv) if logits is None else logits

    def _layer_by_layer(self, batch: ForwardBatch, kv: KVStore) -> Tensor:
        weights, device = self._weights, self.placement.device
        token_ids = torch.tensor([token for span in batch.spans for token in span.token_ids], device=device)
        attention = self._tier.attention(batch, kv)
        x = weights.embedding.rows(token_ids)
        rotations = self._rotations(batch)
        for index, layer in enumerate(weights.layers[:-1]):
            x = self._feed_forward(self._attend(x, index, layer, attention, rotations), layer)
        last = weights.layers[-1]
        x = self._attend(x, len(weights.layers) - 1, last, attention, rotations)
        # Behind the last layer's keys and values, rows whose logits nobody wants change nothing.
        wanted = batch.logit_rows()
        if not wanted:
            return x.new_empty(0, self.config.vocab, dtype=torch.float32)
        if len(wanted) < batch.tokens:
            x = x.index_select(0, torch.tensor(wanted, dtype=torch.int64, device=device))
        x = self._feed_forward(x, last)
        return weights.head(self._normalise(x, weights.norm)).float()

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

    def _attend(
        self,
        x: Tensor,
        index: int,
        layer: LayerWeights,
        attention: StepAttention,
        rotations: tuple[Tensor, Tensor],
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
        return layer.o(attended).add_(x)

    def _feed_forward(self, x: Tensor, layer: LayerWeights) -> Tensor:
        return layer.down(layer.gate_up.gated(self._normalise(x, layer.ffn_norm))).add_(x)

    def _normalise(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_eps)
