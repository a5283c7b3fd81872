"""Rows as the facts that placement works on."""

from pydantic import ValidationError

from contract.calibration import Calibration
from contract.rest import DeviceSelector
from controller.attempts.placement import DeviceFacts, JobFacts
from controller.db.models import DeviceRow, JobRow


def job_facts(job: JobRow) -> JobFacts:
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


def device_facts(device: DeviceRow) -> DeviceFacts:
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
