"""`python -m benchmarks.service claims`: JSON on standard output, progress on standard error."""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.service.claims import Load, measure
from benchmarks.service.waiting_devices import CLAIM_WAIT_S


def main(arguments: Sequence[str]) -> int:
    """Always 0: a benchmark that judged would say what its thresholds are good for."""
    parser = argparse.ArgumentParser(prog="benchmarks.service", description="What the controller costs.")
    parser.add_argument("benchmark", choices=["claims"])
    parser.add_argument("--devices", type=_numbers, default=[10, 100, 1000], help="default: 10,100,1000")
    parser.add_argument("--queued", type=_numbers, default=[0, 1000], help="default: 0,1000")
    parser.add_argument("--windows", type=int, default=3, help=f"of {CLAIM_WAIT_S:.0f} s each (default: 3)")
    parser.add_argument("--database-url", default="", help="an empty PostgreSQL database, for one load only")
    parsed = parser.parse_args(arguments)
    _allow_many_connections()
    loads = [Load(devices, queued, parsed.windows) for queued in parsed.queued for devices in parsed.devices]
    report = {
        "benchmark": "claims",
        "window_s": CLAIM_WAIT_S,
        **_circumstances(),
        "database": parsed.database_url.partition(":")[0] or "sqlite",
        "rows": [measure(load, parsed.database_url, _tell) for load in loads],
        "load_average_after": os.getloadavg(),
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _allow_many_connections() -> None:
    """Each waiting device is an open connection, here and in the controller."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _circumstances() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "commit": commit.stdout.strip(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "python": platform.python_version(),
        "load_average_before": os.getloadavg(),
    }


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
