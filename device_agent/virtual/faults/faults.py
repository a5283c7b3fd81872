"""Faults: what is ordered is checked against the contract's table, waits for its moment, and is played."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from contract.virtual_devices import FAULTS, FaultRequest, Option, PlayedFault, checked_options
from device_agent.virtual.device.triggers import Progress
from device_agent.virtual.emulator import Emulator, Unit
from device_agent.virtual.errors import UnknownFaultError, VirtualError
from device_agent.virtual.faults.app_faults import APP_FAULTS
from device_agent.virtual.faults.device_faults import DEVICE_FAULTS
from device_agent.virtual.faults.link_faults import LINK_FAULTS

Player = Callable[[Emulator, Unit, Mapping[str, Option]], Awaitable[None]]

PLAYERS: Final[Mapping[str, Player]] = {**LINK_FAULTS, **DEVICE_FAULTS, **APP_FAULTS}


async def order_fault(emulator: Emulator, request: FaultRequest) -> None:
    """Plays a fault, or arms it for its moment.

    UnknownDeviceError, UnknownFaultError; NotPossibleNowError only for one that is played at once.
    """
    unit = emulator.unit(request.udid)
    kind = FAULTS.get(request.fault)
    if kind is None:
        raise UnknownFaultError(f"there is no fault {request.fault!r}; there are {', '.join(FAULTS)}")
    try:
        options = checked_options(kind, request.options)
    except ValueError as error:
        raise UnknownFaultError(str(error)) from error
    play = partial(PLAYERS[kind.name], emulator, unit, options)
    if request.at is None:
        await play()
        unit.played.append(PlayedFault(fault=kind.name))
        return
    try:
        _arm(unit, request, play)
    except OverflowError as error:
        raise UnknownFaultError(str(error)) from error


def _arm(unit: Unit, request: FaultRequest, play: Callable[[], Awaitable[None]]) -> None:
    moment = request.at or ""

    async def play_then() -> None:
        refused = ""
        try:
            await play()
        except VirtualError as error:
            refused = str(error)
        unit.played.append(PlayedFault(fault=request.fault, at=moment, refused=refused))

    kind, _, amount = moment.partition(":")
    if kind == "delay":
        unit.device.triggers.arm_after(float(amount), play_then)
    else:
        unit.device.triggers.arm(Progress(kind), int(amount), play_then)
