"""From a path to a model that can run, or to one error that names what is wrong with the file."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import ModelFileMissingError
from runtime.model.config import ModelConfig
from runtime.model.gguf_loader import GGUFSource
from runtime.model.linear import WeightDtype
from runtime.model.llama import LlamaModel
from runtime.model.numeric import Placement
from runtime.model.safetensors_loader import SafetensorsSource
from runtime.model.tiers import choose_tier
from runtime.model.tokenizer import Tokenizer
from runtime.model.weights import WeightSource


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


def open_weights(path: Path) -> WeightSource:
    """A GGUF file, or a Hugging Face folder with config.json, *.safetensors and tokenizer.json.

    ModelFileMissingError also for what the system does not let us read.
    """
    try:
        return SafetensorsSource(path) if path.is_dir() else GGUFSource(path)
    except OSError as error:
        named = Path(error.filename or path)
        raise ModelFileMissingError(named, f"cannot be read: {error.strerror or error}") from error


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
        model = LlamaModel.build(source, placement, choose_tier(tier, placement, weight_dtype), weight_dtype)
        return LoadedModel(model, tokenizer, path)
