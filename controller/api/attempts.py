"""Jobs and attempts over HTTP: where they stand, why they wait, and the events they wrote."""

import json
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query

from contract import routes
from contract.ids import AttemptId, JobId
from contract.queries import EventsQuery
from contract.rest import AttemptView, EventsPage, JobExplanation, JobView
from controller.api.routing import serves
from controller.api.runs import Context, Viewer
from controller.db.attempts import AttemptRepository
from controller.db.events import EventRepository
from controller.db.runs import JobRepository
from controller.runs.views import attempt_view, job_explanation, job_views

router = APIRouter(tags=["jobs and attempts"])


@serves(router, routes.GET_JOB)
def get_job(job_id: JobId, context: Context, _: Viewer) -> JobView:
    """One job with its attempts."""
    with context.view() as work:
        return job_views(work, [JobRepository(work.session).get(job_id)])[0]


@serves(router, routes.EXPLAIN_JOB)
def explain_job(job_id: JobId, context: Context, _: Viewer) -> JobExplanation:
    """Why the job waits, device by device."""
    with context.view() as work:
        return job_explanation(work, JobRepository(work.session).get(job_id))


@serves(router, routes.GET_ATTEMPT)
def get_attempt(attempt_id: AttemptId, context: Context, _: Viewer) -> AttemptView:
    """One attempt."""
    with context.view() as work:
        attempts = AttemptRepository(work.session)
        return attempt_view(attempts.get(attempt_id), attempts.next_seqs([attempt_id])[attempt_id])


@serves(router, routes.GET_EVENTS)
def get_events(
    attempt_id: AttemptId, query: Annotated[EventsQuery, Query()], context: Context, _: Viewer
) -> EventsPage:
    """Stored events as they were written, from after_seq + 1 on; next_seq is where the next page begins."""
    with context.view() as work:
        AttemptRepository(work.session).get(attempt_id)
        lines = EventRepository(work.session).lines(attempt_id, query.stream, query.after_seq + 1)
        found = list(islice(lines, query.limit))
    events = [json.loads(line) for _, line in found]
    return EventsPage(stream=query.stream.value, events=events, next_seq=query.after_seq + 1 + len(found))
