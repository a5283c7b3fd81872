"""Which job on which device, where a test has no store to ask."""

from typing import Final

from contract.states import TargetKind
from measures.verdict.device_report import DeviceIdentity

HOST: Final = DeviceIdentity(
    job_id="job_01J00000000000000000000000",
    variant="",
    device_id="host-1",
    device_model="now another model",
    os_version="9",
    kind=TargetKind.HOST,
    virtual=False,
)
