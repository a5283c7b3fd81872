"""Runs over HTTP: submit, look, cancel, report, gate, live, compare."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from contract.ids import Name, RunId
from contract.rest import Comparison, GateView, LiveView, RunPage, RunReport, RunRequest, RunView
from controller.api.auth import Principal, requires
from controller.api.context import ApiContext, context_of
from controller.api.idempotency import REPLAYED_HEADER, IdempotencyKey, KeyedRequest, answer_once
from controller.db.models import AuditRow, TokenScope
from controller.db.runs import RunRepository
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.operators import cancel_run
from controller.runs.compare import ComparisonRequest, compare_runs
from controller.runs.live import EventCache, live_view
from controller.runs.prepare import prepare
from controller.runs.reports import conclude_if_due, run_gate, run_report
from controller.runs.submit import submit
from controller.runs.views import run_views

router = APIRouter(prefix="/v1/runs", tags=["runs"])

Context = Annotated[ApiContext, Depends(context_of)]
Viewer = Annotated[Principal, Depends(requires(TokenScope.VIEWER))]
Submitter = Annotated[Principal, Depends(requires(TokenScope.SUBMITTER))]
Limit = Annotated[int, Query(ge=1, le=200)]


class ComparisonQuery(BaseModel):
    """With which run, on which arm; device_model and variant choose one result of several."""

    model_config = ConfigDict(extra="forbid")

    baseline: RunId
    arm: Name = "paged"
    force: bool = False
    device_model: Annotated[str, Field(max_length=200)] | None = None
    variant: Annotated[str, Field(max_length=200)] | None = None


@router.post("", status_code=HTTPStatus.CREATED, response_model=RunView)
def submit_run(
    body: RunRequest, context: Context, principal: Submitter, idempotency_key: IdempotencyKey = None
) -> JSONResponse:
    """Submit a run. With an Idempotency-Key, sending it again gives the first answer and no second run."""
    # Compiling takes time and needs no store: no agent has to wait for it.
    prepared = prepare(body)
    keyed = KeyedRequest(principal, idempotency_key, "POST /v1/runs", body, HTTPStatus.CREATED)

    def act(work: UnitOfWork) -> RunView:
        run = submit(work, prepared, principal.name)
        work.session.flush()
        return run_views(work, [run], context.settings.base_url)[0]

    answer = answer_once(context, keyed, act)
    context.bell.ring()
    headers = {"Location": f"/v1/runs/{answer.content['run_id']}"}
    if answer.replayed:
        headers[REPLAYED_HEADER] = "true"
    return JSONResponse(answer.content, HTTPStatus.CREATED, headers=headers)


@router.get("")
def list_runs(
    context: Context, _: Viewer, limit: Limit = 50, page_token: Annotated[RunId | None, Query()] = None
) -> RunPage:
    """Runs, newest first. page_token is the one that the page before gave."""
    with context.view() as work:
        runs = RunRepository(work.session).page(limit + 1, before_run_id=page_token)
        views = run_views(work, runs[:limit], context.settings.base_url)
    return RunPage(runs=views, next_page_token=views[-1].run_id if len(runs) > limit else None)


@router.get("/{run_id}")
def get_run(run_id: RunId, context: Context, _: Viewer) -> RunView:
    """One run with its jobs and attempts."""
    conclude_if_due(context, run_id)
    return _view(context, run_id)


@router.get("/{run_id}/request")
def get_request(run_id: RunId, context: Context, _: Viewer) -> RunRequest:
    """The request that made the run, with every default filled in: sending it again measures the same."""
    with context.view() as work:
        return RunRequest.model_validate(RunRepository(work.session).get(run_id).request)


@router.post("/{run_id}:cancel")
def cancel(run_id: RunId, context: Context, principal: Submitter) -> RunView:
    """Cancel what is not done. Again is no error; what runs stops at its agent's next renewal."""
    with context.unit_of_work() as work:
        cancelled = cancel_run(work, run_id)
        work.session.add(
            AuditRow(
                principal=principal.name,
                action="cancel",
                subject=run_id,
                detail=f"{cancelled} jobs",
                created_at=work.now,
            )
        )
    conclude_if_due(context, run_id)
    return _view(context, run_id)


@router.get("/{run_id}/report")
def get_report(run_id: RunId, context: Context, _: Viewer) -> RunReport:
    """All results so far; final once the run is completed."""
    conclude_if_due(context, run_id)
    with context.view() as work:
        return run_report(work.session, run_id, context.settings.base_url)


@router.get("/{run_id}/gate")
def get_gate(run_id: RunId, context: Context, _: Viewer) -> GateView:
    """The verdict of a completed run; 409 `result-not-ready` before."""
    conclude_if_due(context, run_id)
    with context.view() as work:
        return run_gate(work.session, run_id)


@router.get("/{run_id}/live")
def get_live(run_id: RunId, context: Context, request: Request, _: Viewer) -> LiveView:
    """Figures of the newest attempt as far as its events are stored."""
    cache: EventCache = request.app.state.event_cache
    with context.view() as work:
        return live_view(work.session, run_id, cache)


@router.get("/{run_id}/comparison")
def get_comparison(
    run_id: RunId, query: Annotated[ComparisonQuery, Query()], context: Context, _: Viewer
) -> Comparison:
    """This run against a baseline run; 409 `not-comparable` unless the same thing was measured or force."""
    asked = ComparisonRequest(
        run_id=run_id,
        baseline_run_id=query.baseline,
        arm=query.arm,
        force=query.force,
        device_model=query.device_model,
        variant=query.variant,
    )
    with context.view() as work:
        return compare_runs(work.session, asked)


def _view(context: ApiContext, run_id: str) -> RunView:
    with context.view() as work:
        run = RunRepository(work.session).get(run_id)
        return run_views(work, [run], context.settings.base_url)[0]
