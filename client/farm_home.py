"""The home folder of a farm on this machine: who serves it, the admin's token, what its runtimes wrote."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import PositiveInt, SecretStr, ValidationError

from client.errors import UsageError
from contract.model import ContractModel
from contract.runtime_link import EVENTS_FILE, RUNTIME_LOG_FILE
from rest.address import Address

DEFAULT_URL: Final = "http://127.0.0.1:8000"


class ControllerFile(ContractModel):
    """`controller.json`: written by the embedded controller when it is ready."""

    url: str
    pid: PositiveInt


@dataclass(frozen=True, slots=True)
class FarmHome:
    """Paths below one home folder; nothing is created here."""

    path: Path

    @property
    def controller_file(self) -> Path:
        """Where the embedded controller says that it is ready."""
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

    def model_path(self, name: str) -> Path | None:
        """`<name>.gguf`, or the Hugging Face folder `<name>/`, of the models folder; None without either."""
        file, folder = self.models_folder / f"{name}.gguf", self.models_folder / name
        # Not Path.is_file: it raises for a name that is too long.
        if os.path.isfile(file):
            return file
        return folder if os.path.isfile(folder / "config.json") else None

    def events_file(self, attempt_id: str) -> Path:
        """What the runtime of an attempt wrote on its own disk."""
        return self._attempt(attempt_id) / EVENTS_FILE

    def runtime_log_file(self, attempt_id: str) -> Path:
        """Standard output and error of the runtime of an attempt."""
        return self._attempt(attempt_id) / RUNTIME_LOG_FILE

    def _attempt(self, attempt_id: str) -> Path:
        return self.path / "agent" / "attempts" / attempt_id

    def controller(self) -> ControllerFile | None:
        """Who serves this home, or None; a file that is half written or may not be read counts as none."""
        try:
            return ControllerFile.model_validate_json(self.controller_file.read_bytes())
        except (OSError, ValidationError):
            return None

    def admin_token(self) -> SecretStr:
        """The admin's token, empty when this home has none; UsageError when it may not be read."""
        try:
            return SecretStr(self.admin_token_file.read_text(encoding="ascii").strip())
        except (FileNotFoundError, NotADirectoryError):
            return SecretStr("")
        except (OSError, ValueError) as error:
            raise UsageError(
                "token-unreadable",
                f"{self.admin_token_file} cannot be read: {type(error).__name__}",
                "use the account that started the farm, or set DYNOFARM_TOKEN",
            ) from error

    def token_for(self, address: Address) -> SecretStr:
        """The admin's token if this is the address of its own farm: it is never sent to another machine."""
        controller = self.controller()
        is_own = address.is_loopback or (controller is not None and controller.url.rstrip("/") == address.url)
        return self.admin_token() if is_own else SecretStr("")
