"""`dynofarm devices`: the fleet, and what a person decides about one device."""

import dataclasses
from typing import Annotated

import typer

from client.api import DynofarmClient
from client.durations import duration_s
from client.errors import UsageError
from client.options import ControllerOptions
from client.output import Output
from client.refusals import built
from client.render_administration import history_table
from client.render_lists import device_view, devices_table
from contract import routes
from contract.administration import DeviceAction, DeviceReservation
from contract.problems import ProblemCode
from contract.queries import DevicesQuery, HistoryQuery
from contract.rest import DeviceView
from contract.states import DeviceState, GateExit, TargetKind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions(ControllerOptions):
    """Which device."""

    device_id: Annotated[
        str,
        typer.Argument(metavar="DEVICE", help="Id of the device, or its beginning or end."),
    ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceActionOptions(DeviceOptions):
    """Why: it is kept with the device's history."""

    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; kept with the device's history.")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DevicesOptions(ControllerOptions):
    """Which devices."""

    state: Annotated[DeviceState | None, typer.Option("--state", help="Only those in this state.")] = None
    kind: Annotated[TargetKind | None, typer.Option("--kind", help="Only those of this kind.")] = None
    text: Annotated[
        str, typer.Option("--text", "-t", help="Only those with this in id, device model, OS or label.")
    ] = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReserveOptions(DeviceActionOptions):
    """For how long."""

    period: Annotated[str, typer.Option("--for", help="How long: 90s, 30m, 2h or 7d.")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions(DeviceOptions):
    """How many."""

    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=500, help="At most this many, newest first.")
    ] = 50


def list_devices(options: DevicesOptions, output: Output) -> int:
    """List the devices of the farm, each with its state and its reason."""
    query = built(DevicesQuery, state=options.state, kind=options.kind, text=options.text or None)
    with options.client() as client:
        devices = client.devices(query).devices
    output.result(devices, devices_table(devices))
    return GateExit.PASS


def show(options: DeviceOptions, output: Output) -> int:
    """Show one device: state, reasons, the language models that it has."""
    with options.client() as client:
        device = client.device(_named(client, options.device_id))
    output.result(device, device_view(device))
    return GateExit.PASS


def quarantine(options: DeviceActionOptions, output: Output) -> int:
    """Keep work away from a device until it is released; a running attempt ends first."""
    return _act(options, output, routes.QUARANTINE_DEVICE)


def release(options: DeviceActionOptions, output: Output) -> int:
    """Give a device back to the farm, by way of a check."""
    return _act(options, output, routes.RELEASE_DEVICE)


def maintain(options: DeviceActionOptions, output: Output) -> int:
    """Take a device out for work on it; a running attempt ends first."""
    return _act(options, output, routes.MAINTAIN_DEVICE)


def retire(options: DeviceActionOptions, output: Output) -> int:
    """Remove a device for good; its results stay. Not while an attempt has it."""
    return _act(options, output, routes.RETIRE_DEVICE)


def reserve(options: ReserveOptions, output: Output) -> int:
    """Keep a ready device for yourself for a while; it comes back by itself, or with `release`."""
    period_s = duration_s(options.period, "--for")
    body = built(DeviceReservation, reason=options.reason, period_s=period_s)
    return _decide(options, output, routes.RESERVE_DEVICE, body)


def history(options: HistoryOptions, output: Output) -> int:
    """Show every change of a device's state: when, by what cause, for what reason, by whom."""
    query = HistoryQuery(limit=options.limit)
    with options.client() as client:
        found = client.call(routes.GET_HISTORY, query=query, device_id=_named(client, options.device_id))
    output.result(found, history_table(found.transitions))
    return GateExit.PASS


def _named(client: DynofarmClient, given: str) -> str:
    """The id that a person meant; UsageError where several fit. What fits none is for the farm to refuse."""
    part = given.removeprefix("…")
    try:
        # A whole id comes first, also that of a device that no list shows.
        return client.device(part).device_id
    except UsageError as error:
        if error.code != ProblemCode.DEVICE_NOT_FOUND:
            raise
    every = [each.device_id for each in client.devices(built(DevicesQuery, text=part)).devices]
    ids = [each for each in every if each.startswith(part) or each.endswith(part)]
    if len(ids) > 1:
        raise UsageError("ambiguous-device", f"{given} fits {', '.join(ids)}", "type more of the id")
    return ids[0] if ids else part


def _act(options: DeviceActionOptions, output: Output, route: routes.Route[DeviceView]) -> int:
    return _decide(options, output, route, built(DeviceAction, reason=options.reason))


def _decide(
    options: DeviceOptions, output: Output, route: routes.Route[DeviceView], body: DeviceAction
) -> int:
    with options.client() as client:
        device = client.call(route, body, device_id=_named(client, options.device_id))
    output.result(device, device_view(device))
    if device.then is not None:
        output.say(f"{device.device_id} is busy; it becomes {device.then} when {device.attempt_id} has ended")
    return GateExit.PASS
