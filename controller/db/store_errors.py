"""What SQLAlchemy and its drivers raise, as typed errors: the one place that reads their codes."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from controller.errors import (
    BadRequestError,
    FarmError,
    NotReadyError,
    StoreBusyError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnreachableError,
)

# PostgreSQL manual, appendix A.
_BUSY_STATES: Final = frozenset({"40001", "40P01", "55P03", "57014"})
_FULL_STATES: Final = frozenset({"53100"})
_READ_ONLY_STATES: Final = frozenset({"25006"})
_NO_TABLE_STATES: Final = frozenset({"42P01", "3F000"})
# Classes of states: connection, resources (too many clients, memory), operator, system.
_AWAY_CLASSES: Final = frozenset({"08", "53", "57", "58"})
# SQLite result codes, primary ones.
_BUSY_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_AWAY_CODES: Final = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
)


@contextmanager
def store_errors_translated() -> Iterator[None]:
    """Raises the typed error of what the store said; a broken constraint passes, its caller knows why."""
    try:
        yield
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        typed = _typed(error)
        if typed is None:
            raise
        raise typed from error
    except (OverflowError, UnicodeEncodeError) as error:
        # Drivers raise these plainly for a number beyond 64 bits and for half of a surrogate pair.
        raise _not_storable() from error


def _typed(error: SQLAlchemyError) -> FarmError | None:
    if isinstance(error, PoolTimeoutError):
        return StoreBusyError("all connections to the database are in use")
    if isinstance(error, DataError):
        return _not_storable()
    if not isinstance(error, DBAPIError):
        return None
    if isinstance(error.orig, sqlite3.Error):
        return _of_sqlite(error.orig)
    return _of_postgresql(error)


def _of_sqlite(error: sqlite3.Error) -> FarmError | None:
    # The low byte is the primary code, the rest says more.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _BUSY_CODES:
        return StoreBusyError()
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError()
    if code == sqlite3.SQLITE_READONLY:
        return StoreReadOnlyError()
    if code in _AWAY_CODES:
        return StoreUnreachableError(str(error))
    return _not_migrated() if str(error).startswith("no such table") else None


def _of_postgresql(error: DBAPIError) -> FarmError | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state in _BUSY_STATES:
        return StoreBusyError()
    if state in _FULL_STATES:
        return StoreFullError()
    if state in _READ_ONLY_STATES:
        return StoreReadOnlyError()
    if state in _NO_TABLE_STATES:
        return _not_migrated()
    lost = error.connection_invalidated or (state is None and type(error).__name__ == "OperationalError")
    if lost or (state or "")[:2] in _AWAY_CLASSES:
        first_line = str(error.orig).strip().partition("\n")[0]
        return StoreUnreachableError(first_line)
    return None


def _not_storable() -> BadRequestError:
    return BadRequestError(
        "", "a value cannot be stored: a number beyond 64 bits, a NUL character or half of a surrogate pair"
    )


def _not_migrated() -> NotReadyError:
    return NotReadyError("the database has no tables yet; run `python -m controller migrate`")
