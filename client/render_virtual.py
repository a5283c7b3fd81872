"""Emulated devices and their faults as rich renderables, pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from client.demo_sizes import MODEL
from contract.virtual_devices import SOCKET_VARIABLE, EmulatorView, FaultKind, VirtualDeviceView


def emulator_text(view: EmulatorView, same_home: str = "") -> RenderableType:
    """Where clients find the devices, how a farm does, and which there are. same_home: the option, if any."""
    head = Text(
        f"{len(view.devices)} virtual devices (emulated, no Apple hardware)\n"
        f"export {SOCKET_VARIABLE}={view.usbmuxd_socket}",
        overflow="fold",
    )
    farm = Text(
        "after that line, in a second terminal, a farm that has them, and in a third a run on one:\n"
        f"  dynofarm up{same_home}\n"
        f"  dynofarm submit shared-prefix -m {MODEL} --kind virtual --watch{same_home}\n"
        "Ctrl-C stops the devices",
        overflow="fold",
    )
    return Group(head, devices_table(view.devices), farm)


def devices_table(devices: Sequence[VirtualDeviceView]) -> RenderableType:
    table = _table("UDID", "device", "iOS", "link", "app", "conditions")
    for device in devices:
        table.add_row(
            device.udid,
            f"{device.product_type}\n{device.device_name}",
            device.ios_version,
            ", ".join(f"#{number}" for number in device.device_ids) or "unplugged",
            _apps(device),
            _conditions(device),
        )
    return table


def _apps(device: VirtualDeviceView) -> str:
    running = "\n".join(f"pid {app.pid}, {app.footprint_bytes / 1e6:.0f} MB" for app in device.apps)
    return running or ("not running" if device.installed else "not installed")


def _conditions(device: VirtualDeviceView) -> str:
    waiting = device.counters.faults_waiting
    said = {
        "locked": device.is_locked,
        f"trust: {device.trust}": device.trust != "accept",
        "developer mode off": not device.developer_mode,
        "no developer image": not device.image_mounted,
        device.thermal_state: device.thermal_state != "nominal",
        "low power": device.low_power_mode,
        "1 fault waits": waiting == 1,
        f"{waiting} faults wait": waiting > 1,
    }
    shown = [text for text, holds in said.items() if holds]
    return ", ".join([*shown, f"{device.battery_percent} %", f"{device.free_bytes / 1e9:.1f} GB free"])


def faults_table(kinds: Sequence[FaultKind]) -> RenderableType:
    """Each fault with its options."""
    table = _table("fault", "what it does", "options")
    for kind in kinds:
        options = [
            f"{option.name}={'|'.join(option.choices) or option.default}: {option.help}"
            for option in kind.options
        ]
        table.add_row(kind.name, kind.help, "\n".join(options) or "–")
    moments = Text(
        "Every fault can wait for a moment: see --at of `dynofarm virtual fault --help`.", overflow="fold"
    )
    return Group(table, moments)


def _table(*columns: str) -> Table:
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
