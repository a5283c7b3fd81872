"""What became of one job: its attempt's events through analysis, kept as a summary once no event can follow.

The samples and the summary can always be computed again from the events (docs/adr/0002); they are kept so
that a report costs little, and are looked at only while they are of the events that are stored.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from contract.events import Stream, parse_event
from contract.rest import DeviceReportView, GateRequest
from contract.states import AttemptState
from controller.db.attempts import AttemptRepository
from controller.db.devices import DeviceRepository
from controller.db.events import EventRepository, SampleRepository
from controller.db.job_specs import stored_arms, stored_trials
from controller.db.models import AttemptRow, JobRow, RunRow, SampleRow
from controller.db.runs import JobRepository, RunRepository
from controller.db.session import read_only
from controller.runs.run_context import RunContext
from measures.facts.attempt import FailureNote
from measures.metrics.samples import SampleValue
from measures.verdict.attempt_analysis import analyse
from measures.verdict.device_report import DeviceIdentity
from measures.verdict.judge import Verdict
from measures.verdict.metric_verdicts import ComparisonPlan

ANALYSIS_VERSION: Final = 5
"""Raised when a formula or the report changes, so that kept summaries are computed again."""

ANALYSED_STREAMS: Final = (Stream.CONTROL, Stream.SAMPLES, Stream.DEVICE_AGENT)
"""The log stream is the trace: large, and allowed to have losses. Only its block events have a metric."""
_BLOCK_KINDS: Final = tuple(
    f'"{kind}"'.encode() for kind in ("blocks_allocated", "blocks_shared", "blocks_released", "block_evicted")
)

# Which attempt speaks for its job: the first of these states that one is in, the newest of several.
_SPEAKS: Final = (
    *(AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.TIMED_OUT),
    *(AttemptState.UPLOADING, AttemptState.RUNNING, AttemptState.PREPARING, AttemptState.LEASED),
    *(AttemptState.CANCELLED, AttemptState.ERRORED, AttemptState.LOST, AttemptState.REFUSED),
)


class JobResult(BaseModel):
    """A job's report, its verdicts, how many trials did not complete, and why there is no result, if so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    report: DeviceReportView
    verdicts: dict[str, Verdict]
    trials_failed: int
    unanswered: str = ""


@dataclass(frozen=True, slots=True)
class Computed:
    """A result and the samples behind it."""

    result: JobResult
    samples: tuple[SampleValue, ...]


def plan_of(run: RunRow, job: JobRow) -> ComparisonPlan:
    """What the job compares, from the request and the spec that were stored with it."""
    return ComparisonPlan(
        arms=stored_arms(job),
        baseline=run.request["baseline"],
        candidate=run.request["candidate"],
        trials=stored_trials(job),
        gate=stored_gate(run),
        seed=run.request["seed"],
        is_soak=job.spec["workload"]["repeat_for_s"] is not None,
    )


def stored_gate(run: RunRow) -> GateRequest:
    """As it was asked for. It is not checked again: an earlier version may have taken what today's bounds
    refuse, and then the verdict says so."""
    return GateRequest.model_construct(**run.request["gate"])


def authoritative_attempt(attempts: Sequence[AttemptRow]) -> AttemptRow | None:
    """The attempt whose events are the job's result; an orphaned one never is."""
    ranked = [attempt for attempt in attempts if attempt.state in _SPEAKS]
    return min(ranked, key=lambda attempt: (_SPEAKS.index(attempt.state), -attempt.number), default=None)


def stored_lines(session: Session, attempt: AttemptRow) -> dict[Stream, list[bytes]]:
    """Every line that analysis reads; of the log those of blocks, once no more will come."""
    events, of = EventRepository(session), attempt.attempt_id
    lines = {stream: [line for _, line in events.lines(of, stream)] for stream in ANALYSED_STREAMS}
    if attempt.ended_at is not None:
        log = (line for _, line in events.lines(of, Stream.LOG))
        lines[Stream.LOG] = [line for line in log if any(kind in line for kind in _BLOCK_KINDS)]
    return lines


def result_of(session: Session, run: RunRow, job: JobRow, attempt: AttemptRow) -> JobResult:
    """The job's result: the kept one where it is of the stored events, else computed now."""
    kept = SampleRepository(session).summary(attempt.attempt_id)
    if kept is not None and kept.get("key") == summary_key(session, attempt):
        return JobResult.model_validate_json(json.dumps(kept["result"]))
    return compute(session, run, job, attempt).result


def summary_key(session: Session, attempt: AttemptRow) -> str:
    """Names what a summary was computed from: analysis, the attempt's state, how many events there were."""
    next_seqs = AttemptRepository(session).next_seqs([attempt.attempt_id])[attempt.attempt_id]
    counts = ",".join(f"{stream}={seq}" for stream, seq in sorted(next_seqs.items()))
    return f"{ANALYSIS_VERSION}/{attempt.state.value}/{counts}"


def compute(session: Session, run: RunRow, job: JobRow, attempt: AttemptRow) -> Computed:
    """Facts, samples, verdicts and report from the events. Events that cannot be analysed give a report that
    says so, and no figure."""
    identity, plan = _identity(session, job, attempt), plan_of(run, job)
    # Read first and parsed within: a fault of the store is not one of the events.
    stored = stored_lines(session, attempt)
    events = {stream: map(parse_event, lines) for stream, lines in stored.items()}
    analysis = analyse(identity, plan, events, _failure(attempt), ended=attempt.ended_at is not None)
    result = JobResult(
        report=analysis.report,
        verdicts=dict(analysis.verdicts),
        trials_failed=sum(arm.trials_failed for arm in analysis.report.arms.values()),
        unanswered=analysis.unanswered,
    )
    return Computed(result, tuple(analysis.samples))


def _failure(attempt: AttemptRow) -> FailureNote | None:
    return FailureNote(attempt.reason, attempt.detail, is_end=True) if attempt.reason is not None else None


def _identity(session: Session, job: JobRow, attempt: AttemptRow) -> DeviceIdentity:
    device = DeviceRepository(session).get(attempt.device_id)
    return DeviceIdentity(
        job_id=job.job_id,
        variant=job.variant,
        device_id=device.device_id,
        device_model=device.device_model,
        os_version=device.os_version,
        kind=device.kind,
        virtual=device.virtual,
    )


def summarise(context: RunContext, attempt_id: str) -> None:
    """Keep the samples and the summary of an ended attempt; doing it again changes nothing.

    It computes outside of any write transaction: on SQLite that would keep every agent waiting.
    """
    with read_only(context.sessions) as session:
        key, computed = _compute_ended(session, attempt_id)
    if computed is None:
        return
    with context.unit_of_work() as work:
        if summary_key(work.session, AttemptRepository(work.session).get(attempt_id)) != key:
            # The attempt moved on in between; its next end asks for a summary again.
            return
        samples = SampleRepository(work.session)
        samples.replace(attempt_id, [_row(attempt_id, sample) for sample in computed.samples])
        document: Mapping[str, object] = {"key": key, "result": computed.result.model_dump(mode="json")}
        samples.keep_summary(attempt_id, dict(document), work.now)


def _compute_ended(session: Session, attempt_id: str) -> tuple[str, Computed | None]:
    attempt = AttemptRepository(session).get(attempt_id)
    key = summary_key(session, attempt)
    kept = SampleRepository(session).summary(attempt_id)
    if attempt.ended_at is None or (kept is not None and kept.get("key") == key):
        return key, None
    job = JobRepository(session).get(attempt.job_id)
    return key, compute(session, RunRepository(session).get(job.run_id), job, attempt)


def _row(attempt_id: str, sample: SampleValue) -> SampleRow:
    return SampleRow(
        attempt_id=attempt_id,
        trial=sample.trial,
        arm=sample.arm,
        pair=sample.pair,
        metric=sample.metric,
        agent=sample.agent,
        call=sample.call,
        value=sample.value,
        thermal_state=sample.conditions.thermal_state,
        battery_percent=sample.conditions.battery_percent,
        charging=sample.conditions.charging,
        low_power_mode=sample.conditions.low_power_mode,
    )
