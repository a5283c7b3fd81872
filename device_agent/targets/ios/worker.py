"""A worker as the agent sees it: a child process, calls under a deadline, kill -9 as the last one."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import structlog
from pydantic import ValidationError

from contract.model import ContractModel
from device_agent.ios_worker.protocol import (
    FROM_WORKER,
    GOODBYE_S,
    MAX_LINE_BYTES,
    Answered,
    Method,
    Notice,
    Noticed,
    Progressed,
    Request,
    WorkerErrorKind,
)
from device_agent.targets.ios.errors import DeviceFaultError

_log = structlog.get_logger(__name__)

Q = TypeVar("Q", bound=ContractModel)
A = TypeVar("A", bound=ContractModel)
OnProgress = Callable[[int, int], None]

# The worker itself gives up at the deadline; this much later it is taken to hang.
ANSWER_GRACE_S: Final = 5.0
# Importing the library takes more than a second of processor time, more when twenty start at once.
START_GRACE_S: Final = 60.0
_LOG_KEPT_BYTES: Final = 1 << 20
_EXIT_LIBRARY_MISSING: Final = 3


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """How to start one. Its standard error goes to the log, which begins anew when it is too long."""

    program: tuple[str, ...]
    environment: dict[str, str]
    log: Path


@dataclass(slots=True)
class _Pending:
    answer: asyncio.Future[Answered]
    limit: asyncio.Timeout | None
    wait_s: float
    on_progress: OnProgress | None


class WorkerProcess:
    """One process; once it has ended, or had to be killed, every call fails: `disconnected` or `stalled`."""

    def __init__(self, process: asyncio.subprocess.Process, on_notice: Callable[[Notice], None]) -> None:
        self._process = process
        self._on_notice = on_notice
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._answered_once = False
        self._reading = asyncio.create_task(self._read(), name="worker-read")

    @classmethod
    async def start(cls, command: WorkerCommand, on_notice: Callable[[Notice], None]) -> "WorkerProcess":
        """OSError when the program cannot be started."""
        command.log.parent.mkdir(parents=True, exist_ok=True)
        mode = "ab" if command.log.exists() and command.log.stat().st_size < _LOG_KEPT_BYTES else "wb"
        with command.log.open(mode) as log:
            process = await asyncio.create_subprocess_exec(
                *command.program,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=command.environment,
                # Ctrl-C is for the agent; the worker ends when its input does.
                start_new_session=True,
                limit=MAX_LINE_BYTES,
            )
        return cls(process, on_notice)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Nothing more will be answered."""
        return self._reading.done()

    @property
    def library_missing(self) -> bool:
        """It ended because pymobiledevice3 is not installed."""
        return self._process.returncode == _EXIT_LIBRARY_MISSING

    async def call(
        self, method: Method[Q, A], params: Q, deadline_s: float, on_progress: OnProgress | None = None
    ) -> A:
        """The answer; DeviceFaultError. A worker that lets the deadline pass is killed."""
        if self.ended:
            raise self._gone()
        self._last_id += 1
        request = Request(
            id=self._last_id,
            method=method.name,
            deadline_s=deadline_s,
            params=params.model_dump(mode="json"),
        )
        wait_s = deadline_s + ANSWER_GRACE_S + (0.0 if self._answered_once else START_GRACE_S)
        pending = _Pending(asyncio.get_running_loop().create_future(), None, wait_s, on_progress)
        self._pending[request.id] = pending
        try:
            async with asyncio.timeout(wait_s) as pending.limit:
                await self._write(request)
                answered = await pending.answer
        except TimeoutError as error:
            _log.error("worker_hangs", pid=self.pid, method=method.name, deadline_s=deadline_s)
            await self.kill()
            raise DeviceFaultError(
                WorkerErrorKind.STALLED, f"{method.name} did not come back within {deadline_s:g} s"
            ) from error
        finally:
            self._pending.pop(request.id, None)
        return self._parsed(method, answered)

    async def stop(self) -> None:
        """End it in order, within the time for a goodbye; then kill it."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S + 0.5):
                await self._process.wait()
        await self.kill()

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone and everything that waited was told."""
        self._kill_now()
        await self._process.wait()
        await asyncio.wait([self._reading], timeout=1.0)
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def _kill_now(self) -> None:
        """Not by asyncio's own kill: that looks first whether it has ended, and so takes its exit code."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def _write(self, request: Request) -> None:
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(request.model_dump_json().encode() + b"\n")
                await stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            raise self._gone() from error

    async def _read(self) -> None:
        stdout = self._process.stdout
        try:
            while stdout is not None and (line := await stdout.readline()):
                self._take(line)
        except (ValueError, OSError) as error:
            # A line that is not a message or has no end, or a broken pipe: what follows cannot be told apart.
            _log.error("worker_unreadable", pid=self.pid, detail=str(error))
        finally:
            self._kill_now()
            await self._process.wait()
            for pending in self._pending.values():
                if not pending.answer.done():
                    pending.answer.set_exception(self._gone())

    def _take(self, line: bytes) -> None:
        message = FROM_WORKER.validate_json(line)
        match message:
            case Noticed():
                self._on_notice(message.notice)
            case Progressed():
                self._progressed(message)
            case Answered():
                self._answered_once = True
                pending = self._pending.get(message.id)
                if pending is not None and not pending.answer.done():
                    pending.answer.set_result(message)

    def _progressed(self, message: Progressed) -> None:
        pending = self._pending.get(message.id)
        if pending is None:
            return
        if pending.limit is not None and not pending.limit.expired():
            pending.limit.reschedule(asyncio.get_running_loop().time() + pending.wait_s)
        if pending.on_progress is not None:
            pending.on_progress(message.done, message.total)

    def _parsed(self, method: Method[Q, A], answered: Answered) -> A:
        if answered.error is not None:
            raise DeviceFaultError(answered.error.kind, answered.error.detail)
        try:
            return method.answer.model_validate(answered.answer)
        except ValidationError as error:
            raise DeviceFaultError(WorkerErrorKind.PROTOCOL, f"{method.name}: {error}") from error

    def _gone(self) -> DeviceFaultError:
        if self.library_missing:
            return DeviceFaultError(
                WorkerErrorKind.LIBRARY_MISSING, "pymobiledevice3 is not here; install dynofarm[ios]"
            )
        return DeviceFaultError(WorkerErrorKind.DISCONNECTED, "the device's worker has ended")


def worker_environment(inherited: dict[str, str], usbmux_address: str, home: Path) -> dict[str, str]:
    """The agent's own without its secrets; where usbmuxd is, and a folder for what the library keeps."""
    kept = {name: value for name, value in inherited.items() if not name.endswith("_TOKEN")}
    # The library reads the address from here only: its argument is ignored in places.
    return {
        **kept,
        "USBMUXD_SOCKET_ADDRESS": usbmux_address.removeprefix("UNIX:"),
        "XDG_DATA_HOME": str(home),
    }


def worker_program(command: Sequence[str], udid: str, images: Path) -> tuple[str, ...]:
    """The command line of one device's worker."""
    return (*command, "--udid", udid, "--images", os.fspath(images))
