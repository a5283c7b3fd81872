"""What attempts measured: raw events in batches, samples computed from them, artifacts; and the outbox."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    String,
)
from sqlalchemy.orm import Mapped, mapped_column

from contract.artifacts import ArtifactKind
from contract.events import Stream
from controller.db.models.columns import Row, RowNumber, UtcDateTime, WordText


class EventStreamRow(Row):
    """How far a stream of an attempt is stored: every event before `next_seq`, none from it on."""

    __tablename__ = "event_streams"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.attempt_id"), primary_key=True)
    stream: Mapped[Stream] = mapped_column(WordText(Stream), primary_key=True)
    next_seq: Mapped[int] = mapped_column(BigInteger, default=1)


class EventBatchRow(Row):
    """Stored events first_seq to last_seq: their lines as sent, each ending in a newline, as zstd bytes.

    One row a batch: a row per token would drown the table.
    """

    __tablename__ = "event_batches"
    __table_args__ = (
        CheckConstraint("last_seq >= first_seq AND first_seq >= 1", name="range"),
        ForeignKeyConstraint(
            ["attempt_id", "stream"],
            ["event_streams.attempt_id", "event_streams.stream"],
            name="fk_event_batches_stream",
        ),
    )

    attempt_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    stream: Mapped[Stream] = mapped_column(WordText(Stream), primary_key=True)
    first_seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    last_seq: Mapped[int] = mapped_column(BigInteger)
    lines_zstd: Mapped[bytes] = mapped_column(LargeBinary)
    received_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime] = mapped_column(UtcDateTime)
    """The agent's clock; with `received_at` it shows the skew."""


class SampleRow(Row):
    """One value of one metric, computed from events by measures; replaced as a whole."""

    __tablename__ = "samples"
    __table_args__ = (Index(None, "attempt_id", "metric"),)

    sample_id: Mapped[int] = mapped_column(RowNumber, primary_key=True, autoincrement=True)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.attempt_id"))
    trial: Mapped[int]
    arm: Mapped[str] = mapped_column(String(64))
    pair: Mapped[int | None]
    metric: Mapped[str] = mapped_column(String(64))
    agent: Mapped[str | None] = mapped_column(String(64))
    """The LLM agent inside the workload, for metrics of that scope."""
    call: Mapped[int | None]
    value: Mapped[float] = mapped_column(Float)
    thermal_state: Mapped[str] = mapped_column(String(16), default="unknown", server_default="unknown")
    """Of the trial, as are the following: None where nothing told them."""
    battery_percent: Mapped[float | None] = mapped_column(Float)
    charging: Mapped[bool | None]
    low_power_mode: Mapped[bool | None]


class AttemptSummaryRow(Row):
    """What analysis found in one attempt beside its samples; can be computed again from the events."""

    __tablename__ = "attempt_summaries"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.attempt_id"), primary_key=True)
    summary: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ArtifactRow(Row):
    """A file that belongs to an attempt; its content is a blob."""

    __tablename__ = "artifacts"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.attempt_id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[ArtifactKind] = mapped_column(
        WordText(ArtifactKind), default=ArtifactKind.OTHER, server_default=ArtifactKind.OTHER.value
    )
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class OutboxRow(Row):
    """A message that was promised in the same transaction as its cause; payload holds ids only."""

    __tablename__ = "outbox"
    __table_args__ = (Index(None, "published_at", "outbox_id"),)

    outbox_id: Mapped[int] = mapped_column(RowNumber, primary_key=True, autoincrement=True)
    topic: Mapped[str] = mapped_column(String(48))
    payload: Mapped[dict[str, str]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    published_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
