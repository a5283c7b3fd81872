"""`dynofarm device-agents`: the processes beside devices, and whether they get work."""

import dataclasses
from typing import Annotated

import typer

from client.options import ControllerOptions
from client.output import Output
from client.refusals import built
from client.render_administration import device_agents_table
from contract import routes
from contract.administration import DeviceAction, DeviceAgentView
from contract.states import GateExit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAgentActionOptions(ControllerOptions):
    """Which one, and why."""

    device_agent_id: Annotated[
        str, typer.Argument(metavar="DEVICE_AGENT", help="As `dynofarm device-agents list` shows it.")
    ]
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; kept in the audit.")]


def list_device_agents(options: ControllerOptions, output: Output) -> int:
    """List every device agent with its version, its devices and when it was heard of."""
    with options.client() as client:
        found = client.call(routes.LIST_DEVICE_AGENTS).device_agents
    output.result(found, device_agents_table(found))
    return GateExit.PASS


def drain(options: DeviceAgentActionOptions, output: Output) -> int:
    """Give a device agent no new work; what runs goes on. For an upgrade or a restart of its machine."""
    return _act(options, output, routes.DRAIN_DEVICE_AGENT)


def resume(options: DeviceAgentActionOptions, output: Output) -> int:
    """Give a drained device agent work again."""
    return _act(options, output, routes.RESUME_DEVICE_AGENT)


def _act(options: DeviceAgentActionOptions, output: Output, route: routes.Route[DeviceAgentView]) -> int:
    body = built(DeviceAction, reason=options.reason)
    with options.client() as client:
        found = client.call(route, body, device_agent_id=options.device_agent_id)
    output.result(found, device_agents_table([found]))
    return GateExit.PASS
