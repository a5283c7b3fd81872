"""Upkeep: deadlines that no call has noticed, and rows whose time is over."""

from datetime import timedelta
from typing import Final

import structlog
from sqlalchemy import delete, select

from contract.states import RunState
from controller.db.models import EndedSessionRow, IdempotencyKeyRow, OutboxRow, RunRow, TokenKind, TokenRow
from controller.db.periodic import take_period
from controller.protocol.sweep import sweep
from controller.runs.reports import conclude_if_due
from controller.tasks.context import TaskContext

IDEMPOTENCY_KEPT: Final = timedelta(hours=24)
OUTBOX_KEPT: Final = timedelta(hours=24)
ENROLMENT_KEPT: Final = timedelta(days=7)

_log = structlog.get_logger(__name__)


def sweep_if_due(context: TaskContext, interval_s: float) -> bool:
    """Enforce every deadline, complete the runs that nobody completed; False when another just did.

    Any number of schedulers may ask: the first in each interval does the work. Half an interval counts as
    one, so that a scheduler that is a little early does not lose its turn.
    """
    with context.unit_of_work() as work:
        if not take_period(work.session, "sweep", timedelta(seconds=interval_s / 2), work.now):
            return False
    with context.unit_of_work() as work:
        counts = sweep(work)
        finishing = list(
            work.session.scalars(select(RunRow.run_id).where(RunRow.state == RunState.FINISHING))
        )
    if any(getattr(counts, name) for name in counts.__slots__):
        _log.info("sweep_found", **{name: getattr(counts, name) for name in counts.__slots__})
    failed = []
    for run_id in finishing:
        try:
            conclude_if_due(context, run_id)
        except Exception as error:
            # The others are concluded first: one run must not keep them all from their verdicts.
            error.add_note(f"run {run_id}")
            failed.append(error)
    if failed:
        raise ExceptionGroup("runs that could not be concluded", failed)
    return True


def forget_expired(context: TaskContext) -> int:
    """Delete what nobody can ask for any more: answers, messages, sessions, enrolments. Returns how many."""
    with context.unit_of_work() as work:
        doomed = (
            delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < work.now - IDEMPOTENCY_KEPT),
            delete(EndedSessionRow).where(EndedSessionRow.expires_at < work.now),
            delete(OutboxRow).where(OutboxRow.published_at < work.now - OUTBOX_KEPT),
            delete(TokenRow).where(
                TokenRow.kind == TokenKind.ENROLMENT, TokenRow.expires_at < work.now - ENROLMENT_KEPT
            ),
        )
        return sum(len(work.session.execute(statement.returning(1)).all()) for statement in doomed)
