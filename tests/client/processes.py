"""`dynofarm` as a process of its own, with fakes in the place of the processes that it starts."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
FAKE_FARM = [sys.executable, "-m", "tests.fakes.embedded_farm"]
CLI = "from client.cli import main; main()"
DEADLINE_S = 60.0


def environment(home: Path, plan: dict[str, Any] | None = None, **more: str) -> dict[str, str]:
    """No settings from outside, the fake farm in the place of the real one."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("DYNOFARM_")},
        "PYTHONPATH": str(REPOSITORY),
        "DYNOFARM_HOME": str(home),
        "DYNOFARM_POLL_S": "0.05",
        "DYNOFARM_EMBEDDED_COMMAND": json.dumps(FAKE_FARM),
        "FAKE_FARM": json.dumps(plan or {}),
        "COLUMNS": "200",
        **more,
    }


def start(arguments: list[str], env: dict[str, str]) -> "subprocess.Popen[str]":
    """`dynofarm ARGUMENTS`, its output as text."""
    return subprocess.Popen(
        [sys.executable, "-c", CLI, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit code and both outputs; a process that does not end is killed and the test fails."""
    try:
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, stdout, stderr


def wait_for(condition: Callable[[], Any]) -> Any:
    """What it gives as soon as it is true."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise TimeoutError("the condition did not become true")


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
