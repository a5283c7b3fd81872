"""On what the demo runs: this machine, or emulated iPhones that are started for it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from client.farm_home import FarmHome
from client.output import Output
from client.settings import read_settings
from client.virtual_process import VirtualProcess
from contract.states import TargetKind
from contract.virtual_devices import FOLDER

# Two ways to the developer services: over lockdown, and through the tunnel of iOS 17.4 and newer.
_VERSIONS: Final = ("16.7", "26.1")
_MODELS: Final = ("iPhone14,2", "iPhone17,1")


class DemoTargetKind(StrEnum):
    """What `--target` takes."""

    HOST = "host"
    VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True)
class DemoDevices:
    """Which devices the run is for. device_ids empty: the first of that kind."""

    kind: TargetKind
    device_ids: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the farm must be told so that its agent finds them."""


def threads_of_each() -> int:
    """So that the emulated devices do not take the cores from each other."""
    return max(1, (os.cpu_count() or 1) // len(_VERSIONS))


@contextmanager
def demo_devices(target: DemoTargetKind, home: FarmHome, output: Output) -> Iterator[DemoDevices]:
    """Emulated devices are there inside of `with`, and gone with everything they started behind it."""
    if target is DemoTargetKind.HOST:
        yield DemoDevices(TargetKind.HOST)
        return
    program = [
        *read_settings().virtual_command,
        f"--home={home.path / FOLDER}",
        f"--count={len(_VERSIONS)}",
        *(f"--model={model}" for model in _MODELS),
        f"--ios={','.join(_VERSIONS)}",
    ]
    with VirtualProcess(program) as emulator:
        view = emulator.wait_until_ready()
        named = ", ".join(f"{device.product_type} with iOS {device.ios_version}" for device in view.devices)
        output.say(f"emulating {named}: nothing here is Apple hardware")
        yield DemoDevices(
            TargetKind.VIRTUAL,
            tuple(device.udid for device in view.devices),
            {"DYNOFARM_USBMUX_ADDRESS": view.usbmuxd_socket},
        )
