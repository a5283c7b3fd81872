"""The signal that a waiting claim may be worth another look: a job or a device became free for the other.

It carries nothing, comes after the commit, may come twice, and may be lost: whoever waits looks by itself now
and then as well. Within a process it is a call; on PostgreSQL other processes hear it by LISTEN and NOTIFY.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

CHANNEL: Final = "dynofarm_work"
RECONNECT_S: Final = 5.0
_HEARD_EVERY_S: Final = 1.0
_MARK: Final = "dynofarm_work_signal"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkSignal:
    """Whom to call in this process. `give` may be called from any thread."""

    callbacks: list[Callable[[], None]] = field(default_factory=list)

    def give(self) -> None:
        """Call everyone."""
        for callback in tuple(self.callbacks):
            callback()


def ask_for_signal(session: Session) -> None:
    """The signal follows the commit of this session's transaction; none follows a rollback."""
    session.info[_MARK] = True


def is_asked_for(session: Session) -> bool:
    """Whether the signal follows."""
    return _MARK in session.info


def notify_others(session: Session) -> None:
    """Promise it to other processes, within the transaction; nothing on SQLite, which one process serves."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"NOTIFY {CHANNEL}"))


class SignalListener:
    """A thread that hears what other processes commit, on a PostgreSQL connection of its own."""

    def __init__(self, engine: Engine, signal: WorkSignal) -> None:
        """`signal` is given for each that is heard, and after each connection: some may have been missed."""
        self._engine = engine
        self._signal = signal
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="work-signal", daemon=True)

    def start(self) -> None:
        """Begin; nothing on SQLite."""
        if self._engine.dialect.name == "postgresql":
            self._thread.start()

    def stop(self, deadline_s: float) -> None:
        """End, at the latest after `deadline_s`."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(deadline_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except (SQLAlchemyError, OSError, self._engine.dialect.loaded_dbapi.Error) as error:
                _log.warning("work_signal_deaf", detail=str(error).strip(), retry_s=RECONNECT_S)
                self._stopping.wait(RECONNECT_S)

    def _listen(self) -> None:
        with self._engine.connect() as connection:
            # Out of the pool: it is kept for as long as the process lives.
            connection.detach()
            driver: Any = connection.connection.driver_connection
            driver.autocommit = True
            driver.execute(f"LISTEN {CHANNEL}")
            self._signal.give()
            while not self._stopping.is_set():
                for _ in driver.notifies(timeout=_HEARD_EVERY_S, stop_after=1):
                    self._signal.give()
