"""What this host was calibrated to: one file per model, kernels and precision in the agent's home.

A file that does not parse, or that was measured for something that is another now, is passed over with a
warning, once; `dynofarm calibrate` writes it anew.
"""

import fcntl
import hashlib
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import psutil
import structlog
from pydantic import ValidationError

from contract.calibration import Calibration, CalibrationReport
from contract.model import ContractModel
from contract.version import installed_version
from device_agent.floor.atomic_file import write_atomically
from device_agent.floor.errors import CalibrationRunsError, ModelMissingError
from device_agent.floor.settings import AgentSettings
from device_agent.targets.models import model_path

_log = structlog.get_logger(__name__)

_LOCK_TRIES = 20
_LOCK_PAUSE_S = 0.05
FILES_MAX = 256
"""As many as one device report may carry."""


class Circumstances(ContractModel):
    """What can be looked up in no time at every report, without opening the model or loading torch."""

    model_files: str
    """Digest over names, sizes and times of change of the model's files."""
    agent_version: str
    processor: str
    cores: int


class KeptCalibration(ContractModel):
    """A file: the measurement, and under what it was made in the agent's own terms."""

    report: CalibrationReport
    circumstances: Circumstances


class CalibrationShelf:
    """The files below `folder`, for the models below `models_folder`. Every method reads the disk."""

    def __init__(self, folder: Path, models_folder: Path) -> None:
        """Nothing is created before something is kept."""
        self._folder = folder
        self._models_folder = models_folder
        self._warned: set[tuple[str, int, str]] = set()

    def keep(self, report: CalibrationReport) -> Path:
        """Write or replace the file of this model, kernels and precision; OSError, ModelMissingError."""
        key = report.calibration.key
        name = f"{report.calibration.model}.{key.device}-{key.tier}-{key.dtype}-{key.weight_dtype}.json"
        kept = KeptCalibration(
            report=report,
            circumstances=circumstances(model_path(self._models_folder, report.calibration.model)),
        )
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._folder / name, kept.model_dump_json(indent=1).encode())
        return self._folder / name

    def current(self) -> list[Calibration]:
        """Those that still hold, newest first, at most FILES_MAX."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                kept = KeptCalibration.model_validate_json(path.read_bytes())
                reason = self._why_stale(kept)
            except FileNotFoundError:
                continue
            except OSError as error:
                reason = f"it cannot be read: {error.strerror}"
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                reason = f"it does not parse: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            if reason:
                self._warn(path, reason)
            else:
                found.append(kept.report.calibration)
        return sorted(found, key=lambda each: each.measured_at, reverse=True)[:FILES_MAX]

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Holds the right to calibrate; CalibrationRunsError when another process has it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock_file.open("a") as lock:
            _take(lock)
            yield

    @property
    def is_measuring(self) -> bool:
        """Whether a calibration runs now."""
        try:
            with self._lock_file.open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    @property
    def _lock_file(self) -> Path:
        return self._folder / "lock"

    def _why_stale(self, kept: KeptCalibration) -> str:
        try:
            now = circumstances(model_path(self._models_folder, kept.report.calibration.model))
        except ModelMissingError as error:
            return str(error)
        before: dict[str, Any] = kept.circumstances.model_dump()
        return "; ".join(
            f"{name}: {before[name]} when it was measured, {value} now"
            for name, value in now.model_dump().items()
            if before[name] != value
        )

    def _warn(self, path: Path, reason: str) -> None:
        try:
            changed_ns = path.stat().st_mtime_ns
        except OSError:
            changed_ns = 0
        if (path.name, changed_ns, reason) not in self._warned:
            self._warned.add((path.name, changed_ns, reason))
            _log.warning(
                "calibration_ignored", file=str(path), reason=reason, advice="run `dynofarm calibrate` again"
            )


def shelf_of(settings: AgentSettings) -> CalibrationShelf:
    """The shelf in this agent's home."""
    return CalibrationShelf(settings.agent_home / "calibrations", settings.models_folder)


def _take(lock: TextIO) -> None:
    """Tries for a moment: the agent holds the lock for as long as it takes to look whether it is free."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return
    raise CalibrationRunsError("this machine is being calibrated by another process")


def circumstances(model: Path) -> Circumstances:
    """As they are now, for the model at this path."""
    return Circumstances(
        model_files=_files_digest(model),
        agent_version=installed_version(),
        processor=platform.machine(),
        cores=psutil.cpu_count() or 1,
    )


def _files_digest(model: Path) -> str:
    files = [model] if model.is_file() else sorted(path for path in model.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in files:
        about = path.stat()
        digest.update(f"{path.name}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
