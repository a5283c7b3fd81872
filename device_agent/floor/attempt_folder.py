"""An attempt on disk: what is there says how far it came, so that a killed agent goes on from it.

grant.json, spec.json   claimed: the folder appears whole, or not at all
lease.json              accepted: until when the runtime may use the device
runtime.log             the runtime is being started: from here on it is never started again
process.json            started: which process it is
reports/, artifacts/    reports of its device as they came; copies without secrets, sent before the result
result.json             concluded: the last word, sent until it is acknowledged
settled.json            acknowledged or refused for good: kept for a day, then removed
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import TypeVar

from pydantic import AwareDatetime, BaseModel, ValidationError

from contract.agent_api import Lease, ResultRequest
from contract.ids import ClaimId
from contract.jobs import AttemptSpec
from contract.model import ContractModel
from contract.runtime_link import EVENTS_FILE, LEASE_FILE, RUNTIME_LOG_FILE, SPEC_FILE, LeaseFile
from device_agent.floor.atomic_file import sync_folder, write_atomically
from device_agent.floor.errors import FolderDamagedError

_UNFINISHED_PREFIX = ".new-"
_M = TypeVar("_M", bound=BaseModel)


class Grant(ContractModel):
    """What the controller granted, and by which claim."""

    claim_id: ClaimId
    lease: Lease


class ProcessRecord(ContractModel):
    """The runtime's process. started_s: seconds after boot, so that a pid used again is another process."""

    pid: int
    started_s: float
    memory_kills: int | None
    """The system's count of memory kills before the start, None where there is no such count."""


class Settlement(ContractModel):
    """How the result was taken: state as the controller named it, or `refused:<code>`."""

    at: AwareDatetime
    state: str


class AttemptFolder:
    """Reads and writes one attempt's folder; a file that does not parse raises FolderDamagedError."""

    def __init__(self, path: Path) -> None:
        """`path` is `<home>/agent/attempts/<attempt_id>`."""
        self.path = path

    @classmethod
    def create(cls, root: Path, grant: Grant) -> "AttemptFolder":
        """A new folder that is there whole or not at all; FileExistsError for a known attempt."""
        path = root / grant.lease.attempt_id
        if path.exists():
            raise FileExistsError(path)
        unfinished = Path(tempfile.mkdtemp(dir=root, prefix=_UNFINISHED_PREFIX))
        write_atomically(unfinished / SPEC_FILE, grant.lease.spec.model_dump_json().encode())
        write_atomically(unfinished / "grant.json", grant.model_dump_json().encode())
        os.rename(unfinished, path)
        sync_folder(root)
        return cls(path)

    @property
    def attempt_id(self) -> str:
        return self.path.name

    @property
    def events_path(self) -> Path:
        return self.path / EVENTS_FILE

    @property
    def log_path(self) -> Path:
        return self.path / RUNTIME_LOG_FILE

    @property
    def spool_path(self) -> Path:
        return self.path / "spool.sqlite"

    @property
    def reports_path(self) -> Path:
        return self.path / "reports"

    @property
    def artifacts_path(self) -> Path:
        return self.path / "artifacts"

    @property
    def start_intended(self) -> bool:
        """Whether a runtime was started, or was about to be when the agent died."""
        return self.log_path.exists()

    def grant(self) -> Grant:
        """Always there."""
        grant = self._read("grant.json", Grant)
        if grant is None:
            raise FolderDamagedError(f"{self.path} has no grant.json")
        return grant

    def spec(self) -> AttemptSpec:
        """As the runtime reads it."""
        return self.grant().lease.spec

    def lease_file(self) -> LeaseFile | None:
        """None: never accepted."""
        return self._read(LEASE_FILE, LeaseFile)

    def write_lease_file(self, lease: LeaseFile) -> None:
        """Raises OSError when the disk cannot be written; the old deadline then stays in force."""
        write_atomically(self.path / LEASE_FILE, lease.model_dump_json().encode())

    def process(self) -> ProcessRecord | None:
        """None: not started, or killed before its pid was written."""
        return self._read("process.json", ProcessRecord)

    def write_process(self, record: ProcessRecord) -> None:
        """At once after the start."""
        write_atomically(self.path / "process.json", record.model_dump_json().encode())

    def result(self) -> ResultRequest | None:
        """None: not concluded."""
        return self._read("result.json", ResultRequest)

    def write_result(self, result: ResultRequest) -> None:
        """The last word; what it says is never changed afterwards."""
        write_atomically(self.path / "result.json", result.model_dump_json().encode())

    def settlement(self) -> Settlement | None:
        """None: the result is still to be sent."""
        return self._read("settled.json", Settlement)

    def settle(self, settlement: Settlement) -> None:
        """The result needs no more sending."""
        write_atomically(self.path / "settled.json", settlement.model_dump_json().encode())

    def remove(self) -> None:
        """Everything of this attempt."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _read(self, name: str, model: type[_M]) -> _M | None:
        path = self.path / name
        try:
            return model.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise FolderDamagedError(
                f"{path} does not parse: {where}: {first['msg']}; if another version of dynofarm wrote it, "
                "its attempt is given up here and the controller tries the job again: remove the folder"
            ) from error


def attempt_folders(root: Path) -> list[AttemptFolder]:
    """Every attempt under `root`, oldest first; half-made folders of a killed agent are removed."""
    for unfinished in root.glob(f"{_UNFINISHED_PREFIX}*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    return [AttemptFolder(path) for path in sorted(root.iterdir()) if path.is_dir()]
