"""`python -m device_agent.virtual --home DIR --count N`: serves emulated devices until a signal or `stop`."""

import argparse
import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contract.virtual_devices import MAX_DEVICES
from device_agent.virtual.control import ControlServer
from device_agent.virtual.device.catalogue import MODELS, model_of, parse_version
from device_agent.virtual.emulator import Emulator, EmulatorOptions
from device_agent.virtual.errors import VirtualError
from device_agent.virtual.views import emulator_view

_EXIT_USAGE: Final = 2
_EXIT_FAILED: Final = 4
_DEFAULT_MODEL: Final = "iPhone17,1"
_GIB: Final = 1 << 30


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0 after a stop, 2 for a wrong command line, 4 when it cannot serve."""
    options = _parser().parse_args(arguments)
    try:
        emulator_options = _options(options)
        asyncio.run(_serve(emulator_options))
    except VirtualError as error:
        sys.stderr.write(f"virtual: {error}\n")
        return _EXIT_FAILED if error.code == "state-folder" else _EXIT_USAGE
    except KeyboardInterrupt:
        return 0
    return 0


async def _serve(options: EmulatorOptions) -> None:
    emulator = Emulator(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, emulator.stopping.set)
    control = ControlServer(emulator)
    try:
        await emulator.open()
        await control.listen()
        # One line that says where, for whoever started us; nothing else ever goes to standard output.
        sys.stdout.write(emulator_view(emulator).model_dump_json() + "\n")
        sys.stdout.flush()
        await emulator.stopping.wait()
    finally:
        await control.close()
        await emulator.close()


def _options(given: argparse.Namespace) -> EmulatorOptions:
    program = (
        tuple(json.loads(given.program)) if given.program.startswith("[") else shlex.split(given.program)
    )
    return EmulatorOptions(
        home=Path(given.home).expanduser().absolute(),
        count=given.count,
        models=[model_of(name) for name in given.model or [_DEFAULT_MODEL]],
        versions=[parse_version(text) for text in given.ios.split(",")],
        program=tuple(program),
        capacity_bytes=int(given.storage_gib * _GIB),
        limit_bytes=given.limit_bytes or None,
        with_app=given.with_app,
        fresh=given.fresh,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="device_agent.virtual", description="Serve emulated iPhones.")
    parser.add_argument("--home", required=True, help="folder of the devices and of the sockets")
    parser.add_argument("--count", type=_count, default=1, help=f"how many, 1 to {MAX_DEVICES}")
    parser.add_argument(
        "--model", action="append", default=[], help=f"dealt in turn, may be repeated: {', '.join(MODELS)}"
    )
    parser.add_argument("--ios", default="18.5", help="versions, with commas, dealt in turn")
    parser.add_argument("--storage-gib", type=float, default=8.0, help="disk of each device")
    parser.add_argument("--limit-bytes", type=int, default=0, help="memory limit of an app; 0: the model's")
    parser.add_argument("--without-app", dest="with_app", action="store_false", help="nothing installed")
    parser.add_argument("--fresh", action="store_true", help="forget everything of earlier runs")
    parser.add_argument(
        "--program",
        default=json.dumps([sys.executable, "-m", "runtime"]),
        help="what an app is on this machine: a command line, or a JSON list",
    )
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MAX_DEVICES:
        raise argparse.ArgumentTypeError(f"1 to {MAX_DEVICES} devices")
    return number


if __name__ == "__main__":
    # Children and sockets are ours alone.
    os.umask(0o077)
    sys.exit(run(sys.argv[1:]))
