"""The service about itself: alive, ready, and its metrics."""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from contract import routes
from contract.health import Health, HealthQuery, proof_of
from contract.version import CONTRACT_VERSION, installed_version
from controller.admin_token import home_token
from controller.api.auth import Principal, requires
from controller.api.context import ApiContext, context_of
from controller.api.metrics import ServiceMetrics
from controller.api.routing import serves
from controller.db.migrate import require_ready
from controller.db.models import AttemptRow, DeviceRow, JobRow, OutboxRow, RunRow, TokenScope
from controller.errors import FarmError

router = APIRouter(tags=["service"])

_COUNTED: Final = {
    "runs": RunRow.state,
    "jobs": JobRow.state,
    "attempts": AttemptRow.state,
    "devices": DeviceRow.state,
}


@serves(router, routes.HEALTH)
def health(
    query: Annotated[HealthQuery, Query()], context: Annotated[ApiContext, Depends(context_of)]
) -> Health:
    """The process answers. Open, and no database is touched: a busy one is not a reason to restart it."""
    token = home_token(context.settings.home_path) if query.challenge else ""
    return Health(
        status="ok",
        version=installed_version(),
        contract_version=CONTRACT_VERSION,
        checks={"process": "ok"},
        proof=proof_of(token, context.settings.port, query.challenge) if token else "",
    )


@serves(router, routes.READY)
def ready(context: Annotated[ApiContext, Depends(context_of)], response: Response) -> Health:
    """200 when requests can be served, 503 when the database is away, read-only or not migrated. Open."""
    database = "ok"
    try:
        require_ready(context.sessions)
    except FarmError as error:
        database = str(error)
    is_ready = database == "ok"
    response.status_code = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return Health(
        status="ok" if is_ready else "degraded",
        version=installed_version(),
        contract_version=CONTRACT_VERSION,
        checks={"database": database},
    )


@serves(router, routes.SERVICE_METRICS)
def metrics(
    request: Request,
    context: Annotated[ApiContext, Depends(context_of)],
    _: Annotated[Principal, Depends(requires(TokenScope.VIEWER))],
) -> Response:
    """Prometheus metrics of this process and of the farm."""
    service: ServiceMetrics = request.app.state.metrics
    with context.view() as work:
        _read_farm(work.session, service)
    return Response(service.exposition(), media_type=CONTENT_TYPE_LATEST)


def _read_farm(session: Session, service: ServiceMetrics) -> None:
    for table, column in _COUNTED.items():
        counts = session.execute(select(column, func.count()).group_by(column)).all()
        service.set_rows(table, {state.value: count for state, count in counts})
    waiting = select(func.count()).select_from(OutboxRow).where(OutboxRow.published_at.is_(None))
    service.set_outbox(session.scalar(waiting) or 0)
