"""`dynofarm devices`: the fleet, and what a person decides about one device."""

import dataclasses
from collections.abc import Callable
from typing import Annotated

import typer

from client.api import DynofarmClient
from client.options import ControllerOptions
from client.output import Output
from client.render_lists import device_view, devices_table
from contract.rest import DeviceView
from contract.states import GateExit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions(ControllerOptions):
    """Which device."""

    device_id: Annotated[str, typer.Argument(metavar="DEVICE", help="Id of the device.")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceActionOptions(DeviceOptions):
    """Why: it is kept with the device's history."""

    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; kept with the device's history.")]


def list_devices(options: ControllerOptions, output: Output) -> int:
    """List every device of the farm with its state and its reason."""
    with options.client() as client:
        devices = client.devices().devices
    output.result(devices, devices_table(devices))
    return GateExit.PASS


def show(options: DeviceOptions, output: Output) -> int:
    """Show one device: state, reasons, the language models that it has."""
    with options.client() as client:
        device = client.device(options.device_id)
    output.result(device, device_view(device))
    return GateExit.PASS


def quarantine(options: DeviceActionOptions, output: Output) -> int:
    """Keep work away from a device until it is released; a running attempt ends first."""
    return _act(options, output, DynofarmClient.quarantine)


def release(options: DeviceActionOptions, output: Output) -> int:
    """Give a device back to the farm, by way of a check."""
    return _act(options, output, DynofarmClient.release)


def maintain(options: DeviceActionOptions, output: Output) -> int:
    """Take a device out for work on it; a running attempt ends first."""
    return _act(options, output, DynofarmClient.maintain)


def _act(
    options: DeviceActionOptions, output: Output, action: Callable[[DynofarmClient, str, str], DeviceView]
) -> int:
    with options.client() as client:
        device = action(client, options.device_id, options.reason)
    output.result(device, device_view(device))
    return GateExit.PASS
