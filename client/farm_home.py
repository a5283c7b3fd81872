"""The home folder of a farm on this machine: who serves it, the admin's token, what its runtimes wrote."""

from pathlib import Path

from pydantic import SecretStr, ValidationError

from client.errors import UsageError
from contract.home import ControllerFile, HomeFolder
from contract.runtime_link import EVENTS_FILE, RUNTIME_LOG_FILE
from rest.address import Address


class FarmHome(HomeFolder):
    """What is read there; nothing is created."""

    __slots__ = ()

    def events_file(self, attempt_id: str) -> Path:
        """What the runtime of an attempt wrote on its own disk."""
        return self.attempt_folder(attempt_id) / EVENTS_FILE

    def runtime_log_file(self, attempt_id: str) -> Path:
        """Standard output and error of the runtime of an attempt."""
        return self.attempt_folder(attempt_id) / RUNTIME_LOG_FILE

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
