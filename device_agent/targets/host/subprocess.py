"""The host's runtime as a process: in a session of its own, so that it survives this agent's death.

Started, it is written down with its start time; after a restart it is found again by that, or, when the
agent was killed in between, by the attempt's folder in its command line.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from contract.failures import FailureReason
from contract.run_end import Confidence, RunEnd
from contract.runtime_link import runtime_arguments
from device_agent.floor.attempt_folder import AttemptFolder, ProcessRecord
from device_agent.floor.errors import LaunchError
from device_agent.targets.host.memory_kills import counters_here, memory_kill_count
from device_agent.targets.port import ExitStatus, Observation

# Start times come in clock ticks of 10 ms and are computed from two readings.
_SAME_START_S = 1.0


class _Signalled:
    """Signals to the process group of one runtime, sent only while it is certainly still that runtime."""

    def __init__(self, pid: int, kills_before: int | None) -> None:
        self._pid = pid
        self._kills_before = kills_before
        self._signalled = False

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def host_pid(self) -> int | None:
        return self._pid

    @property
    def away_until_ns(self) -> int:
        return 0

    def exit_status(self) -> ExitStatus | None:
        raise NotImplementedError

    def terminate(self) -> None:
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        self._signal_group(signal.SIGKILL)

    def lease_renewed(self) -> None:
        """It reads the file itself."""

    def observations(self) -> Sequence[Observation]:
        return ()

    def end(self) -> RunEnd | None:
        """Linux tells no process why it was killed, but it counts its kills for memory."""
        status = self.exit_status()
        if status is None or status.signal != signal.SIGKILL or self._signalled:
            return None
        now = memory_kill_count(counters_here())
        if now is None or self._kills_before is None or now <= self._kills_before:
            return None
        return RunEnd.because(
            FailureReason.JETSAM,
            "the system killed it for memory",
            Confidence.LIKELY,
            ["SIGKILL that the device agent did not send", "the system's count of memory kills rose"],
        )

    def _signal_group(self, number: signal.Signals) -> None:
        if self.exit_status() is not None:
            return
        self._signalled = True
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            return


class ChildRuntime(_Signalled):
    """A runtime that this process started: its exit is known."""

    def __init__(self, child: subprocess.Popen[bytes], kills_before: int | None) -> None:
        super().__init__(child.pid, kills_before)
        self._child = child

    def exit_status(self) -> ExitStatus | None:
        code = self._child.poll()
        if code is None:
            return None
        return ExitStatus(code, None) if code >= 0 else ExitStatus(None, -code)


class AdoptedRuntime(_Signalled):
    """A runtime that an earlier life of this agent started: somebody else waits for it."""

    def __init__(self, process: psutil.Process, kills_before: int | None) -> None:
        super().__init__(process.pid, kills_before)
        self._process = process

    def exit_status(self) -> ExitStatus | None:
        try:
            alive = self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            alive = False
        return None if alive else ExitStatus(None, None)


def launch(
    folder: AttemptFolder, command: Sequence[str], model_path: Path, socket_path: Path
) -> ChildRuntime:
    """Start a runtime on the attempt's folder and record it; LaunchError when it cannot be started.

    The log is created first: whoever finds it knows that a runtime may have been started.
    """
    kills_before = memory_kill_count(counters_here())
    arguments = [*command, *runtime_arguments(folder.path, model_path, socket_path)]
    socket_path.unlink(missing_ok=True)
    try:
        with folder.log_path.open("ab") as log:
            child = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder.path,
                env=_environment(),
                start_new_session=True,
            )
    except OSError as error:
        raise LaunchError(f"{arguments[0]} does not start: {error}") from error
    record = ProcessRecord(pid=child.pid, started_s=_started_s(child.pid), memory_kills=kills_before)
    try:
        folder.write_process(record)
    except OSError as error:
        # Unrecorded it could not be found again, so it must not live.
        child.kill()
        child.wait()
        raise LaunchError(f"the disk did not take the record of the runtime: {error}") from error
    return ChildRuntime(child, kills_before)


def adopt(folder: AttemptFolder) -> AdoptedRuntime | None:
    """The attempt's living runtime, None when there is none."""
    record = folder.process()
    if record is None:
        found = next(_by_command_line(folder.path), None)
        if found is None:
            return None
        record = ProcessRecord(pid=found.pid, started_s=_started_s(found.pid), memory_kills=None)
        folder.write_process(record)
    try:
        process = psutil.Process(record.pid)
        same = abs(_started_s(record.pid) - record.started_s) < _SAME_START_S
        if not same or not _works_in(process, folder.path):
            return None
    except psutil.NoSuchProcess:
        return None
    return AdoptedRuntime(process, record.memory_kills)


def _environment() -> dict[str, str]:
    """The agent's own, without its secrets."""
    return {name: value for name, value in os.environ.items() if not name.endswith("_TOKEN")}


def _started_s(pid: int) -> float:
    """Seconds after boot, because the wall clock may be set; 0 for a process that has ended already."""
    try:
        return float(psutil.Process(pid).create_time() - psutil.boot_time())
    except psutil.NoSuchProcess:
        return 0.0


def _by_command_line(path: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and _works_in(process, path):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def _works_in(process: psutil.Process, path: Path) -> bool:
    """Whether it is a runtime of this attempt; a zombie has no command line and is none."""
    return str(path) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
