"""What can be asked for: workloads, metrics, and tokens for new device agents."""

from datetime import timedelta

from fastapi import APIRouter

from contract import routes
from contract.administration import EnrollmentTokenRequest, NewToken
from contract.metrics import METRICS
from contract.rest import MetricList, WorkloadList
from controller.api.devices import Admin
from controller.api.routing import serves
from controller.api.runs import Context, Viewer
from controller.db.models import AuditRow, TokenKind
from controller.db.tokens import TokenGrant, TokenRepository, token_digest, token_id
from workloads import catalogue

router = APIRouter(tags=["catalogue"])


@serves(router, routes.LIST_WORKLOADS)
def list_workloads(_: Viewer) -> WorkloadList:
    """Workloads that can be named in a run."""
    return WorkloadList(workloads=catalogue())


@serves(router, routes.LIST_METRICS)
def list_metrics(_: Viewer) -> MetricList:
    """The metric catalogue: names, units, definitions."""
    return MetricList(metrics=list(METRICS.values()))


@serves(router, routes.CREATE_ENROLLMENT_TOKEN)
def create_enrollment_token(
    context: Context, principal: Admin, body: EnrollmentTokenRequest | None = None
) -> NewToken:
    """A token with which one device agent may enrol, once, within the hour. It is shown here only."""
    asked = body or EnrollmentTokenRequest()
    with context.unit_of_work() as work:
        expires_at = work.now + timedelta(seconds=asked.valid_s)
        grant = TokenGrant(TokenKind.ENROLMENT, asked.name, expires_at=expires_at)
        token = TokenRepository(work.session).issue(grant, work.now)
        work.session.add(
            AuditRow(
                principal=principal.name,
                action="enrollment_token",
                subject=asked.name,
                detail=f"until {expires_at.isoformat()}",
                created_at=work.now,
            )
        )
    return NewToken(token_id=token_id(token_digest(token)), token=token, expires_at=expires_at)
