"""From a path to the weights of a model, or to one error that names what is wrong with the file."""

from pathlib import Path

from runtime.errors import ModelFileMissingError
from runtime.model.gguf_loader import GGUFSource
from runtime.model.safetensors_loader import SafetensorsSource
from runtime.model.weights import WeightSource


def open_weights(path: Path) -> WeightSource:
    """A GGUF file, or a Hugging Face folder with config.json, *.safetensors and tokenizer.json.

    ModelFileMissingError also for what the system does not let us read.
    """
    try:
        return SafetensorsSource(path) if path.is_dir() else GGUFSource(path)
    except OSError as error:
        named = Path(error.filename or path)
        raise ModelFileMissingError(named, f"cannot be read: {error.strerror or error}") from error
