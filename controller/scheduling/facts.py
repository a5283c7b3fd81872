"""Rows as the facts that placement works on, and which calibration of its device an arm gets."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Row
from sqlalchemy.orm import Session

from contract.calibration import CALIBRATED_OPTIONS, Calibration
from contract.ids import Name
from contract.jobs import ArmSpec, EngineOptions
from contract.rest import DeviceSelector
from controller.db.devices import DeviceRepository
from controller.db.models import DeviceRow, JobRow
from controller.db.runs import JobRepository, Suitable
from controller.scheduling.placement import DeviceFacts, JobFacts


def farm_facts(session: Session) -> list[DeviceFacts]:
    """Every device that may still get work, by id."""
    return [device_facts(device) for device in DeviceRepository(session).for_placement()]


def queued_facts(session: Session, devices: Sequence[DeviceFacts]) -> list[JobFacts]:
    """Queued jobs that one of these devices may suit; placement decides whether it does."""
    suitable = Suitable(
        kinds=frozenset(device.kind for device in devices),
        device_ids=frozenset(device.device_id for device in devices),
        device_models=frozenset(device.device_model for device in devices),
        os_versions=frozenset(device.os_version for device in devices),
        models=frozenset[str]().union(*(device.models for device in devices)),
    )
    return [job_facts(job) for job in JobRepository(session).queued_for(suitable)]


def job_facts(job: JobRow | Row[Any]) -> JobFacts:
    """A queued job as placement sees it."""
    return JobFacts(
        job_id=job.job_id,
        selector=DeviceSelector.model_validate(job.selector),
        model=job.model,
        priority=job.priority,
        queued_at=job.created_at,
        not_before=job.not_before,
        excluded=frozenset(job.excluded_devices),
    )


def device_calibrations(device: DeviceRow) -> list[Calibration]:
    """What the device was calibrated to; what an older version stored in another shape is left out.

    Its agent's next hello brings them anew, and until then no claim and no page may break.
    """
    found = []
    for each in device.calibrations:
        try:
            found.append(Calibration.model_validate(each))
        except ValidationError:
            continue
    return found


def device_facts(device: DeviceRow | Row[Any]) -> DeviceFacts:
    """A device as placement sees it."""
    return DeviceFacts(
        device_id=device.device_id,
        state=device.state,
        kind=device.kind.value,
        device_model=device.device_model,
        os_version=device.os_version,
        labels=tuple(sorted(device.labels.items())),
        models=frozenset(device.models),
        reasons=tuple(device.reasons),
        hold_until=device.hold_until,
        ready_at=device.ready_at,
    )


def calibrations_for(
    arms: Sequence[ArmSpec], model: Name, calibrations: Sequence[Calibration]
) -> dict[Name, Calibration]:
    """Per arm the newest calibration for the model that its options admit; an arm without one is left out.

    What `auto` comes to is known on the device alone, so the runtime checks the key of what it is given.
    """
    of_model = [each for each in calibrations if each.model == model]
    chosen = {}
    for arm in arms:
        fitting = [each for each in of_model if _admits(arm.engine, each)]
        if fitting and any(getattr(arm.engine, name) is None for name in CALIBRATED_OPTIONS):
            chosen[arm.arm] = max(fitting, key=lambda each: each.measured_at)
    return chosen


def _admits(engine: EngineOptions, calibration: Calibration) -> bool:
    key = calibration.key
    return (
        engine.device in ("auto", key.device)
        and engine.tier in ("auto", key.tier)
        and engine.dtype in ("auto", key.dtype)
        and engine.weight_dtype == key.weight_dtype
    )
