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
from controller.db.devices import DeviceRepository
from controller.db.models import AttemptRow, DeviceRow, JobRow, LeaseRow, RunRow
from controller.db.runs import JobRepository
from controller.db.unit_of_work import UnitOfWork
from controller.runs.reports import report_url
from controller.scheduling.facts import device_calibrations, device_facts, job_facts
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
    attempts = AttemptRepository(work.session).of_jobs([job.job_id for job in jobs])
    next_seqs = AttemptRepository(work.session).next_seqs([attempt.attempt_id for attempt in attempts])
    waiting = {job.job_id: explanation(work, job) for job in jobs if job.state is JobState.QUEUED}
    return [
        JobView(
            job_id=job.job_id,
            run_id=job.run_id,
            state=job.state,
            outcome=job.outcome,
            selector=DeviceSelector.model_validate(job.selector),
            variant=job.variant,
            waiting_reason=waiting_reason(waiting[job.job_id]) if job.job_id in waiting else "",
            attempts=[
                attempt_view(attempt, next_seqs[attempt.attempt_id])
                for attempt in attempts
                if attempt.job_id == job.job_id
            ],
        )
        for job in jobs
    ]


def explanation(work: UnitOfWork, job: JobRow) -> tuple[Explanation, ...]:
    """Every device of the farm with what keeps this job from it now."""
    devices = [device_facts(row) for row in DeviceRepository(work.session).not_retired()]
    return explain(job_facts(job), devices, work.now)


def job_explanation(work: UnitOfWork, job: JobRow) -> JobExplanation:
    """Why the job waits; nothing to explain unless it is queued."""
    explained = explanation(work, job) if job.state is JobState.QUEUED else ()
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
    """Runs with their jobs and attempts."""
    jobs = JobRepository(work.session).of_runs([run.run_id for run in runs])
    views: dict[str, list[JobView]] = {run.run_id: [] for run in runs}
    for view in job_views(work, jobs):
        views[view.run_id].append(view)
    return [_run_view(run, views[run.run_id], base_url) for run in runs]


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
