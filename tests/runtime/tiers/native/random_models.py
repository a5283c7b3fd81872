"""Random models of any geometry, and the same weights under every tier."""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.model.config import ModelConfig
from runtime.model.embedding import DenseEmbedding, Embedding
from runtime.model.linear import WeightDtype
from runtime.model.llama import LlamaModel
from runtime.model.numeric import Placement
from runtime.model.tier import TierName
from runtime.model.tokenizer import Tokenizer
from runtime.model.weights import weight_shapes
from runtime.tiers.choice import TierChoice, build_model


@dataclass(frozen=True)
class Geometry:
    """A small model's shape."""

    architecture: str = "llama"
    group: int = 3
    kv_heads: int = 3
    head_dim: int = 8
    hidden: int = 40
    ffn: int = 56
    vocab: int = 97
    layers: int = 2
    tied_head: bool = True

    @property
    def config(self) -> ModelConfig:
        return ModelConfig(
            architecture=self.architecture,
            hidden=self.hidden,
            layers=self.layers,
            heads=self.group * self.kv_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            ffn=self.ffn,
            vocab=self.vocab,
            rope_base=10_000.0,
            rms_eps=1e-5,
            context_tokens=4096,
            tied_head=self.tied_head,
        )


class RandomWeights:
    """A weight source that draws its tensors from a seed."""

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        self.config = config
        self._shapes = dict(weight_shapes(config))
        self._seeds = {name: seed * 1000 + index for index, name in enumerate(self._shapes)}

    def read(self, name: str) -> Tensor:
        shape = self._shapes[name]
        values = torch.randn(shape, generator=torch.Generator().manual_seed(self._seeds[name]))
        if name.endswith("norm"):
            return 1 + 0.2 * values
        return values * (shape[-1] ** -0.5 if len(shape) > 1 else 0.3)

    def embedding(self) -> Embedding:
        return DenseEmbedding(self.read("embed"))

    def tokenizer(self) -> Tokenizer:
        raise NotImplementedError("these tests count in token ids")

    def close(self) -> None:
        pass


def random_model(
    geometry: Geometry, tier: TierName, dtype: str = "float32", weight_dtype: WeightDtype = "auto"
) -> LlamaModel:
    """The same numbers for every tier."""
    source = RandomWeights(geometry.config)
    return build_model(source, Placement.named(dtype, "cpu"), TierChoice(tier), weight_dtype)
