"""Runs over HTTP: submit, look, cancel, report, gate, live, compare."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse

from contract import routes
from contract.administration import AuditAction
from contract.headers import IDEMPOTENCY_REPLAYED_HEADER
from contract.ids import RunId
from contract.queries import ComparisonQuery, RunsQuery
from contract.rest import Comparison, GateView, LiveView, RunPage, RunReport, RunRequest, RunView
from controller.api.auth import Principal, requires
from controller.api.context import ApiContext, context_of
from controller.api.idempotency import IdempotencyKey, KeyedRequest, answer_once
from controller.api.routing import serves
from controller.db.audit import Act, AuditRepository
from controller.db.models import TokenScope
from controller.db.runs import RunRepository
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.operators import cancel_run
from controller.runs.compare import ComparisonRequest, compare_runs
from controller.runs.live import EventCache, live_view
from controller.runs.prepare import prepare
from controller.runs.reports import conclude_if_due, run_gate, run_report
from controller.runs.submit import submit
from controller.runs.views import run_view, run_views

router = APIRouter(tags=["runs"])

Context = Annotated[ApiContext, Depends(context_of)]
Viewer = Annotated[Principal, Depends(requires(TokenScope.VIEWER))]
Submitter = Annotated[Principal, Depends(requires(TokenScope.SUBMITTER))]


@serves(router, routes.SUBMIT_RUN, response_model=RunView)
def submit_run(
    body: RunRequest, context: Context, principal: Submitter, idempotency_key: IdempotencyKey = None
) -> JSONResponse:
    """Submit a run. With an Idempotency-Key, sending it again gives the first answer and no second run."""
    # Compiling takes time and needs no store: no agent has to wait for it.
    prepared = prepare(body)
    keyed = KeyedRequest(principal, idempotency_key, str(routes.SUBMIT_RUN), body, routes.SUBMIT_RUN.status)

    def act(work: UnitOfWork) -> RunView:
        run = submit(work, prepared, principal.name)
        work.session.flush()
        return run_view(work, run, context.settings.base_url)

    answer = answer_once(context, keyed, act)
    headers = {"Location": routes.GET_RUN.path(run_id=str(answer.content["run_id"]))}
    if answer.replayed:
        headers[IDEMPOTENCY_REPLAYED_HEADER] = "true"
    return JSONResponse(answer.content, routes.SUBMIT_RUN.status, headers=headers)


@serves(router, routes.LIST_RUNS)
def list_runs(query: Annotated[RunsQuery, Query()], context: Context, _: Viewer) -> RunPage:
    """Runs, newest first. page_token is the one that the page before gave."""
    limit = query.limit
    with context.view() as work:
        runs = RunRepository(work.session).page(limit + 1, before_run_id=query.page_token)
        views = run_views(work, runs[:limit], context.settings.base_url)
    return RunPage(runs=views, next_page_token=views[-1].run_id if len(runs) > limit else None)


@serves(router, routes.GET_RUN)
def get_run(run_id: RunId, context: Context, _: Viewer) -> RunView:
    """One run with its jobs and attempts."""
    conclude_if_due(context, run_id)
    return _view(context, run_id)


@serves(router, routes.GET_REQUEST)
def get_request(run_id: RunId, context: Context, _: Viewer) -> RunRequest:
    """The request that made the run, with every default filled in: sending it again measures the same."""
    with context.view() as work:
        return RunRequest.model_validate(RunRepository(work.session).get(run_id).request)


@serves(router, routes.CANCEL_RUN)
def cancel(run_id: RunId, context: Context, principal: Submitter) -> RunView:
    """Cancel what is not done. Again is not an error; what runs stops at its agent's next renewal."""
    with context.unit_of_work() as work:
        cancelled = cancel_run(work, run_id)
        act = Act(principal.name, AuditAction.CANCEL, run_id, f"{cancelled} jobs")
        AuditRepository(work.session).record(act, work.now)
    conclude_if_due(context, run_id)
    return _view(context, run_id)


@serves(router, routes.GET_REPORT)
def get_report(run_id: RunId, context: Context, _: Viewer) -> RunReport:
    """All results so far; final once the run is completed."""
    conclude_if_due(context, run_id)
    with context.view() as work:
        return run_report(work.session, run_id, context.settings.base_url)


@serves(router, routes.GET_GATE)
def get_gate(run_id: RunId, context: Context, _: Viewer) -> GateView:
    """The verdict of a completed run; 409 `result-not-ready` before."""
    conclude_if_due(context, run_id)
    with context.view() as work:
        return run_gate(work.session, run_id)


@serves(router, routes.GET_LIVE)
def get_live(run_id: RunId, context: Context, request: Request, _: Viewer) -> LiveView:
    """Figures of the newest attempt as far as its events are stored."""
    cache: EventCache = request.app.state.event_cache
    with context.view() as work:
        return live_view(work.session, run_id, cache)


@serves(router, routes.GET_COMPARISON)
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
        return run_view(work, run, context.settings.base_url)
