"""The outbox: messages promised in the same transaction as their cause, published afterwards."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from controller.db.models import OutboxRow


class Topic(StrEnum):
    """What happened. The payload names the row: {"attempt_id": …}, {"job_id": …} or {"run_id": …}."""

    ATTEMPT_ENDED = "attempt_ended"
    RUN_CHANGED = "run_changed"


class Outbox:
    """Publishing may happen twice (a crash between publish and mark): whoever listens is idempotent."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, topic: Topic, payload: dict[str, str], now: datetime) -> None:
        """Promise a message; it exists once the transaction does."""
        self._session.add(OutboxRow(topic=topic.value, payload=payload, created_at=now))

    def unpublished(self, limit: int = 500) -> list[OutboxRow]:
        """The oldest messages not yet marked, in the order of their promise."""
        return list(
            self._session.scalars(
                select(OutboxRow)
                .where(OutboxRow.published_at.is_(None))
                .order_by(OutboxRow.outbox_id)
                .limit(limit)
                .with_for_update(skip_locked=True)
            )
        )

    def mark_published(self, outbox_ids: list[int], now: datetime) -> None:
        self._session.execute(
            update(OutboxRow).where(OutboxRow.outbox_id.in_(outbox_ids)).values(published_at=now)
        )
