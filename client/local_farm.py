"""A farm on this machine as a child process: start it, wait until it is ready, stop it with a deadline."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Final, NoReturn, Self

from pydantic import SecretStr

from client.api import DynofarmClient
from client.child_process import STOP_TIMEOUT_S, end_process
from client.errors import InfrastructureError, UsageError
from client.farm_home import FarmHome
from client.farm_log import FarmLog
from rest.transport import Caller
from rest.tries import Patience

START_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.1
TERMINATED_EXIT: Final = 128 + signal.SIGTERM
# These name another farm than the one that is started here.
_OTHER_FARM: Final = frozenset(
    f"DYNOFARM_{name}"
    for name in (
        *("AGENT_NAME", "ALLOWED_HOSTS", "BROKER_URL", "CONTROLLER", "CONTROLLER_URL", "DATABASE_URL"),
        *("ENROLLMENT_TOKEN", "HOME", "HOST", "PORT", "PUBLIC_URL", "SESSION_SECRET", "TOKEN"),
    )
)


@dataclass(frozen=True, slots=True)
class FarmCommand:
    """How to start it; what it says goes to the home's log."""

    program: tuple[str, ...]
    home: FarmHome
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    stop_timeout_s: float = STOP_TIMEOUT_S


class LocalFarm:
    """The embedded controller in a session of its own: Ctrl-C reaches only us, and we stop it."""

    def __init__(self, command: FarmCommand) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log: FarmLog | None = None

    def __enter__(self) -> Self:
        home = self._command.home
        refuse_second_farm(home)
        try:
            home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._log = FarmLog.opened(home.log_file)
            self._process = subprocess.Popen(
                [*self._command.program, "--home", str(home.path), *self._command.arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._log.file,
                stderr=self._log.file,
                env=dict(self._command.environment),
                start_new_session=True,
            )
        except OSError as error:
            self._close_log()
            raise UsageError(
                "farm-not-started",
                f"the farm cannot be started in {home.path}: {error}",
                "choose another --home",
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._close_log()

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """The controller's address once it answers /ready; InfrastructureError with the end of its log."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.exit_code() is not None:
                raise self._not_started(f"the farm ended with exit code {self.exit_code()}")
            controller = self._command.home.controller()
            # A file of an earlier farm names another process.
            if controller is not None and controller.pid == self._pid and _is_ready(controller.url):
                return controller.url.rstrip("/")
            time.sleep(_POLL_S)
        raise self._not_started(f"the farm is not ready after {timeout_s:g} s")

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process is not None else None

    def wait(self) -> int:
        """Until it ends by itself; its exit code."""
        while (exit_code := self.exit_code()) is None:
            time.sleep(_POLL_S)
        return exit_code

    def stop(self) -> None:
        """Ask it to end, wait for the stop timeout, then end it and whatever it has left in its session."""
        if self._process is not None:
            end_process(self._process, self._command.stop_timeout_s)

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.file.close()

    @property
    def _pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def _not_started(self, what: str) -> InfrastructureError:
        said = "\n".join(self._log.end()) if self._log is not None else ""
        return InfrastructureError(
            "farm-not-started",
            f"{what}; it said:\n{said}" if said else what,
            f"its whole log is {self._command.home.log_file}",
        )


def refuse_second_farm(home: FarmHome) -> None:
    """UsageError when a farm already runs with this home: two would write one database and one log."""
    controller = home.controller()
    # The file of a farm that was killed stays behind; its process number may be somebody else's by now.
    if controller is None or not _is_process(controller.pid) or not _is_ready(controller.url):
        return
    raise UsageError(
        "farm-already-runs",
        f"a farm already runs with the home {home.path}: {controller.url} (pid {controller.pid})",
        "use that one, stop it with Ctrl-C where it was started, or choose another --home",
    )


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def own_environment() -> dict[str, str]:
    """This process's environment without what names another farm."""
    return {name: value for name, value in os.environ.items() if name not in _OTHER_FARM}


@contextlib.contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Inside, SIGTERM unwinds as Ctrl-C does, so that a child process is stopped and not left behind."""

    def leave(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED_EXIT)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_ready(url: str) -> bool:
    caller = Caller(Patience(call_s=5.0, give_up_after_s=0.0))
    with DynofarmClient(url, SecretStr(""), caller) as client:
        try:
            return client.ready().status == "ok"
        except InfrastructureError:
            return False
