"""Takes the preflight steps: asks the device step by step and stops at the first that a person must mend."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from contract.ids import DeviceId
from contract.ios_app import BUNDLE_ID
from contract.model import ContractModel
from device_agent.floor.clock import monotonic_ns, wall
from device_agent.floor.errors import LaunchError
from device_agent.floor.settings import AgentSettings
from device_agent.ios_worker.protocol import (
    APP,
    CONDITIONS,
    DESCRIBE,
    DEVELOPER,
    MOUNT_IMAGE,
    OPEN_TUNNEL,
    AppQuery,
    Conditions,
    Description,
    Method,
    Nothing,
)
from device_agent.targets.ios import preflight_steps
from device_agent.targets.ios.builds import BuildShelf
from device_agent.targets.ios.conditions import gate_steps, reading_of
from device_agent.targets.ios.errors import DeviceFaultError
from device_agent.targets.ios.policy import GateMemory, judge_start
from device_agent.targets.ios.preflight_steps import PreflightStep, SeenStep, StepState
from device_agent.targets.ios.worker import OnProgress

Q = TypeVar("Q", bound=ContractModel)
A = TypeVar("A", bound=ContractModel)

_TUNNEL_DEADLINE_S: Final = 20.0


class Attended(Protocol):
    """What a look needs of the monitor."""

    udid: DeviceId
    settings: AgentSettings
    shelf: BuildShelf
    gate: GateMemory

    async def call(
        self, method: Method[Q, A], params: Q, deadline_s: float, on_progress: OnProgress | None = None
    ) -> A:
        """DeviceFaultError."""
        ...

    def described(self, description: Description) -> None:
        """A fresh description was read."""
        ...


@dataclass(frozen=True, slots=True)
class Look:
    """One whole look. properties: what was measured, for the report. ready_in_s: as in Gate."""

    steps: tuple[SeenStep, ...]
    properties: dict[str, Any]
    ready_in_s: float | None = None


@dataclass(slots=True)
class _Findings:
    """A look under way."""

    device: Attended
    description: Description | None = None
    conditions: Conditions | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    ready_in_s: float | None = None


Check = Callable[[_Findings], Awaitable[list[SeenStep]]]


async def look(device: Attended) -> Look:
    """Never raises for anything that a device does."""
    findings = _Findings(device)
    steps: list[SeenStep] = [preflight_steps.passed(PreflightStep.ATTACHED)]
    for name, check, is_needed in _STEPS:
        try:
            found = await check(findings)
        except DeviceFaultError as error:
            found = [preflight_steps.step_of_error(name, error.fault_kind, str(error))]
        steps += found
        if is_needed and any(step.state is not StepState.PASSED for step in found):
            break
    return Look(tuple(steps), findings.properties, findings.ready_in_s)


async def _trusted(findings: _Findings) -> list[SeenStep]:
    device = findings.device
    description = await device.call(DESCRIBE, Nothing(), device.settings.device_call_s)
    device.described(description)
    findings.description = description
    findings.properties["boot_id"] = description.boot_id
    return [preflight_steps.passed(PreflightStep.TRUSTED)]


async def _supported_ios(findings: _Findings) -> list[SeenStep]:
    return [preflight_steps.ios_step(_known(findings))]


async def _unlocked(findings: _Findings) -> list[SeenStep]:
    return [preflight_steps.unlocked_step(_known(findings))]


async def _developer_mode(findings: _Findings) -> list[SeenStep]:
    return [preflight_steps.developer_mode_step(_known(findings))]


async def _developer_image(findings: _Findings) -> list[SeenStep]:
    await findings.device.call(MOUNT_IMAGE, Nothing(), findings.device.settings.device_chunk_s)
    return [preflight_steps.passed(PreflightStep.DEVELOPER_IMAGE)]


async def _tunnel(findings: _Findings) -> list[SeenStep]:
    await findings.device.call(OPEN_TUNNEL, Nothing(), _TUNNEL_DEADLINE_S)
    return [preflight_steps.passed(PreflightStep.TUNNEL)]


async def _developer_service(findings: _Findings) -> list[SeenStep]:
    await findings.device.call(DEVELOPER, AppQuery(bundle_id=BUNDLE_ID), _TUNNEL_DEADLINE_S)
    return [preflight_steps.passed(PreflightStep.DEVELOPER_SERVICE)]


async def _conditions(findings: _Findings) -> list[SeenStep]:
    settings = findings.device.settings
    found = await findings.device.call(CONDITIONS, Nothing(), settings.device_call_s)
    findings.conditions = found
    findings.properties.update(found.model_dump(exclude_none=True))
    space = preflight_steps.free_space_step(found.free_bytes, settings.device_free_bytes)
    now_s = monotonic_ns() / 1e9
    gate = judge_start(reading_of(found, now_s), settings.start_policy, findings.device.gate, now_s)
    findings.device.gate = gate.memory
    findings.ready_in_s = gate.ready_in_s
    return [space, *gate_steps(gate)]


async def _app_build(findings: _Findings) -> list[SeenStep]:
    """Any build may be installed later; here counts whether the newest could be started on this device."""
    device, known = findings.device, _known(findings)
    app = await device.call(APP, AppQuery(bundle_id=BUNDLE_ID), device.settings.device_call_s)
    findings.properties["app_build"] = app.build_sha256 or ""
    try:
        build = await asyncio.to_thread(device.shelf.choose, None)
    except LaunchError as error:
        if known.virtual and app.installed:
            return [
                preflight_steps.passed(PreflightStep.APP_BUILD, "the one that the emulated device brings")
            ]
        return [preflight_steps.blocked(PreflightStep.APP_BUILD, str(error))]
    findings.properties["app_build_wanted"] = build.sha256
    said = "installed" if app.build_sha256 == build.sha256 else "is installed by the next attempt"
    problem = build.signing_problem(device.udid, wall(), virtual=known.virtual)
    signing = (
        preflight_steps.blocked(PreflightStep.SIGNING, problem)
        if problem
        else preflight_steps.passed(PreflightStep.SIGNING)
    )
    return [preflight_steps.passed(PreflightStep.APP_BUILD, f"{build.path.name} {said}"), signing]


def _known(findings: _Findings) -> Description:
    assert findings.description is not None, "the steps are taken in order"
    return findings.description


# Whether the steps after it can be looked at without this one.
_STEPS: Final[tuple[tuple[PreflightStep, Check, bool], ...]] = (
    (PreflightStep.TRUSTED, _trusted, True),
    (PreflightStep.SUPPORTED_IOS, _supported_ios, True),
    (PreflightStep.UNLOCKED, _unlocked, True),
    (PreflightStep.DEVELOPER_MODE, _developer_mode, True),
    (PreflightStep.DEVELOPER_IMAGE, _developer_image, True),
    (PreflightStep.TUNNEL, _tunnel, True),
    (PreflightStep.DEVELOPER_SERVICE, _developer_service, True),
    (PreflightStep.FREE_SPACE, _conditions, False),
    (PreflightStep.APP_BUILD, _app_build, False),
)
