"""The names and shapes of a model's weights, and where they are read from one at a time."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

from runtime.model.config import ModelConfig
from runtime.model.embedding import Embedding
from runtime.model.tokenizer import Tokenizer

Shape = tuple[int, ...]


class WeightSource(Protocol):
    """A model file whose tensors are read one by one, so that a load never holds all of them twice.

    Names are those of `weight_shapes`; shapes were checked when the source was opened.
    """

    @property
    def config(self) -> ModelConfig: ...

    def read(self, name: str) -> Tensor:
        """float32, on the CPU, rows are outputs. ModelFileCorruptError when the file ends early."""
        ...

    def embedding(self) -> Embedding:
        """The token table as the file stores it (quantised or half precision), not widened."""
        ...

    def tokenizer(self) -> Tokenizer: ...

    def close(self) -> None: ...


def weight_shapes(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    """Every weight the model needs, as (name, shape); `head` only where it is not the embedding."""
    yield "embed", (config.vocab, config.hidden)
    yield "norm", (config.hidden,)
    if not config.tied_head:
        yield "head", (config.vocab, config.hidden)
    for layer in range(config.layers):
        for part, shape in _layer_shapes(config):
            yield f"layers.{layer}.{part}", shape


def _layer_shapes(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    yield "attn_norm", (config.hidden,)
    yield "q", (config.q_width, config.hidden)
    yield "k", (config.kv_width, config.hidden)
    yield "v", (config.kv_width, config.hidden)
    yield "o", (config.hidden, config.q_width)
    yield "ffn_norm", (config.hidden,)
    yield "gate", (config.ffn, config.hidden)
    yield "up", (config.ffn, config.hidden)
    yield "down", (config.hidden, config.ffn)
    if config.has_qkv_bias:
        yield "q_bias", (config.q_width,)
        yield "k_bias", (config.kv_width,)
        yield "v_bias", (config.kv_width,)
    if config.has_qk_norm:
        yield "q_norm", (config.head_dim,)
        yield "k_norm", (config.head_dim,)
