"""A prepared run into the store: a row, its jobs, and the promise to tell the agents, in one transaction."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from contract.administration import AuditAction
from contract.jobs import JobSpec
from contract.rest import DeviceSelector
from contract.states import JobState, RunState
from contract.workload import CompiledWorkload
from controller.db.audit import Act, AuditRepository
from controller.db.models import JobRow, RunRow
from controller.db.unit_of_work import UnitOfWork
from controller.errors import SelectorUnsatisfiableError
from controller.runs.prepare import PreparedRun
from controller.scheduling.facts import farm_facts
from controller.scheduling.placement import DeviceFacts, misfits, nearest_misses


def submit(work: UnitOfWork, prepared: PreparedRun, principal: str) -> RunRow:
    """The stored run. SelectorUnsatisfiableError when a selector fits no device and nobody wants to wait."""
    request = prepared.request
    if not request.wait_for_capacity:
        _check_capacity(work, prepared)
    run = RunRow(
        run_id=work.new_id("run"),
        state=RunState.ACTIVE,
        request=request.model_dump(mode="json"),
        workload=prepared.workloads[0].name,
        workload_digest=prepared.digest,
        model=request.model,
        labels=request.labels,
        principal=principal,
        created_at=work.now,
    )
    work.session.add(run)
    work.session.flush()
    act = Act(principal, AuditAction.SUBMIT, run.run_id, f"{run.workload} on {run.model}")
    AuditRepository(work.session).record(act, work.now)
    cells = [(workload, selector) for workload in prepared.workloads for selector in request.selectors]
    for position, (workload, selector) in enumerate(cells):
        job = _job(work, run, prepared, workload, selector)
        job.position = position
        work.session.add(job)
    work.wake_claims()
    return run


def _job(
    work: UnitOfWork,
    run: RunRow,
    prepared: PreparedRun,
    workload: CompiledWorkload,
    selector: DeviceSelector,
) -> JobRow:
    request = prepared.request
    job_id = work.new_id("job")
    return JobRow(
        job_id=job_id,
        run_id=run.run_id,
        variant=workload.variant,
        selector=selector.model_dump(mode="json"),
        model=request.model,
        spec=_spec(run.run_id, job_id, prepared, workload),
        state=JobState.QUEUED,
        priority=request.priority,
        max_attempts=request.max_attempts,
        queue_deadline=work.now + timedelta(seconds=request.queue_deadline_s),
        created_at=work.now,
    )


def _spec(run_id: str, job_id: str, prepared: PreparedRun, workload: CompiledWorkload) -> dict[str, object]:
    spec = JobSpec(
        job_id=job_id,
        run_id=run_id,
        model=prepared.request.model,
        build=prepared.request.build,
        workload=workload,
        arms=list(prepared.arms),
        trials=list(prepared.trials),
        limits=prepared.request.limits,
    )
    return spec.model_dump(mode="json")


def _check_capacity(work: UnitOfWork, prepared: PreparedRun) -> None:
    devices = farm_facts(work.session)
    model = prepared.request.model
    for position, selector in enumerate(prepared.request.selectors):
        if any(not misfits(selector, model, device) for device in devices):
            continue
        misses = nearest_misses(selector, model, devices)
        # The selector is good and only the model is nowhere: that is the field to correct.
        pointer = "/model" if _fits_with(selector, model, devices) else f"/selectors/{position}"
        raise SelectorUnsatisfiableError(pointer, misses)


def _fits_with(selector: DeviceSelector, model: str, devices: Sequence[DeviceFacts]) -> bool:
    """Whether some device would fit if it had the model."""
    return any(not misfits(selector, model, replace(device, models=frozenset({model}))) for device in devices)
