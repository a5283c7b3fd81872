"""The audit over HTTP: who did what."""

from typing import Annotated

from fastapi import APIRouter, Query

from contract import routes
from contract.administration import AuditEntry, AuditPage
from contract.queries import AuditQuery
from controller.api.devices import Admin
from controller.api.routing import serves
from controller.api.runs import Context
from controller.db.audit import AuditRepository

router = APIRouter(tags=["audit"])


@serves(router, routes.LIST_AUDIT)
def list_audit(query: Annotated[AuditQuery, Query()], context: Context, _: Admin) -> AuditPage:
    """What people and enrolling device agents did, newest first."""
    with context.view() as work:
        rows = AuditRepository(work.session).page(query)
    entries = [
        AuditEntry(
            audit_id=row.audit_id,
            at=row.created_at,
            actor=row.principal,
            action=row.action,
            subject=row.subject,
            detail=row.detail,
        )
        for row in rows[: query.limit]
    ]
    more = len(rows) > query.limit
    return AuditPage(entries=entries, next_page_token=str(entries[-1].audit_id) if more else None)
