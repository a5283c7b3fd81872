"""The declarative base and the column types that mean the same on SQLite and on PostgreSQL."""

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

import zstandard
from sqlalchemy import BigInteger, DateTime, Dialect, Integer, LargeBinary, MetaData, String
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

# Constraints have names, so that a migration can change them on both databases.
_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

Word = TypeVar("Word", bound=StrEnum)

MAX_DOCUMENT_BYTES = 256 << 20

# SQLite counts rows by itself only in a column declared INTEGER.
RowNumber = BigInteger().with_variant(Integer, "sqlite")


class Row(DeclarativeBase):
    """Base of every table."""

    metadata = MetaData(naming_convention=_NAMES)


class NaiveDatetimeError(ValueError):
    """A time without a zone was about to be stored: nobody could say later when it was."""

    def __init__(self, value: datetime) -> None:
        super().__init__(f"{value.isoformat()} has no time zone; pass an aware datetime")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime, stored and returned in UTC with microseconds; NaiveDatetimeError for a naive one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC; SQLite has no zones, so there the zone is dropped after the conversion."""
        if value is None:
            return None
        if value.tzinfo is None or value.utcoffset() is None:
            raise NaiveDatetimeError(value)
        in_utc = value.astimezone(UTC)
        return in_utc.replace(tzinfo=None) if dialect.name == "sqlite" else in_utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Always aware."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class WordText(TypeDecorator[Word], Generic[Word]):
    """A StrEnum as text. An unknown word in the database raises ValueError when it is read.

    No CHECK constraint lists the words: a new state must not need a migration that locks the table.
    """

    impl = String(32)
    cache_ok = True

    def __init__(self, words: type[Word]) -> None:
        """`words` is the enumeration whose members may be stored."""
        super().__init__()
        self.words = words

    def process_bind_param(self, value: Word | None, dialect: Dialect) -> str | None:
        """The member's value; a string that is not a member raises ValueError."""
        return None if value is None else self.words(value).value

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Word | None:
        return None if value is None else self.words(value)


class CompressedJson(TypeDecorator[Any]):
    """A JSON document of any size as zstd bytes: compiled workloads and specs are large and repetitive."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> bytes | None:
        """Canonical JSON (sorted keys), compressed."""
        if value is None:
            return None
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return zstandard.compress(text.encode())

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Any:
        """The document as it was given."""
        if value is None:
            return None
        return json.loads(zstandard.decompress(value, max_output_size=MAX_DOCUMENT_BYTES))
