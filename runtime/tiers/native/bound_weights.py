"""A model's weights as pointers, with everything that must stay alive behind them."""

import ctypes

from torch import Tensor

from runtime.model.decoder_weights import DecoderWeights, LayerWeights
from runtime.model.embedding import TiedEmbedding
from runtime.model.linear import Int8Linear, Linear, PlainLinear
from runtime.tiers.native.library import ConfigPart, LayerPart, LinearPart, WeightsPart


class BoundWeights:
    """A handle of the library over `weights`; ValueError for weights that it cannot read."""

    def __init__(self, library: ctypes.CDLL, weights: DecoderWeights) -> None:
        self._kept: list[Tensor] = []
        self._weights = weights
        parts = WeightsPart(
            config=self._config(weights),
            layers=(LayerPart * len(weights.layers))(*map(self._layer, weights.layers)),
            norm=self._vector(weights.norm),
            head=self._linear(weights.head),
            embedding=self._embedding(weights),
        )
        self.handle: int | None = library.dynofarm_model_new(ctypes.byref(parts))
        if self.handle is None:
            raise MemoryError("no memory for the native tier")
        self._free = library.dynofarm_model_free

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self._free(self.handle)
            self.handle = None

    def _config(self, weights: DecoderWeights) -> ConfigPart:
        config = weights.config
        return ConfigPart(
            layers=config.layers,
            hidden=config.hidden,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            ffn=config.ffn,
            vocab=config.vocab,
            rms_eps=config.rms_eps,
            inverse_wavelengths=self._vector(weights.inverse_wavelengths),
        )

    def _layer(self, layer: LayerWeights) -> LayerPart:
        return LayerPart(
            attn_norm=self._vector(layer.attn_norm),
            ffn_norm=self._vector(layer.ffn_norm),
            qk_norm=None if layer.qk_norm is None else self._vector(layer.qk_norm),
            qkv=self._linear(layer.qkv),
            o=self._linear(layer.o),
            gate_up=self._linear(layer.gate_up),
            down=self._linear(layer.down),
        )

    def _linear(self, linear: Linear) -> LinearPart:
        if not isinstance(linear, PlainLinear | Int8Linear):
            raise ValueError(f"the native tier cannot read a {type(linear).__name__}")
        return LinearPart(
            weight=self._kept_at(linear.weight),
            scales=self._vector(linear.scales) if isinstance(linear, Int8Linear) else None,
            bias=None if linear.bias is None else self._vector(linear.bias),
        )

    def _embedding(self, weights: DecoderWeights) -> int | None:
        if not isinstance(weights.embedding, TiedEmbedding):
            return None
        return self._kept_at(weights.embedding.head)

    def _vector(self, tensor: Tensor) -> int:
        """Small tensors are read as float32, whatever the precision of the rest."""
        return self._kept_at(tensor.float())

    def _kept_at(self, tensor: Tensor) -> int:
        whole = tensor.contiguous()
        self._kept.append(whole)
        return whole.data_ptr()
