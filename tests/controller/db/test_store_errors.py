"""Whatever the database refuses is a typed error that says who must act."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest
from psycopg import errors as postgresql
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from contract.problems import PROBLEMS
from controller.db.models import AuditRow
from controller.db.session import Sessions, open_sessions, read_only, unit_of_work
from controller.db.store_errors import store_errors_translated
from controller.errors import (
    STORE_ERRORS,
    BadRequestError,
    FarmError,
    NotReadyError,
    StoreBusyError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnreachableError,
)
from tests.controller.farm import START, make_tables


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    sessions = open_sessions(f"sqlite:///{tmp_path / 'farm.sqlite'}")
    make_tables(sessions)
    return sessions


def note(detail: str) -> AuditRow:
    return AuditRow(principal="p", action="a", subject="s", detail=detail, created_at=START)


def of_postgresql(cause: Exception) -> DBAPIError:
    # Typed for a driver's own class of errors; it gives the DBAPIError that a statement would have raised.
    return DBAPIError.instance("SELECT 1", {}, cause, postgresql.Error)  # type: ignore[return-value, arg-type]


@pytest.mark.parametrize(
    ("cause", "typed"),
    [
        (postgresql.SerializationFailure(), StoreBusyError),
        (postgresql.LockNotAvailable(), StoreBusyError),
        (postgresql.DiskFull(), StoreFullError),
        (postgresql.ReadOnlySqlTransaction(), StoreReadOnlyError),
        (postgresql.AdminShutdown(), StoreUnreachableError),
        (postgresql.CannotConnectNow(), StoreUnreachableError),
        (postgresql.TooManyConnections(), StoreUnreachableError),
        (postgresql.OperationalError("connection failed: refused"), StoreUnreachableError),
        (postgresql.UndefinedTable(), NotReadyError),
        (postgresql.NumericValueOutOfRange(), BadRequestError),
        (postgresql.DataError("text fields cannot contain NUL"), BadRequestError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_postgresql_says_becomes_a_typed_error(cause: Exception, typed: type[FarmError]) -> None:
    with pytest.raises(typed), store_errors_translated():
        raise of_postgresql(cause)


def test_an_exhausted_pool_is_busy_and_a_broken_constraint_is_its_caller_s_to_read() -> None:
    with pytest.raises(StoreBusyError, match="connections"), store_errors_translated():
        raise PoolTimeoutError
    with pytest.raises(IntegrityError), store_errors_translated():
        raise IntegrityError("INSERT", {}, ValueError())


def test_every_store_error_is_503_retryable_and_the_lab_s() -> None:
    for error in STORE_ERRORS:
        kind = PROBLEMS[error.kind]
        assert (kind.status, kind.fault, kind.retryable) == (503, "lab", True)


def test_a_full_sqlite_is_said_to_be_full(sessions: Sessions) -> None:
    def fill() -> None:
        with unit_of_work(sessions) as session:
            pages = session.execute(text("PRAGMA page_count")).scalar()
            session.execute(text(f"PRAGMA max_page_count = {pages}"))
            session.add(note("x" * 1_000_000))

    with pytest.raises(StoreFullError, match="free space"):
        fill()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any file")
def test_a_file_without_the_right_to_write_is_read_only(tmp_path: Path, sessions: Sessions) -> None:
    sessions.close()
    path = tmp_path / "farm.sqlite"
    path.chmod(stat.S_IRUSR)
    with pytest.raises(STORE_ERRORS), unit_of_work(sessions) as session:
        session.add(note("x"))


def test_a_file_that_is_no_database_or_no_file_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"no database" * 1000)
    for path in (tmp_path / "noise", tmp_path / "nowhere" / "farm.sqlite"):
        with pytest.raises(StoreUnreachableError), read_only(open_sessions(f"sqlite:///{path}")) as session:
            session.execute(text("SELECT 1"))


@pytest.mark.parametrize("value", ["\ud800", 2**64], ids=["half a surrogate pair", "2**64"])
def test_a_value_that_no_column_holds_is_a_bad_request(sessions: Sessions, value: object) -> None:
    with pytest.raises(BadRequestError, match="cannot be stored"), read_only(sessions) as session:
        session.execute(text("SELECT :value"), {"value": value})


def test_what_nobody_knows_passes_as_it_is() -> None:
    with pytest.raises(OperationalError), store_errors_translated():
        raise OperationalError("SELECT", {}, sqlite3.OperationalError("near SELECT: syntax error"))
