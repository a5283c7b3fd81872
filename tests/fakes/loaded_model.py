"""A model from a path, with everything about it in one call."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from runtime.model.config import ModelConfig
from runtime.model.linear import WeightDtype
from runtime.model.llama import LlamaModel
from runtime.model.loader import open_weights
from runtime.model.numeric import Placement
from runtime.model.tokenizer import Tokenizer
from runtime.tiers.choice import build_model, choose_tier


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and its tokenizer; its files are closed."""

    model: LlamaModel
    tokenizer: Tokenizer
    path: Path

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @property
    def weights_bytes(self) -> int:
        return self.model.weights_bytes


def load_model(
    path: Path,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    tier: str = "aten",
    weight_dtype: WeightDtype = "auto",
) -> LoadedModel:
    """Load weights and tokenizer; every refusal comes before the weights are read.

    dtype: float32, bfloat16 or float16; device: cpu, cuda, cuda:N or mps; tier as `choose_tier` takes it.
    """
    placement = Placement.named(dtype, device)
    with closing(open_weights(path)) as source:
        tokenizer = source.tokenizer()
        tokenizer.check_fits(source.config.vocab, path)
        model = build_model(source, placement, choose_tier(tier, placement, weight_dtype), weight_dtype)
        return LoadedModel(model, tokenizer, path)
