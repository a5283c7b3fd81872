"""Stored events, samples and artifacts of attempts."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import zstandard
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from contract.agent_api import MAX_BATCH_BYTES
from contract.events import Event, Stream, parse_event
from controller.db.models import (
    ArtifactRow,
    AttemptSummaryRow,
    BlobRow,
    EventBatchRow,
    EventStreamRow,
    SampleRow,
)
from controller.errors import ArtifactNotFoundError

# A batch was bounded when it came in; a row that says otherwise is damaged.
_MAX_STORED_BYTES: Final = 2 * MAX_BATCH_BYTES
_PAGE_BATCHES: Final = 64


class EventRepository:
    """Raw lines in the order of their numbers, stream by stream."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lines(self, attempt_id: str, stream: Stream, first_seq: int = 1) -> Iterator[tuple[int, bytes]]:
        """(seq, line without its newline) of every stored event from first_seq on."""
        # Page by page rather than with a cursor: whoever stops in the middle leaves nothing open.
        next_seq = first_seq
        while batches := self._page(attempt_id, stream, next_seq):
            for batch in batches:
                for seq, line in enumerate(batch_lines(batch), batch.first_seq):
                    if seq >= first_seq:
                        yield seq, line
            next_seq = batches[-1].last_seq + 1

    def _page(self, attempt_id: str, stream: Stream, first_seq: int) -> list[EventBatchRow]:
        return list(
            self._session.scalars(
                select(EventBatchRow)
                .where(
                    EventBatchRow.attempt_id == attempt_id,
                    EventBatchRow.stream == stream,
                    EventBatchRow.last_seq >= first_seq,
                )
                .order_by(EventBatchRow.first_seq)
                .limit(_PAGE_BATCHES)
            )
        )

    def events(self, attempt_id: str, stream: Stream, first_seq: int = 1) -> Iterator[Event]:
        """Parsed events of a stream from first_seq on."""
        for _, line in self.lines(attempt_id, stream, first_seq):
            yield parse_event(line)

    def next_seq(self, attempt_id: str, stream: Stream) -> int:
        """The first number that is not stored."""
        row = self._session.get(EventStreamRow, (attempt_id, stream))
        return row.next_seq if row else 1


class SampleRepository:
    """Values that analysis computed from an attempt's events."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def replace(self, attempt_id: str, samples: Sequence[SampleRow]) -> None:
        """All samples of an attempt at once: computing them again changes nothing but the row numbers."""
        self._session.execute(delete(SampleRow).where(SampleRow.attempt_id == attempt_id))
        self._session.add_all(samples)

    def of(self, attempt_ids: Sequence[str]) -> list[SampleRow]:
        """Samples of these attempts in the order in which they were stored."""
        return list(
            self._session.scalars(
                select(SampleRow).where(SampleRow.attempt_id.in_(attempt_ids)).order_by(SampleRow.sample_id)
            )
        )

    def summary(self, attempt_id: str) -> dict[str, Any] | None:
        """What else analysis found, if it ran."""
        row = self._session.get(AttemptSummaryRow, attempt_id)
        return row.summary if row else None

    def keep_summary(self, attempt_id: str, summary: dict[str, Any], now: datetime) -> None:
        """Insert or replace."""
        row = self._session.get(AttemptSummaryRow, attempt_id)
        if row is None:
            self._session.add(AttemptSummaryRow(attempt_id=attempt_id, summary=summary, created_at=now))
        else:
            row.summary, row.created_at = summary, now


class ArtifactRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, attempt_id: str, name: str) -> ArtifactRow | None:
        return self._session.get(ArtifactRow, (attempt_id, name))

    def get(self, attempt_id: str, name: str) -> ArtifactRow:
        """ArtifactNotFoundError if the attempt has none of that name."""
        row = self.find(attempt_id, name)
        if row is None:
            raise ArtifactNotFoundError(name)
        return row

    def of(self, attempt_ids: Sequence[str]) -> list[ArtifactRow]:
        """Every artifact of these attempts, by attempt and name."""
        return list(
            self._session.scalars(
                select(ArtifactRow)
                .where(ArtifactRow.attempt_id.in_(attempt_ids))
                .order_by(ArtifactRow.attempt_id, ArtifactRow.name)
            )
        )

    def content(self, artifact: ArtifactRow) -> bytes:
        blob = self._session.get_one(BlobRow, artifact.sha256)
        return zstandard.decompress(blob.content_zstd, max_output_size=blob.size_bytes)


def batch_lines(batch: EventBatchRow) -> list[bytes]:
    """The lines of a stored batch without their newlines."""
    text = zstandard.decompress(batch.lines_zstd, max_output_size=_MAX_STORED_BYTES)
    return text.removesuffix(b"\n").split(b"\n")
