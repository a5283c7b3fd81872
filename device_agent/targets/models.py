"""Which models are on this machine, by name: files, folders, and the one that an installed package brings."""

import re
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from contract.home import BUILT_IN_MODEL, built_in_model, named_model
from contract.ids import Name
from device_agent.floor.errors import ModelMissingError

_NAME: TypeAdapter[str] = TypeAdapter(Name)


def model_names(folder: Path) -> list[Name]:
    """Every name that `model_path` resolves, sorted."""
    found = {path.stem for path in folder.glob("*.gguf")} if folder.is_dir() else set()
    if folder.is_dir():
        found |= {path.name for path in folder.iterdir() if (path / "config.json").is_file()}
    if built_in_model() is not None:
        found.add(BUILT_IN_MODEL)
    return sorted(name for name in found if _is_name(name))


def model_path(folder: Path, name: Name) -> Path:
    """`<name>.gguf`, or the Hugging Face folder `<name>/`, or the built-in; ModelMissingError otherwise."""
    if _is_name(name):
        found = named_model(folder, name) or (built_in_model() if name == BUILT_IN_MODEL else None)
        if found is not None:
            return found
    known = ", ".join(model_names(folder)) or "none"
    raise ModelMissingError(f"no model {name!r} here; there are: {known}")


def _is_name(name: str) -> bool:
    try:
        return bool(_NAME.validate_python(name)) and not re.search(r"\.\.", name)
    except ValidationError:
        return False
