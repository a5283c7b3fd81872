"""Rows as REST shows them."""

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from contract.jobs import BuildRef
from contract.rest import (
    AttemptView,
    DeviceExplanation,
    DeviceSelector,
    DeviceView,
    JobExplanation,
    JobView,
    RunView,
)
from contract.states import DeviceState, JobState
from controller.db.attempts import AttemptRepository, LeaseRepository
from controller.db.models import AttemptRow, DeviceRow, JobRow, LeaseRow, RunRow
from controller.db.runs import JobRepository
from controller.db.unit_of_work import UnitOfWork
from controller.runs.reports import report_url
from controller.scheduling.facts import device_calibrations, farm_facts, job_facts
from controller.scheduling.placement import Explanation, explain, waiting_reason


def attempt_view(attempt: AttemptRow, next_seq: Mapping[str, int]) -> AttemptView:
    """One attempt; `next_seq` by stream."""
    return AttemptView(
        attempt_id=attempt.attempt_id,
        job_id=attempt.job_id,
        number=attempt.number,
        state=attempt.state,
        reason=attempt.reason,
        detail=attempt.detail,
        device_id=attempt.device_id,
        device_agent_id=attempt.device_agent_id,
        trials_done=attempt.trials_done,
        trials_total=attempt.trials_total,
        next_seq=dict(next_seq),
        created_at=attempt.created_at,
        ended_at=attempt.ended_at,
        salvaged=attempt.salvaged,
    )


def job_views(work: UnitOfWork, jobs: Sequence[JobRow]) -> list[JobView]:
    """Jobs with their attempts; a queued one says what it waits for at this moment."""
    queued = [job_facts(job) for job in jobs if job.state is JobState.QUEUED]
    devices = farm_facts(work.session) if queued else []
    reasons = {job.job_id: waiting_reason(explain(job, devices, work.now)) for job in queued}
    return _job_views(work, jobs, reasons)


def _job_views(work: UnitOfWork, jobs: Sequence[JobRow], reasons: Mapping[str, str]) -> list[JobView]:
    """`reasons` why a job waits, by its id; one without is not told of any."""
    attempts = AttemptRepository(work.session).of_jobs([job.job_id for job in jobs])
    next_seqs = AttemptRepository(work.session).next_seqs([attempt.attempt_id for attempt in attempts])
    views: dict[str, list[AttemptView]] = {job.job_id: [] for job in jobs}
    for attempt in attempts:
        views[attempt.job_id].append(attempt_view(attempt, next_seqs[attempt.attempt_id]))
    return [
        JobView(
            job_id=job.job_id,
            run_id=job.run_id,
            state=job.state,
            outcome=job.outcome,
            selector=DeviceSelector.model_validate(job.selector),
            variant=job.variant,
            waiting_reason=reasons.get(job.job_id, ""),
            attempts=views[job.job_id],
        )
        for job in jobs
    ]


def job_explanation(work: UnitOfWork, job: JobRow) -> JobExplanation:
    """Why the job waits; nothing to explain unless it is queued."""
    explained: tuple[Explanation, ...] = ()
    if job.state is JobState.QUEUED:
        explained = explain(job_facts(job), farm_facts(work.session), work.now)
    return JobExplanation(
        job_id=job.job_id,
        state=job.state,
        waiting_reason=waiting_reason(explained) if job.state is JobState.QUEUED else "",
        devices=[
            DeviceExplanation(device_id=entry.device_id, misses=list(entry.misses), waits=list(entry.waits))
            for entry in explained
        ],
    )


def run_views(work: UnitOfWork, runs: Sequence[RunRow], base_url: str) -> list[RunView]:
    """Runs for a list, with their jobs and attempts but not why a job waits: that would ask every device."""
    jobs = JobRepository(work.session).of_runs([run.run_id for run in runs])
    views: dict[str, list[JobView]] = {run.run_id: [] for run in runs}
    for view in _job_views(work, jobs, {}):
        views[view.run_id].append(view)
    return [_run_view(run, views[run.run_id], base_url) for run in runs]


def run_view(work: UnitOfWork, run: RunRow, base_url: str) -> RunView:
    """One run with its jobs, why they wait, and attempts."""
    return _run_view(run, job_views(work, JobRepository(work.session).of_runs([run.run_id])), base_url)


def _run_view(run: RunRow, jobs: list[JobView], base_url: str) -> RunView:
    return RunView(
        run_id=run.run_id,
        state=run.state,
        outcome=run.outcome,
        workload=run.workload,
        workload_digest=run.workload_digest,
        model=run.model,
        build=BuildRef.model_validate(run.request["build"]),
        baseline=run.request["baseline"],
        candidate=run.request["candidate"],
        labels=run.labels,
        created_at=run.created_at,
        completed_at=run.completed_at,
        jobs=jobs,
        report_url=report_url(base_url, run.run_id),
    )


def device_views(session: Session, devices: Sequence[DeviceRow]) -> list[DeviceView]:
    """Devices, each with the attempt that has it."""
    leases = LeaseRepository(session).live_by_device()
    return [_device_view(device, leases.get(device.device_id)) for device in devices]


def _device_view(device: DeviceRow, lease: LeaseRow | None) -> DeviceView:
    return DeviceView(
        device_id=device.device_id,
        device_agent_id=device.device_agent_id,
        kind=device.kind,
        state=device.state,
        reasons=device.reasons,
        device_model=device.device_model,
        os_name=device.os_name,
        os_version=device.os_version,
        os_build=device.os_build,
        memory_bytes=device.memory_bytes,
        virtual=device.virtual,
        models=device.models,
        model_problems=device.properties.get("model_problems", []),
        labels=device.labels,
        calibrations=device_calibrations(device),
        fence=device.fence,
        attempt_id=lease.attempt_id if lease is not None else None,
        then=device.drain_to,
        reserved_until=device.state_deadline if device.state is DeviceState.RESERVED else None,
        last_seen_at=device.last_seen_at,
        state_since=device.state_since,
        ready_at=device.ready_at,
    )
