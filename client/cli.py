"""The command `dynofarm`: which name does what. Results go to standard output, all else to standard error."""

import os
import sys
from importlib.metadata import version
from typing import Annotated, Final, cast

import typer

from client.commands import (
    artifacts,
    audit,
    bench,
    calibrate,
    demo,
    device_agents,
    devices,
    farm,
    gate,
    runs,
    tokens,
    trace,
    virtual,
    workloads,
)
from client.errors import ClientError, UsageError
from client.options import (
    INTERRUPTED_EXIT,
    ControllerOptions,
    HomeOptions,
    RunOptions,
    command,
    default_command,
)
from client.output import Output
from client.run_request import SubmitOptions
from contract.states import GateExit

_HELP: Final = (
    "Measure language models on a farm of devices: submit runs, follow them, gate on their verdict."
)


def _group(help_text: str) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        # Plain help: the other one takes colours from variables that CI services set.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _group(_HELP)


@app.callback(invoke_without_command=True)
def _dynofarm(
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if show_version:
        typer.echo(f"dynofarm {version('dynofarm')}")
        raise typer.Exit


command(app, "demo", demo.DemoOptions, demo.demo)
command(app, "up", farm.UpOptions, farm.up)
command(app, "agent", ControllerOptions, farm.agent)
command(app, "calibrate", calibrate.CalibrateOptions, calibrate.calibrate)
command(app, "submit", SubmitOptions, runs.submit)
command(app, "watch", runs.WatchOptions, runs.watch)
command(app, "report", RunOptions, runs.report)
command(app, "compare", runs.CompareOptions, runs.compare)
command(app, "gate", gate.GateOptions, gate.gate)
command(app, "runs", runs.RunsOptions, runs.runs)
command(app, "cancel", RunOptions, runs.cancel)
command(app, "trace", trace.TraceOptions, trace.trace)
command(app, "artifacts", artifacts.ArtifactsOptions, artifacts.artifacts)
command(app, "audit", audit.AuditOptions, audit.audit)

_devices = _group("The devices of the farm.")
app.add_typer(_devices, name="devices")
command(_devices, "list", devices.DevicesOptions, devices.list_devices)
command(_devices, "show", devices.DeviceOptions, devices.show)
command(_devices, "quarantine", devices.DeviceActionOptions, devices.quarantine)
command(_devices, "release", devices.DeviceActionOptions, devices.release)
command(_devices, "maintain", devices.DeviceActionOptions, devices.maintain)
command(_devices, "reserve", devices.ReserveOptions, devices.reserve)
command(_devices, "retire", devices.DeviceActionOptions, devices.retire)
command(_devices, "history", devices.HistoryOptions, devices.history)

_device_agents = _group("The device agents: the processes beside devices.")
app.add_typer(_device_agents, name="device-agents")
command(_device_agents, "list", ControllerOptions, device_agents.list_device_agents)
command(_device_agents, "drain", device_agents.DeviceAgentActionOptions, device_agents.drain)
command(_device_agents, "resume", device_agents.DeviceAgentActionOptions, device_agents.resume)

_tokens = _group("The tokens of people, programs and new device agents.")
app.add_typer(_tokens, name="tokens")
command(_tokens, "list", tokens.TokensOptions, tokens.list_tokens)
command(_tokens, "create", tokens.TokenCreateOptions, tokens.create)
command(_tokens, "revoke", tokens.TokenOptions, tokens.revoke)

_workloads = _group("The workloads that a run can name.")
app.add_typer(_workloads, name="workloads")
default_command(_workloads, workloads.WorkloadsOptions, workloads.workloads)
command(_workloads, "list", ControllerOptions, workloads.list_workloads)
command(_workloads, "show", workloads.WorkloadOptions, workloads.show)

_virtual = _group("Emulated iPhones on this machine.")
app.add_typer(_virtual, name="virtual")
default_command(_virtual, virtual.VirtualOptions, virtual.virtual)
command(_virtual, "list", HomeOptions, virtual.list_virtual)
command(_virtual, "fault", virtual.FaultOptions, virtual.fault)
command(_virtual, "faults", virtual.FaultsOptions, virtual.faults)
command(_virtual, "stop", HomeOptions, virtual.stop)

_bench = _group("Measurements on this machine, without a farm.")
app.add_typer(_bench, name="bench")
command(_bench, "runtime", bench.BenchRuntimeOptions, bench.bench_runtime)


# typer exports only the leaves of its errors; every one of them has what a BadParameter has.
_CommandLineError = cast(
    "type[typer.BadParameter]",
    next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"),
)


def main() -> None:
    """Entry point of the distribution; ends with a `GateExit` code, 130 on Ctrl-C."""
    if sys.stdout is None:
        # It was closed by the caller: results go nowhere, and the exit code still tells.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    sys.exit(_exit_code(sys.argv[1:]))


def _require_text(arguments: list[str]) -> None:
    """UsageError for bytes that are not UTF-8: no request and no result can carry such a name."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                "bad-option",
                f"the argument {argument!r:.200} is not UTF-8 text",
                "give the file another name",
            ) from error


def _exit_code(arguments: list[str]) -> int:
    output = Output(as_json="--json" in arguments)
    try:
        _require_text(arguments)
        code = app(arguments, prog_name="dynofarm", standalone_mode=False)
        with output.writing():
            sys.stdout.flush()
    except _CommandLineError as error:
        # With the usage of the command that was meant, which only the error knows.
        error.show()
        # Click's name for the command that was meant, as in its usage.
        context = getattr(error, "ctx", None)
        meant = context.command_path if context is not None else "dynofarm"
        output.refuse(
            UsageError("bad-option", error.format_message(), f"`{meant} --help` lists what it takes")
        )
        return int(GateExit.USAGE)
    except typer.Abort:
        return INTERRUPTED_EXIT
    except ClientError as error:
        output.failure(error)
        return int(error.exit_code)
    except OSError as error:
        # Help and version are written by typer.
        output.reader_left()
        output.say(f"error: cannot write to standard output: {error.strerror}")
        return int(GateExit.INFRASTRUCTURE)
    return code if isinstance(code, int) else 0
