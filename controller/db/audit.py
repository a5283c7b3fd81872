"""Who did what: written in the transaction of the act itself, read newest first."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.administration import AuditAction
from contract.queries import AuditQuery
from controller.db.models import AuditRow


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody did: `actor` is the name of a token, `subject` a run, a device, a token's name…"""

    actor: str
    action: AuditAction
    subject: str
    detail: str = ""


class AuditRepository:
    """The audit; no row of it is ever changed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def record(self, act: Act, now: datetime) -> None:
        """In the same transaction as the act: there is never one without the other."""
        self._session.add(
            AuditRow(
                principal=act.actor,
                action=act.action.value,
                subject=act.subject,
                detail=act.detail,
                created_at=now,
            )
        )

    def page(self, query: AuditQuery) -> list[AuditRow]:
        """At most one more than asked for, newest first; the one more says that there is a next page."""
        found = select(AuditRow).order_by(AuditRow.audit_id.desc()).limit(query.limit + 1)
        if query.subject is not None:
            found = found.where(AuditRow.subject == query.subject)
        if query.actor is not None:
            found = found.where(AuditRow.principal == query.actor)
        if query.since is not None:
            found = found.where(AuditRow.created_at >= query.since)
        if query.until is not None:
            found = found.where(AuditRow.created_at < query.until)
        if query.page_token is not None:
            found = found.where(AuditRow.audit_id < int(query.page_token))
        return list(self._session.scalars(found))
