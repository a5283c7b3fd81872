"""A model without a file: seeded random weights of any shape, for machines that hold no model."""

import math

import torch
from torch import Tensor

from runtime.model.config import ModelConfig
from runtime.model.embedding import DenseEmbedding
from runtime.model.tokenizer import Tokenizer
from runtime.model.weights import weight_shapes


class RandomWeights:
    """A WeightSource. The logits spread enough for argmax to mean something; no tokenizer."""

    def __init__(self, config: ModelConfig, seed: int = 7, device: str = "cpu") -> None:
        self._config = config
        self._device = device
        self._seed = seed
        self._shapes = dict(weight_shapes(config))

    @property
    def config(self) -> ModelConfig:
        return self._config

    def read(self, name: str) -> Tensor:
        shape = self._shapes[name]
        generator = torch.Generator(self._device).manual_seed(self._seed + list(self._shapes).index(name))
        values = torch.randn(shape, generator=generator, device=self._device)
        if name.endswith("norm"):
            return values.mul_(0.1).add_(1.0)
        if name.endswith("bias"):
            return values.mul_(0.1)
        return values.mul_(1.0 / math.sqrt(shape[-1]))

    def embedding(self) -> DenseEmbedding:
        return DenseEmbedding(self.read("embed"))

    def tokenizer(self) -> Tokenizer:
        raise NotImplementedError("random weights have no tokenizer")

    def close(self) -> None:
        """Nothing is open."""
