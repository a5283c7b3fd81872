"""`dynofarm virtual`: emulated iPhones on this machine, and what can happen to them."""

import dataclasses
import shlex
from typing import Annotated, Final

import typer

from client.errors import UsageError
from client.local_farm import stopped_by_sigterm
from client.options import HomeOptions, JsonOption
from client.output import Output
from client.render_virtual import devices_table, emulator_text, faults_table
from client.settings import read_settings
from client.virtual_control import ask, fault_kind, fault_options
from client.virtual_process import VirtualProcess
from contract.states import GateExit
from contract.virtual_devices import FAULTS, FOLDER, MAX_DEVICES, FaultRequest, ListRequest, StopRequest

_DEFAULT_MODEL: Final = "iPhone17,1"
_DEFAULT_VERSION: Final = "18.5"
_MOMENTS: Final = "push:BYTES, event:LINES, install:PERCENT, launch:N or delay:SECONDS"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VirtualOptions(HomeOptions):
    """Which devices."""

    count: Annotated[int, typer.Option(min=1, max=MAX_DEVICES, help="How many devices.")] = 1
    model: Annotated[
        list[str], typer.Option("--model", help="iPhone17,1 and so on; several are dealt in turn.")
    ] = dataclasses.field(default_factory=lambda: [_DEFAULT_MODEL])
    ios: Annotated[
        str, typer.Option("--ios", help="Versions with commas, such as 18.5,26.1; dealt in turn.")
    ] = _DEFAULT_VERSION
    limit_mib: Annotated[
        int, typer.Option("--limit-mib", min=0, help="Memory limit of an app; 0: the model's.")
    ] = 0
    storage_gib: Annotated[
        float,
        typer.Option("--storage-gib", min=0.1, max=1024, help="Disk of each device."),
    ] = 8.0
    with_app: Annotated[
        bool, typer.Option("--app/--no-app", help="Whether the app is installed from the beginning.")
    ] = True
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget all state of earlier devices.")] = False

    def arguments(self) -> list[str]:
        """For the emulator's command line."""
        flags = [*(["--fresh"] if self.fresh else []), *([] if self.with_app else ["--without-app"])]
        return [
            f"--home={self.farm_home().path / FOLDER}",
            f"--count={self.count}",
            *(f"--model={each}" for each in self.model),
            f"--ios={self.ios}",
            f"--limit-bytes={self.limit_mib << 20}",
            f"--storage-gib={self.storage_gib}",
            *flags,
        ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FaultsOptions(JsonOption):
    """Which fault to explain."""

    name: Annotated[str, typer.Argument(metavar="[FAULT]", help="One fault; all without it.")] = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions(HomeOptions):
    """Which fault, on which device, and when."""

    udid: Annotated[str, typer.Argument(metavar="UDID", help="The device, or the beginning of its UDID.")]
    fault: Annotated[str, typer.Argument(metavar="FAULT", help="As `dynofarm virtual faults` lists them.")]
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Options of the fault.")
    ] = None
    at: Annotated[
        str,
        typer.Option("--at", metavar="MOMENT", help=f"Wait for {_MOMENTS}."),
    ] = ""


def virtual(options: VirtualOptions, output: Output) -> int:
    """Serve emulated iPhones until Ctrl-C. Unmodified clients of usbmuxd reach them through the socket that
    is named; the app on them is this machine's runtime. Nothing here is Apple hardware."""
    program = [*read_settings().virtual_command, *options.arguments()]
    with stopped_by_sigterm(), VirtualProcess(program) as emulator:
        view = emulator.wait_until_ready()
        same_home = f" --home {shlex.quote(str(options.home))}" if options.home else ""
        output.result(view, emulator_text(view, same_home))
        try:
            return GateExit.PASS if emulator.wait() == 0 else GateExit.INFRASTRUCTURE
        except KeyboardInterrupt:
            output.say("stopping the virtual devices")
            return GateExit.PASS


def list_virtual(options: HomeOptions, output: Output) -> int:
    """List the emulated devices that run: link, app, conditions, open connections."""
    view = ask(options.farm_home().path, ListRequest())
    output.result(view, devices_table(view.devices))
    return GateExit.PASS


def faults(options: FaultsOptions, output: Output) -> int:
    """Explain what can be made to happen to an emulated device."""
    kinds = [fault_kind(options.name)] if options.name else list(FAULTS.values())
    output.result(kinds, faults_table(kinds))
    return GateExit.PASS


def fault(options: FaultOptions, output: Output) -> int:
    """Make something happen to an emulated device, now or at a moment: a pulled cable, a lock, a crash."""
    kind = fault_kind(options.fault)
    try:
        request = FaultRequest(
            udid=options.udid,
            fault=kind.name,
            options=fault_options(kind, options.options or []),
            at=options.at or None,
        )
    except ValueError as error:
        raise UsageError(
            "bad-option",
            f"{options.at!r} is not a moment, or {options.udid!r} not a UDID",
            f"moments are {_MOMENTS}; `dynofarm virtual list` shows the UDIDs",
        ) from error
    view = ask(options.farm_home().path, request)
    output.result(view, devices_table([each for each in view.devices if each.udid.startswith(options.udid)]))
    return GateExit.PASS


def stop(options: HomeOptions, output: Output) -> int:
    """End the emulated devices that run in the home folder, cleanly."""
    view = ask(options.farm_home().path, StopRequest())
    output.result(view, devices_table(view.devices))
    return GateExit.PASS
