"""The real agent as a process, against a FakeController and the fake runtime."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
FAKE_RUNTIME = ROOT / "tests/fakes/runtime.py"


class AgentProcess:
    """`python -m device_agent` in a home of its own. `kill` is SIGKILL; `start` again is a restart."""

    def __init__(self, home: Path, url: str, **settings: Any) -> None:
        self.home = home
        models = home / "models"
        models.mkdir(parents=True, exist_ok=True)
        (models / "tiny-model.gguf").write_bytes(b"GGUF")
        chosen = {
            "controller_url": url,
            "enrollment_token": "one-time",
            "runtime_command": json.dumps([sys.executable, str(FAKE_RUNTIME)]),
            "tick_s": 0.05,
            "upload_interval_s": 0.05,
            "host_sample_s": 0.3,
            "disk_floor_bytes": 1,
            "retry_first_s": 0.05,
            "retry_cap_s": 0.3,
            "call_timeout_s": 2,
            "cancel_grace_s": 1,
            "terminate_grace_s": 0.5,
            "fence_grace_s": 0.2,
            "shutdown_s": 5,
            **settings,
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DYNOFARM_")}
        own = {f"DYNOFARM_{name.upper()}": str(value) for name, value in chosen.items()}
        self.environment = {**inherited, **own}
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> "AgentProcess":
        with (self.home / "agent.log").open("ab") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "device_agent", "--home", str(self.home)],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        return self

    def __enter__(self) -> "AgentProcess":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pid in self.runtime_pids():
            if psutil.pid_exists(pid) and any("runtime.py" in part for part in _command_line(pid)):
                os.kill(pid, signal.SIGKILL)

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.child is not None
        return self.child

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait(timeout=10)
            self.child = None

    def stop(self, timeout_s: float = 15.0) -> int:
        """SIGTERM; the exit code."""
        self.running.terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 15.0) -> int:
        code = self.running.wait(timeout=timeout_s)
        self.child = None
        return code

    def log(self) -> list[dict[str, Any]]:
        lines = (self.home / "agent.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def folder(self, attempt_id: str) -> Path:
        return self.home / "agent/attempts" / attempt_id

    def starts(self, attempt_id: str) -> list[int]:
        """Pids of the runtimes that were started for the attempt."""
        path = self.folder(attempt_id) / "starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def release(self, attempt_id: str) -> None:
        """Let a runtime that is held go on to its end."""
        (self.folder(attempt_id) / "release").touch()

    def runtime_pids(self) -> list[int]:
        folders = self.home.glob("agent/attempts/att_*")
        return [pid for folder in folders for pid in self.starts(folder.name)]


def alive(pid: int) -> bool:
    """Whether a runtime's process still runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_dead(pid: int, timeout_s: float = 15.0) -> None:
    end_s = time.monotonic() + timeout_s
    while alive(pid):
        assert time.monotonic() < end_s, f"process {pid} lives on"
        time.sleep(0.02)


def _command_line(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return []
