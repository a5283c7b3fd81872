"""The database and its transactions: the one place that commits.

SQLite is set up for several writers: WAL, a busy time-out of 10 s, and BEGIN IMMEDIATE
for every unit of work, so that a claim never reads what another writer is about to change. On
PostgreSQL the same code relies on row locks (`FOR UPDATE`), which SQLite ignores.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import StaticPool

from controller.db.store_errors import store_errors_translated
from controller.db.work_signal import WorkSignal, is_asked_for, notify_others
from controller.errors import StoreBusyError

BUSY_TIMEOUT_S: Final = 10.0
POOL_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 5
READS: Final = "dynofarm_reads"


@dataclass(frozen=True, slots=True)
class Sessions:
    """An open database. Use `unit_of_work` and `read_only`; `engine` is for migrations and closing."""

    engine: Engine
    writers: sessionmaker[Session]
    readers: sessionmaker[Session]
    work_signal: WorkSignal = field(default_factory=WorkSignal)
    write_turn: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()


def open_sessions(database_url: str) -> Sessions:
    """Sessions on a database that exists; tables are made by controller/db/migrate.py."""
    engine = _open_engine(database_url)
    reading = engine.execution_options(**{READS: True})
    return Sessions(
        engine=engine,
        writers=sessionmaker(engine, expire_on_commit=False),
        readers=sessionmaker(reading, expire_on_commit=False),
    )


@contextmanager
def unit_of_work(sessions: Sessions) -> Iterator[Session]:
    """One transaction: committed at the end of the block, rolled back by any error.

    Raises one of STORE_ERRORS, and nothing is changed, where the database cannot do it now.
    """
    with store_errors_translated(), _turn_to_write(sessions), sessions.writers() as session:
        with session.begin():
            # SQLAlchemy begins at the first statement; the write lock must be there before the first read.
            session.connection()
            yield session
            if is_asked_for(session):
                notify_others(session)
        if is_asked_for(session):
            sessions.work_signal.give()


@contextmanager
def read_only(sessions: Sessions) -> Iterator[Session]:
    """A consistent view for reading; it never waits for a writer, and what it adds is thrown away."""
    with store_errors_translated(), sessions.readers() as session:
        # Closing rolls back and, unlike rollback(), leaves loaded rows readable.
        yield session


def _open_engine(database_url: str) -> Engine:
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        return create_engine(
            url,
            pool_pre_ping=True,
            pool_timeout=POOL_TIMEOUT_S,
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S},
        )
    options: dict[str, Any] = {"connect_args": {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}}
    if not url.database or url.database == ":memory:":
        options["poolclass"] = StaticPool
    engine = create_engine(url, **options)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: Any) -> None:
    """Autocommit in the driver, so that BEGIN is ours to write; and the pragmas of every connection."""
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA busy_timeout={int(BUSY_TIMEOUT_S * 1000)}")
    finally:
        cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    reads = connection.get_execution_options().get(READS, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


@contextmanager
def _turn_to_write(sessions: Sessions) -> Iterator[None]:
    """On SQLite one transaction writes at a time. Threads of this process wait for each other here, without a
    connection; SQLite's own waiting is sleeping and trying again, and is left for other processes."""
    if sessions.engine.dialect.name != "sqlite":
        yield
        return
    if not sessions.write_turn.acquire(timeout=BUSY_TIMEOUT_S):
        raise StoreBusyError
    try:
        yield
    finally:
        sessions.write_turn.release()
