"""Runs migrations: on the connection that controller/db/migrate.py passes in, or on DYNOFARM_DATABASE_URL."""

from typing import Any

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.types import TypeEngine

from controller.db.models import CompressedJson, Row, UtcDateTime, WordText
from controller.db.session import open_sessions
from controller.settings import Settings

# Migrations must not change when a type of ours does, so they name what the database gets.
_PLAIN = {
    UtcDateTime: "sa.DateTime(timezone=True)",
    WordText: "sa.String(length=32)",
    CompressedJson: "sa.LargeBinary()",
}


def _render(kind: str, item: Any, autogenerate_context: Any) -> str | bool:
    if kind == "type" and isinstance(item, TypeEngine):
        return _PLAIN.get(type(item), False)
    return False


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Row.metadata,
        render_item=_render,
        # SQLite changes a table by copying it.
        render_as_batch=connection.dialect.name == "sqlite",
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _migrate(given)
else:
    sessions = open_sessions(Settings().resolved_database_url)
    with sessions.engine.connect() as opened:
        _migrate(opened)
        opened.commit()
    sessions.close()
