"""The top of a run's page: what is measured, where it stands, and each of its jobs."""

from collections.abc import Mapping, Sequence
from typing import Final

from dash import html
from dash.development.base_component import Component

from contract.failures import FAILURES
from contract.rest import AttemptView, JobView, LiveView, RunView
from contract.states import RunState
from dashboard.parts.badges import badge, moment
from dashboard.parts.panels import panel
from dashboard.parts.tables import Column, Content, table
from dashboard.wording import words
from measures.wording import short_ids

_COLUMNS: Final = (
    Column("Device"),
    Column("Variant"),
    Column("State"),
    Column("Attempts", is_number=True),
    Column("Trials", is_number=True),
    Column("Note"),
)


def run_head(run: RunView) -> list[Component]:
    """Names, state and times of the run, then its jobs."""
    facts: list[tuple[str, Content]] = [
        ("State", badge(run.outcome or run.state)),
        ("Model", run.model),
        ("Arms", f"{run.candidate} against {run.baseline}"),
        ("Build", run.build.commit),
        ("Submitted", moment(run.created_at)),
        ("Completed", moment(run.completed_at)),
    ]
    return [
        html.Header(
            [html.H1(run.workload), html.P(html.Code(run.run_id), className="lead")], className="page-head"
        ),
        facts_list(facts),
    ]


def facts_list(facts: Sequence[tuple[str, Content]]) -> html.Dl:
    """Names with their values, in a row that wraps."""
    return html.Dl(
        [html.Div([html.Dt(name), html.Dd(content)]) for name, content in facts], className="facts"
    )


def jobs_panel(jobs: Sequence[JobView]) -> Component:
    """A row for each job, with what it waits for or what went wrong."""
    title = "Job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    short = short_ids(attempt.device_id for job in jobs for attempt in job.attempts)
    return panel(title, [table(_COLUMNS, [_row(job, short) for job in jobs], "Jobs of this run")])


def newest_attempt(job: JobView) -> AttemptView | None:
    """The job's last try; None before the first."""
    return max(job.attempts, key=lambda attempt: attempt.number, default=None)


def device_at_work(run: RunView, live: LiveView) -> str | None:
    """Id of the device whose attempt the live view shows."""
    attempts = (attempt for job in run.jobs for attempt in job.attempts)
    return next((found.device_id for found in attempts if found.attempt_id == live.attempt_id), None)


def jobs_done(run: RunView) -> int:
    """How many of the run's jobs have an outcome."""
    return sum(job.outcome is not None for job in run.jobs)


def is_live(run: RunView) -> bool:
    """Whether something can still change."""
    return run.state is not RunState.COMPLETED


def _row(job: JobView, short: Mapping[str, str]) -> list[Content]:
    attempt = newest_attempt(job)
    asked = job.selector.device_id or job.selector.device_model or f"any {job.selector.kind}"
    return [
        html.Span(short[attempt.device_id], title=attempt.device_id) if attempt else asked,
        job.variant or "–",
        badge(job.outcome or job.state),
        str(len(job.attempts)),
        f"{attempt.trials_done}\u00a0of\u00a0{attempt.trials_total}" if attempt else "–",
        _note(job, attempt),
    ]


def _note(job: JobView, attempt: AttemptView | None) -> Content:
    """Why it waits or why it failed, and what to try; where the attempt stands otherwise."""
    if job.waiting_reason:
        return f"waits: {job.waiting_reason}"
    if attempt is None:
        return "–"
    if attempt.reason is None:
        return words(str(attempt.state))
    detail = f" {attempt.detail}." if attempt.detail else ""
    return f"{words(attempt.reason)}:{detail} Try: {FAILURES[attempt.reason].advice}."
