"""`python -m device_agent.ios_worker --udid UDID --images DIR`: see protocol.py for what it speaks."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def run(arguments: Sequence[str]) -> int:
    """0 when its input ended, 3 when pymobiledevice3 is not installed."""
    parser = argparse.ArgumentParser(prog="device_agent.ios_worker", description="Serve one iPhone.")
    parser.add_argument("--udid", required=True)
    parser.add_argument("--images", required=True, help="folder of developer disk images")
    given = parser.parse_args(arguments)
    lines_in, lines_out = _own_streams()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    try:
        from device_agent.ios_worker.server import serve
    except ImportError as error:
        sys.stderr.write(f"pip install 'dynofarm[ios]': {error}\n")
        return 3
    asyncio.run(serve(given.udid, Path(given.images), lines_in, lines_out))
    return 0


def _own_streams() -> tuple[int, int]:
    """The protocol's streams under other numbers: the library prints, and draws bars, on the usual ones."""
    lines_in, lines_out = os.dup(0), os.dup(1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return lines_in, lines_out


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
