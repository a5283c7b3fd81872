"""Failures of the iPhone side, each with the reason that an attempt gets for it."""

from types import MappingProxyType
from typing import ClassVar, Final

from contract.failures import FailureReason, Fault
from device_agent.floor.errors import LaunchError
from device_agent.ios_worker.protocol import WorkerErrorKind

_K, _R = WorkerErrorKind, FailureReason

REASONS: Final = MappingProxyType(
    {
        _K.UNTRUSTED: _R.UNTRUSTED,
        _K.DENIED: _R.UNTRUSTED,
        _K.LOCKED: _R.PASSCODE_PROMPT,
        _K.DEVELOPER_MODE_OFF: _R.DEVELOPER_MODE_OFF,
        _K.IMAGE_MISSING: _R.DDI_MOUNT,
        _K.TUNNEL: _R.TUNNEL_LOST,
        _K.DISCONNECTED: _R.DEVICE_DISCONNECTED,
        _K.STALLED: _R.TRANSPORT_LOST,
        _K.NO_SPACE: _R.STORAGE_DEVICE,
        _K.PROVISIONING: _R.SIGNING,
        _K.INSTALL_REFUSED: _R.INSTALL_TIMEOUT,
        _K.LAUNCH_REFUSED: _R.APP_CRASH,
        _K.APP_MISSING: _R.INSTALL_TIMEOUT,
        _K.FILE_MISSING: _R.TRANSPORT_LOST,
        _K.DIGEST_WRONG: _R.TRANSPORT_LOST,
        _K.UNSUPPORTED: _R.DDI_MOUNT,
        _K.PROTOCOL: _R.TRANSPORT_LOST,
        _K.BROKEN: _R.TRANSPORT_LOST,
        _K.LIBRARY_MISSING: _R.AGENT_BUG,
    }
)
"""Every kind has its reason; tests/device_agent/targets/ios hold the two together."""


class DeviceFaultError(LaunchError):
    """A call to a device failed. `kind` of AgentError stays; `fault_kind` says what happened."""

    kind: ClassVar[str] = "device-fault"
    fault: ClassVar[Fault] = Fault.DEVICE
    retryable: ClassVar[bool] = True

    def __init__(self, fault_kind: WorkerErrorKind, detail: str) -> None:
        super().__init__(f"{fault_kind}: {detail}", REASONS[fault_kind])
        self.fault_kind = fault_kind


class StartRefusedError(LaunchError):
    """Something on this host is missing for the attempt: the build, its profile, the model's file."""

    kind: ClassVar[str] = "start-refused"
    fault: ClassVar[Fault] = Fault.LAB
