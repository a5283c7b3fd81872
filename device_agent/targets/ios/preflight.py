"""Climbs the ladder: asks the device rung by rung and stops at the first that a person must mend."""

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
from device_agent.targets.ios import ladder
from device_agent.targets.ios.builds import BuildShelf
from device_agent.targets.ios.conditions import gate_steps, reading_of
from device_agent.targets.ios.errors import DeviceFaultError
from device_agent.targets.ios.ladder import Rung, Standing, Step
from device_agent.targets.ios.policy import GateMemory, judge_start
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

    steps: tuple[Step, ...]
    properties: dict[str, Any]
    ready_in_s: float | None = None


@dataclass(slots=True)
class _Climb:
    """A look under way."""

    device: Attended
    description: Description | None = None
    conditions: Conditions | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    ready_in_s: float | None = None


Climber = Callable[[_Climb], Awaitable[list[Step]]]


async def look(device: Attended) -> Look:
    """Never raises for anything that a device does."""
    climb = _Climb(device)
    steps: list[Step] = [ladder.passed(Rung.ATTACHED)]
    for rung, climber, is_needed in _RUNGS:
        try:
            found = await climber(climb)
        except DeviceFaultError as error:
            found = [ladder.step_of_error(rung, error.fault_kind, str(error))]
        steps += found
        if is_needed and any(step.standing is not Standing.PASSED for step in found):
            break
    return Look(tuple(steps), climb.properties, climb.ready_in_s)


async def _trusted(climb: _Climb) -> list[Step]:
    device = climb.device
    description = await device.call(DESCRIBE, Nothing(), device.settings.device_call_s)
    device.described(description)
    climb.description = description
    climb.properties["boot_id"] = description.boot_id
    return [ladder.passed(Rung.TRUSTED)]


async def _supported_ios(climb: _Climb) -> list[Step]:
    return [ladder.ios_step(_known(climb))]


async def _unlocked(climb: _Climb) -> list[Step]:
    return [ladder.unlocked_step(_known(climb))]


async def _developer_mode(climb: _Climb) -> list[Step]:
    return [ladder.developer_mode_step(_known(climb))]


async def _developer_image(climb: _Climb) -> list[Step]:
    await climb.device.call(MOUNT_IMAGE, Nothing(), climb.device.settings.device_chunk_s)
    return [ladder.passed(Rung.DEVELOPER_IMAGE)]


async def _tunnel(climb: _Climb) -> list[Step]:
    await climb.device.call(OPEN_TUNNEL, Nothing(), _TUNNEL_DEADLINE_S)
    return [ladder.passed(Rung.TUNNEL)]


async def _developer_service(climb: _Climb) -> list[Step]:
    await climb.device.call(DEVELOPER, AppQuery(bundle_id=BUNDLE_ID), _TUNNEL_DEADLINE_S)
    return [ladder.passed(Rung.DEVELOPER_SERVICE)]


async def _conditions(climb: _Climb) -> list[Step]:
    settings = climb.device.settings
    found = await climb.device.call(CONDITIONS, Nothing(), settings.device_call_s)
    climb.conditions = found
    climb.properties.update(found.model_dump(exclude_none=True))
    space = ladder.free_space_step(found.free_bytes, settings.device_free_bytes)
    now_s = monotonic_ns() / 1e9
    gate = judge_start(reading_of(found, now_s), settings.start_policy, climb.device.gate, now_s)
    climb.device.gate = gate.memory
    climb.ready_in_s = gate.ready_in_s
    return [space, *gate_steps(gate)]


async def _app_build(climb: _Climb) -> list[Step]:
    """Any build may be installed later; here counts whether the newest could be started on this device."""
    device, known = climb.device, _known(climb)
    app = await device.call(APP, AppQuery(bundle_id=BUNDLE_ID), device.settings.device_call_s)
    climb.properties["app_build"] = app.build_sha256 or ""
    try:
        build = await asyncio.to_thread(device.shelf.choose, None)
    except LaunchError as error:
        if known.virtual and app.installed:
            return [ladder.passed(Rung.APP_BUILD, "the one that the emulated device brings")]
        return [ladder.blocked(Rung.APP_BUILD, str(error))]
    climb.properties["app_build_wanted"] = build.sha256
    said = "installed" if app.build_sha256 == build.sha256 else "is installed by the next attempt"
    problem = build.signing_problem(device.udid, wall(), virtual=known.virtual)
    signing = ladder.blocked(Rung.SIGNING, problem) if problem else ladder.passed(Rung.SIGNING)
    return [ladder.passed(Rung.APP_BUILD, f"{build.path.name} {said}"), signing]


def _known(climb: _Climb) -> Description:
    assert climb.description is not None, "the rungs are climbed in order"
    return climb.description


# Whether the rungs above can be looked at without this one.
_RUNGS: Final[tuple[tuple[Rung, Climber, bool], ...]] = (
    (Rung.TRUSTED, _trusted, True),
    (Rung.SUPPORTED_IOS, _supported_ios, True),
    (Rung.UNLOCKED, _unlocked, True),
    (Rung.DEVELOPER_MODE, _developer_mode, True),
    (Rung.DEVELOPER_IMAGE, _developer_image, True),
    (Rung.TUNNEL, _tunnel, True),
    (Rung.DEVELOPER_SERVICE, _developer_service, True),
    (Rung.FREE_SPACE, _conditions, False),
    (Rung.APP_BUILD, _app_build, False),
)
