"""Between `dynofarm virtual` and the emulator of iPhones: JSON lines on its control socket, and the faults.

One request per line, one answer per line. The faults are data: the command explains them, the emulator
plays them, and both refuse what is not in the table.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from contract.model import ContractModel

FOLDER: Final = "virtual"
"""Below the farm's home folder."""
USBMUXD_SOCKET: Final = "usbmuxd.sock"
CONTROL_SOCKET: Final = "control.sock"
SOCKET_VARIABLE: Final = "USBMUXD_SOCKET_ADDRESS"
"""Where clients of usbmuxd look for the address of its socket."""
MAX_DEVICES: Final = 100

Option = str | int | float | bool


class FaultOption(ContractModel):
    """One option of a fault; its value has the type of the default. choices: the only values, if any."""

    name: str
    default: Option
    help: str
    choices: tuple[str, ...] = ()


class FaultKind(ContractModel):
    """One thing that a device can be made to do."""

    name: str
    help: str
    options: tuple[FaultOption, ...] = ()


def _choice(name: str, choices: tuple[str, ...], help_text: str) -> FaultOption:
    return FaultOption(name=name, default=choices[0], help=help_text, choices=choices)


def _value(name: str, default: Option, help_text: str) -> FaultOption:
    return FaultOption(name=name, default=default, help=help_text)


_REPORT: Final = _choice(
    "report",
    ("written", "pending", "retired", "missing", "other-pid", "several"),
    "What becomes of the JetsamEvent report: pending ones appear after a flush, retired ones in a folder.",
)
_REPORT_DELAY: Final = _value("report_delay_s", 0.3, "How long after the kill the report is written.")

_KINDS: Final = (
    FaultKind(
        name="detach",
        help="Pull the cable. Connections end at once; the app runs on unless told otherwise.",
        options=(
            _choice("order", ("sockets-first", "notice-first"), "What a client learns first."),
            _choice("app", ("survives", "ends"), "What becomes of a running app."),
            _value("for_s", 0.0, "Plug it in again after so many seconds; 0: it stays unplugged."),
        ),
    ),
    FaultKind(
        name="attach",
        help="Plug the device in; it gets a new DeviceID.",
        options=(_choice("kind", ("USB", "Network"), "Over which link it appears."),),
    ),
    FaultKind(
        name="duplicate",
        help="The same UDID a second time in the list: over the network, or another device with this UDID.",
        options=(_choice("kind", ("Network", "clone"), "A second entry, or a second device over USB."),),
    ),
    FaultKind(name="lock", help="Lock the device: services that need an unlocked device are refused."),
    FaultKind(name="unlock", help="Unlock the device."),
    FaultKind(
        name="trust",
        help="What the person does when asked whether to trust a host; prompt leaves the question open.",
        options=(_choice("answer", ("accept", "prompt", "deny"), "The answer from now on."),),
    ),
    FaultKind(name="untrust", help="Forget all pairings on the device; the next one is asked for."),
    FaultKind(
        name="fill",
        help="Fill the disk, without real bytes: writes fail at the first byte for which there is no room.",
        options=(_value("free_bytes", 0, "What stays free."),),
    ),
    FaultKind(
        name="memory-limit",
        help="Set how much an app may use before the device kills it.",
        options=(_value("limit_bytes", 3_221_225_472, "The new limit."),),
    ),
    FaultKind(
        name="crash",
        help="Crash the app by a signal; a report of type 309 follows.",
        options=(_choice("signal", ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGTRAP"), "Which."),),
    ),
    FaultKind(
        name="watchdog", help="Kill the app as the watchdog does: SIGKILL and a report with 0x8badf00d."
    ),
    FaultKind(name="kill", help="Kill the app from outside: SIGKILL and no report."),
    FaultKind(name="exit", help="Ask the app to end (SIGTERM): it ends with an exit code of its own."),
    FaultKind(name="freeze", help="Stop the app's process: link and device answer, the app does not."),
    FaultKind(name="thaw", help="Let a frozen app run on."),
    FaultKind(
        name="jetsam",
        help="Kill the app for memory now, with a JetsamEvent report.",
        options=(
            _choice(
                "reason", ("per-process-limit", "vm-pageshortage", "highwater"), "As the report says it."
            ),
            _REPORT,
            _REPORT_DELAY,
        ),
    ),
    FaultKind(
        name="reports",
        help="What becomes of the reports of later kills, also of those at the memory limit.",
        options=(_REPORT, _REPORT_DELAY),
    ),
    FaultKind(
        name="pressure",
        help="Another process takes the memory: suspended apps die first, and ours only when told.",
        options=(_choice("app", ("survives", "killed"), "What becomes of our app."),),
    ),
    FaultKind(
        name="stall",
        help="The link is up and silent: nothing is answered.",
        options=(_value("for_s", 0.0, "How long; 0: until resume."),),
    ),
    FaultKind(name="resume", help="End a stall."),
    FaultKind(
        name="throttle",
        help="A slow link.",
        options=(
            _value("bytes_per_s", 0, "Bandwidth; 0: no limit."),
            _value("latency_s", 0.0, "Added to every piece."),
        ),
    ),
    FaultKind(
        name="reboot",
        help="Restart: apps end, the image is gone, locked until first unlocked, new DeviceID and boot id.",
        options=(
            _value("downtime_s", 1.0, "How long it is gone."),
            _value("clock_jump_s", 0.0, "How far its clock jumps."),
            _choice("comes_back", ("locked", "unlocked"), "Before its first unlock, or unlocked."),
        ),
    ),
    FaultKind(
        name="developer-mode",
        help="Switch the developer mode.",
        options=(_choice("mode", ("off", "on"), "The mode."),),
    ),
    FaultKind(
        name="image",
        help="Take the developer disk image away, or mount it.",
        options=(
            _choice("image", ("missing", "mounted"), "The image."),
            _choice("ticket", ("kept", "lost"), "Whether it can be mounted without asking Apple."),
        ),
    ),
    FaultKind(name="tunnel-death", help="End every tunnel to the device; the cable stays in."),
    FaultKind(
        name="battery",
        help="Set the battery.",
        options=(
            _value("level_percent", 5, "Its charge."),
            _value("is_charging", False, "Whether it charges."),
        ),
    ),
    FaultKind(
        name="thermal",
        help="Make it hot, or cool.",
        options=(
            _choice("thermal_state", ("serious", "critical", "fair", "nominal"), "As the system says it."),
            _value("temperature_c", 41.5, "Of the battery."),
        ),
    ),
    FaultKind(
        name="low-power",
        help="Switch the low-power mode.",
        options=(_choice("mode", ("on", "off"), "The mode."),),
    ),
    FaultKind(
        name="provisioning",
        help="The signing profile does not hold: no launch of the installed app, or no install.",
        options=(
            _choice(
                "kind",
                ("expired", "foreign", "untrusted", "install-refused", "valid"),
                "Past its date, for other devices, developer not trusted, next install refused, or valid.",
            ),
        ),
    ),
    FaultKind(
        name="port-delay",
        help="The app's port refuses for a while after each launch.",
        options=(_value("delay_s", 3.0, "How long."),),
    ),
    FaultKind(
        name="sysmon",
        help="sysmontap samples no faster than this, whatever it is asked for.",
        options=(_value("interval_s", 2.0, "The interval."),),
    ),
    FaultKind(name="clear", help="End stall and throttle, forget faults that wait, take back delays."),
)
FAULTS: Final[Mapping[str, FaultKind]] = MappingProxyType({kind.name: kind for kind in _KINDS})

Moment = Annotated[
    str, Field(pattern=r"^(push|event|install|launch):[1-9][0-9]{0,15}$|^delay:[0-9]{1,5}(\.[0-9]+)?$")
]
"""When a fault is played: after N more bytes pushed, N more lines of the app's stream, P percent of an
install, N launches, or so many seconds."""


class ListRequest(ContractModel):
    """The devices and what they are doing."""

    command: Literal["list"] = "list"


class FaultRequest(ContractModel):
    """Play a fault on one device, now or at a moment."""

    command: Literal["fault"] = "fault"
    udid: Annotated[str, Field(min_length=1, max_length=64)]
    fault: str
    options: dict[str, Option] = {}
    at: Moment | None = None


class StopRequest(ContractModel):
    """End the emulator, cleanly."""

    command: Literal["stop"] = "stop"


ControlRequest = Annotated[ListRequest | FaultRequest | StopRequest, Field(discriminator="command")]
CONTROL_REQUEST: Final[TypeAdapter[ListRequest | FaultRequest | StopRequest]] = TypeAdapter(ControlRequest)


class PlayedFault(ContractModel):
    """A fault that came to pass; refused: why it could not."""

    fault: str
    at: str = ""
    refused: str = ""


class DeviceCounters(ContractModel):
    """What is open or held on a device: all zero when a client has cleaned up."""

    connections: Annotated[int, Field(ge=0)]
    labels: tuple[str, ...]
    """What is spoken on the open connections."""
    apps: Annotated[int, Field(ge=0)]
    assertions: Annotated[int, Field(ge=0)]
    tunnels: Annotated[int, Field(ge=0)]
    faults_waiting: Annotated[int, Field(ge=0)]


class VirtualApp(ContractModel):
    """An app that runs: pid is the device's, host_pid this machine's."""

    pid: int
    host_pid: int
    name: str
    bundle_id: str
    footprint_bytes: int
    peak_bytes: int


class VirtualDeviceView(ContractModel):
    """One emulated device."""

    virtual: Literal[True] = True
    udid: str
    device_name: str
    product_type: str
    ios_version: str
    device_ids: tuple[int, ...]
    """Its entries in usbmuxd's list; none while it is unplugged."""
    boot_id: str
    is_locked: bool
    trust: str
    developer_mode: bool
    image_mounted: bool
    paired_hosts: int
    free_bytes: int
    memory_limit_bytes: int
    battery_percent: int
    temperature_c: float
    thermal_state: str
    low_power_mode: bool
    apps: tuple[VirtualApp, ...]
    installed: tuple[str, ...]
    counters: DeviceCounters
    played: tuple[PlayedFault, ...]


class EmulatorView(ContractModel):
    """The whole emulator. open_sockets: clients of the usbmuxd socket."""

    virtual: Literal[True] = True
    usbmuxd_socket: str
    control_socket: str
    pid: int
    open_sockets: int
    devices: tuple[VirtualDeviceView, ...]


class ControlAnswer(ContractModel):
    """error: stable and kebab-case, with a sentence in detail. view: the emulator after the request."""

    ok: bool
    error: str = ""
    detail: str = ""
    view: EmulatorView | None = None


def checked_options(kind: FaultKind, given: Mapping[str, Any]) -> dict[str, Option]:
    """All options of a fault with their values; ValueError with a sentence for one that is wrong."""
    known = {option.name: option for option in kind.options}
    for name in given:
        if name not in known:
            choice = f"; it takes {', '.join(known)}" if known else "; it takes none"
            raise ValueError(f"{kind.name} has no option {name!r}{choice}")
    return {name: _checked(option, given.get(name, option.default)) for name, option in known.items()}


def _checked(option: FaultOption, value: Any) -> Option:
    if option.choices:
        if value not in option.choices:
            raise ValueError(f"{option.name} is one of {', '.join(option.choices)}, not {value!r}")
        return str(value)
    try:
        if isinstance(option.default, bool):
            return _BOOLEANS[str(value).lower()]
        number = float(value) if isinstance(option.default, float) else int(value)
    except (KeyError, ValueError, TypeError):
        raise ValueError(f"{option.name} is not a {type(option.default).__name__}: {value!r}") from None
    if not abs(number) < _LARGEST:
        raise ValueError(f"{option.name} is too large: {value!r}")
    return number


_BOOLEANS: Final = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
_LARGEST: Final = 1 << 50
