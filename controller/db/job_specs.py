"""What a job was submitted with, read back from its row. Parts are read alone where the whole is not needed:
a workload is large, and a report of long ago must not depend on limits that were set since."""

from typing import Any

from contract.jobs import ArmSpec, JobSpec, TrialSpec
from controller.db.models import JobRow


def stored_spec(job: JobRow) -> JobSpec:
    return JobSpec.model_validate({**job.spec, "arms": _arms(job)})


def stored_arms(job: JobRow) -> list[ArmSpec]:
    return [ArmSpec.model_validate(arm) for arm in _arms(job)]


def stored_trials(job: JobRow) -> list[TrialSpec]:
    return [TrialSpec.model_validate(trial) for trial in job.spec["trials"]]


def _arms(job: JobRow) -> list[dict[str, Any]]:
    """Without the key that 0.1 stored in each arm, empty, for a calibration that only a claim could know."""
    return [{key: value for key, value in arm.items() if key != "calibration"} for arm in job.spec["arms"]]
