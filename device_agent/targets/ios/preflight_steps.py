"""The preflight steps as data: the state of each, and what a person would have to do; pure.

A step is passed, waits (it passes by itself), or blocks (a person must act). A blocking step hides those
after it: they cannot be looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from contract.failures import FailureReason
from device_agent.ios_worker.protocol import Description, WorkerErrorKind


class PreflightStep(StrEnum):
    """From the cable up."""

    ATTACHED = "attached"
    TRUSTED = "trusted"
    SUPPORTED_IOS = "supported_ios"
    UNLOCKED = "unlocked"
    DEVELOPER_MODE = "developer_mode"
    DEVELOPER_IMAGE = "developer_image"
    TUNNEL = "tunnel"
    DEVELOPER_SERVICE = "developer_service"
    FREE_SPACE = "free_space"
    CONDITIONS = "conditions"
    BATTERY = "battery"
    THERMAL = "thermal"
    LOW_POWER = "low_power"
    APP_BUILD = "app_build"
    SIGNING = "signing"


class StepState(StrEnum):
    """blocked: a person must act. waiting: it passes by itself."""

    PASSED = "passed"
    WAITING = "waiting"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class SeenStep:
    """One step as it was seen. say: for a person. word: what the controller goes by while it waits."""

    name: PreflightStep
    state: StepState
    say: str = ""
    word: str = ""

    @property
    def reason(self) -> str:
        """As a reason of the device's report, "" for a passed step."""
        if self.state is StepState.PASSED:
            return ""
        return self.word if self.state is StepState.WAITING else f"{self.name}: {self.say}"


def passed(name: PreflightStep, say: str = "") -> SeenStep:
    """`say` may tell what was found."""
    return SeenStep(name, StepState.PASSED, say)


def blocked(name: PreflightStep, say: str) -> SeenStep:
    """`say`: what to do at the device or on this host."""
    return SeenStep(name, StepState.BLOCKED, say)


def waiting(name: PreflightStep, word: str, say: str) -> SeenStep:
    """`word` must be one that the controller knows as passing by itself."""
    return SeenStep(name, StepState.WAITING, say, word)


_K = WorkerErrorKind
_ADVICE: Final = MappingProxyType(
    {
        _K.UNTRUSTED: (PreflightStep.TRUSTED, "unlock the iPhone, tap Trust and enter the passcode"),
        _K.DENIED: (
            PreflightStep.TRUSTED,
            "Don't Trust was tapped; unplug the iPhone, plug it in again and tap Trust",
        ),
        _K.LOCKED: (
            PreflightStep.UNLOCKED,
            "unlock the iPhone; set Auto-Lock to Never and remove the passcode",
        ),
        _K.DEVELOPER_MODE_OFF: (
            PreflightStep.DEVELOPER_MODE,
            "Settings, Privacy & Security, Developer Mode: switch it on and let the iPhone restart",
        ),
        _K.IMAGE_MISSING: (PreflightStep.DEVELOPER_IMAGE, "the developer disk image is not mounted"),
        _K.LIBRARY_MISSING: (PreflightStep.ATTACHED, "install dynofarm[ios] on this host"),
    }
)
_PASSING: Final = MappingProxyType(
    {
        _K.TUNNEL: FailureReason.TUNNEL_LOST.value,
        _K.STALLED: FailureReason.TRANSPORT_LOST.value,
        _K.DISCONNECTED: FailureReason.TRANSPORT_LOST.value,
        _K.BROKEN: FailureReason.TRANSPORT_LOST.value,
    }
)


def step_of_error(name: PreflightStep, kind: WorkerErrorKind, detail: str) -> SeenStep:
    """A failed look as a step; `name` is where it failed, for kinds that belong to no step of their own."""
    if kind in _PASSING:
        return waiting(name, _PASSING[kind], f"the device does not answer; it is asked again ({detail})")
    own_name, advice = _ADVICE.get(kind, (name, ""))
    if kind is WorkerErrorKind.IMAGE_MISSING:
        return blocked(own_name, f"{advice}: {detail}")
    return blocked(own_name, advice or detail)


_SUPPORTED_SINCE: Final = (16, 0)
_TUNNEL_LACKS: Final = ((17, 0), (17, 4))


def ios_step(description: Description) -> SeenStep:
    """17.0 to 17.3 have no tunnel without root; before 16 nobody has looked."""
    name, text = PreflightStep.SUPPORTED_IOS, description.os_version
    version = ios_version(text)
    if version is None:
        return blocked(name, f"the iOS version {text!r} is unknown; update the device")
    if version < _SUPPORTED_SINCE:
        return blocked(name, f"iOS {text} is too old; update it to 16 or, better, to 17.4 or newer")
    if _TUNNEL_LACKS[0] <= version < _TUNNEL_LACKS[1]:
        return blocked(
            name, f"iOS {text} has its developer tunnel for root or Wi-Fi only; update it to 17.4 or newer"
        )
    return passed(name, f"{description.os_name} {text}")


def ios_version(text: str) -> tuple[int, int] | None:
    """Major and minor; None for what is not a version."""
    parts = text.split(".")
    if not parts[0].isdigit() or (len(parts) > 1 and not parts[1].isdigit()):
        return None
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0


def unlocked_step(description: Description) -> SeenStep:
    """Locked after a restart, nothing works; locked later, no app starts."""
    if description.locked:
        return step_of_error(PreflightStep.UNLOCKED, WorkerErrorKind.LOCKED, "")
    return passed(PreflightStep.UNLOCKED)


def developer_mode_step(description: Description) -> SeenStep:
    """Passed where the device does not say: the developer service will."""
    if description.developer_mode is False:
        return step_of_error(PreflightStep.DEVELOPER_MODE, WorkerErrorKind.DEVELOPER_MODE_OFF, "")
    return passed(PreflightStep.DEVELOPER_MODE)


def free_space_step(free_bytes: int | None, floor_bytes: int) -> SeenStep:
    """Passed where the device does not say."""
    if free_bytes is not None and free_bytes < floor_bytes:
        return blocked(
            PreflightStep.FREE_SPACE,
            f"{free_bytes / 1e9:.1f} GB are free, {floor_bytes / 1e9:.1f} GB are wanted; delete something",
        )
    return passed(PreflightStep.FREE_SPACE, "" if free_bytes is None else f"{free_bytes / 1e9:.1f} GB free")


def reasons_of(steps: Iterable[SeenStep]) -> list[str]:
    """For the device's report, in the order of the steps, each once; empty: the device can be used."""
    return list(dict.fromkeys(step.reason for step in steps if step.reason))


def as_properties(steps: Iterable[SeenStep]) -> list[dict[str, str]]:
    """For the device's report, so that each step can be shown."""
    return [{"name": step.name.value, "state": step.state.value, "say": step.say} for step in steps]
