"""Storing a batch: each event once, in order, without a gap."""

from typing import Literal

import zstandard
from sqlalchemy.exc import IntegrityError

from contract.agent_api import EventBatchHeader, EventsAnswer
from contract.events import Stream
from contract.states import AttemptState, JobState
from controller.db.attempts import AttemptRepository
from controller.db.events import EventRepository
from controller.db.models import AttemptRow, EventBatchRow, EventStreamRow
from controller.db.runs import JobRepository
from controller.db.unit_of_work import UnitOfWork
from controller.errors import (
    AttemptNotFoundError,
    EventsGapError,
    FencedError,
    SeqConflictError,
    StreamSealedError,
)
from controller.ingest.batch import Batch
from controller.protocol.enrolment import touch_agent


def store_batch(work: UnitOfWork, device_agent_id: str, attempt_id: str, batch: Batch) -> EventsAnswer:
    """Append what is new and acknowledge everything stored; the same batch again changes nothing.

    Raises AttemptNotFoundError, FencedError, EventsGapError, SeqConflictError (a stored event came again with
    other bytes) and StreamSealedError (new events after an accepted result); then nothing is stored.
    An attempt that has ended without a result, lost or orphaned, still takes its own events.
    """
    touch_agent(work, device_agent_id)
    # Locked first: the result of the same attempt must not be accepted between our look and our write.
    attempt = AttemptRepository(work.session).get_locked(attempt_id)
    if attempt.device_agent_id != device_agent_id:
        raise AttemptNotFoundError(attempt_id)
    header = batch.header
    if header.fence != attempt.fence:
        raise FencedError(header.fence, attempt.fence)
    stream = _stream(work, attempt_id, header.stream)
    _require_no_gap(header, stream)
    new = _without_overlap(work, attempt_id, batch, stream.next_seq)
    if new:
        if attempt.last_seq is not None:
            raise StreamSealedError(header.stream.value, stream.next_seq)
        _append(work, stream, header, new)
        _notice(work, attempt, header.stream)
    return EventsAnswer(
        next_seq=stream.next_seq,
        min_interval_s=work.times.events_min_interval_s,
        directive=_directive(work, attempt),
    )


def _stream(work: UnitOfWork, attempt_id: str, stream: Stream) -> EventStreamRow:
    key = (attempt_id, stream)
    found = work.session.get(EventStreamRow, key, with_for_update=True, populate_existing=True)
    if found is not None:
        return found
    try:
        with work.session.begin_nested():
            opened = EventStreamRow(attempt_id=attempt_id, stream=stream, next_seq=1)
            work.session.add(opened)
        return opened
    except IntegrityError:
        return work.session.get_one(EventStreamRow, key, with_for_update=True)


def _require_no_gap(header: EventBatchHeader, stream: EventStreamRow) -> None:
    if header.first_seq > stream.next_seq:
        raise EventsGapError(header.stream.value, stream.next_seq)


def _without_overlap(work: UnitOfWork, attempt_id: str, batch: Batch, next_seq: int) -> tuple[bytes, ...]:
    """The lines from next_seq on; those before it must be what is stored, byte for byte."""
    header = batch.header
    overlap = batch.lines[: next_seq - header.first_seq]
    if overlap:
        stored = EventRepository(work.session).lines(attempt_id, header.stream, header.first_seq)
        for line, (seq, stored_line) in zip(overlap, stored, strict=False):
            if line != stored_line:
                raise SeqConflictError(header.stream.value, seq)
    return batch.lines[len(overlap) :]


def _append(
    work: UnitOfWork, stream: EventStreamRow, header: EventBatchHeader, lines: tuple[bytes, ...]
) -> None:
    first_seq = stream.next_seq
    text = b"".join(line + b"\n" for line in lines)
    work.session.add(
        EventBatchRow(
            attempt_id=stream.attempt_id,
            stream=stream.stream,
            first_seq=first_seq,
            last_seq=first_seq + len(lines) - 1,
            lines_zstd=zstandard.compress(text),
            received_at=work.now,
            sent_at=header.sent_at,
        )
    )
    stream.next_seq = first_seq + len(lines)


def _notice(work: UnitOfWork, attempt: AttemptRow, stream: Stream) -> None:
    """Life signs of the runtime; what the agent says of it is none."""
    if stream is not Stream.DEVICE_AGENT and attempt.ended_at is None:
        attempt.last_event_at = work.now


def _directive(work: UnitOfWork, attempt: AttemptRow) -> Literal["continue", "cancel"]:
    """A lost attempt may go on sending: its late result may still count. Any other end is the end."""
    if attempt.ended_at is not None and attempt.state is not AttemptState.LOST:
        return "cancel"
    job = JobRepository(work.session).get(attempt.job_id)
    return "cancel" if job.state is JobState.CANCELLING else "continue"
