"""Brings a database to the newest schema; safe to call at every start and from several processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from controller.db.session import READS, Sessions, open_sessions
from controller.db.store_errors import store_errors_translated
from controller.errors import NotReadyError, SchemaNewerError, StoreReadOnlyError

# In a checkout the migrations lie beside the packages, in a wheel inside this one.
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_PLACES: Final = (_PACKAGE.parent / "migrations", _PACKAGE / "_migrations")
_LOCK_KEY: Final = 0x64796E6F


class MigrationsMissingError(RuntimeError):
    """This installation has no migrations: it is neither a checkout nor a wheel of ours."""


def upgrade(database_url: str) -> None:
    """Make or change the tables, up to the newest revision; nothing happens when they are there."""
    sessions = open_sessions(database_url)
    try:
        upgrade_opened(sessions)
    finally:
        sessions.close()


def upgrade_opened(sessions: Sessions) -> None:
    """As `upgrade`, on an open database; needed for SQLite in memory."""
    with store_errors_translated(), sessions.engine.connect() as connection:
        config = _config()
        config.attributes["connection"] = connection
        with _alone(connection):
            _require_known(connection)
            command.upgrade(config, "head")
            connection.commit()


def require_ready(sessions: Sessions) -> None:
    """Raises one of STORE_ERRORS, NotReadyError or SchemaNewerError where requests cannot be served."""
    with (
        store_errors_translated(),
        sessions.engine.execution_options(**{READS: True}).connect() as connection,
    ):
        if _require_known(connection) != _scripts().get_current_head():
            raise NotReadyError("the database is not migrated; run `python -m controller migrate`")
        if not _is_writable(connection):
            raise StoreReadOnlyError


def _require_known(connection: Connection) -> str | None:
    """The database's revision, None without tables; SchemaNewerError for one that is not known here."""
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None and revision not in {script.revision for script in _scripts().walk_revisions()}:
        raise SchemaNewerError(revision)
    return revision


def _is_writable(connection: Connection) -> bool:
    if connection.dialect.name == "postgresql":
        # After a failover to a standby everything can be read, and nothing be written.
        return bool(connection.scalar(text("SHOW transaction_read_only")) == "off")
    path = connection.engine.url.database
    return not path or path == ":memory:" or os.access(path, os.W_OK)


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    for place in _PLACES:
        if (place / "env.py").is_file():
            config = Config()
            config.set_main_option("script_location", str(place).replace("%", "%%"))
            return config
    raise MigrationsMissingError(f"no migrations in {' or '.join(str(place) for place in _PLACES)}")


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Several replicas start at once: one migrates, the others wait for it and find nothing to do."""
    if connection.dialect.name != "postgresql":
        yield
        return
    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK_KEY})
    try:
        yield
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK_KEY})
