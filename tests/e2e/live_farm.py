"""A farm of real processes on loopback: controller, device agent, runtime, a tiny random model."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from pydantic import SecretStr

from client.api import DynofarmClient
from client.event_audit import EventAudit, audit_run
from client.farm_home import FarmHome
from contract.administration import EnrollmentTokenRequest
from contract.rest import RunRequest, RunView
from contract.states import RunState
from tests.fakes.tiny_model import save_tiny_model

ROOT = Path(__file__).resolve().parents[2]
MODEL = "tiny-model"
TRUNCATED = "truncated-model"
DEADLINE_S = 120.0
# The tiny model reads a token a byte and 512 of them at most: short texts, but every kind of step. The tool
# takes its time, so that an attempt has a middle.
WORKLOAD = """\
workload: short
version: 1
title: Short
description: Three agents share a beginning and use a tool.
chat: plain
texts:
  beginning: {text: All agents begin with these words and go on with their own. }
  tasks: [{text: First task. }, {text: Another one. }, {text: The third. }]
  result: {text: The tool says yes. }
agents:
  - name: agent-{index}
    count: 3
    system: {text: beginning, tokens: 150}
    calls:
      - input: {text: tasks}
        output_tokens: 4
        ignore_end: true
      - tool: {name: ask, wait_s: 0.1, result: {text: result}}
        output_tokens: 4
        ignore_end: true
"""


class LiveFarm:
    """`kill` of a role is SIGKILL; `start` again is a restart on the same home and address."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self._environment = environment
        self.port = 0
        save_tiny_model(home / "models" / MODEL)
        weights = save_tiny_model(home / "models" / TRUNCATED) / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
        self._roles: dict[str, subprocess.Popen[bytes]] = {}
        self._token = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> DynofarmClient:
        return DynofarmClient(self.url, SecretStr((self.home / "admin-token").read_text().strip()))

    def start_controller(self) -> None:
        state = self.home / "controller.json"
        state.unlink(missing_ok=True)
        arguments = ["--home", str(self.home), "--port", str(self.port), "--no-agent"]
        process = self._start("controller", ["-m", "controller.embedded", *arguments])
        wait_for(lambda: state.exists() or process.poll() is not None, "the controller's address")
        assert process.poll() is None, (self.home / "controller.log").read_text()
        self.port = int(json.loads(state.read_text())["url"].rsplit(":", 1)[1])

    def start_agent(self) -> None:
        if not self._token:
            with self.client() as client:
                self._token = client.enrollment_token(EnrollmentTokenRequest()).token
        self._start("agent", ["-m", "device_agent", "--home", str(self.home), "--controller", self.url])

    def kill(self, role: str) -> None:
        process = self._roles.pop(role)
        process.kill()
        process.wait(timeout=10)

    def stop(self) -> None:
        """The agent first, so that it still can say goodbye; then whatever runtime a test left behind."""
        for role in ("agent", "controller"):
            process = self._roles.pop(role, None)
            if process is not None:
                process.terminate()
                process.wait(timeout=30)
        for process in self.runtimes():
            process.kill()

    def runtimes(self) -> list[psutil.Process]:
        """Living runtime processes of this farm's attempts."""
        mine = f"{self.home}/agent/attempts/"
        return [
            process
            for process in psutil.process_iter(["cmdline", "status"])
            if any(part.startswith(mine) for part in process.info["cmdline"] or [])
            and process.info["status"] != psutil.STATUS_ZOMBIE
        ]

    def submit(self, **changes: Any) -> str:
        request: dict[str, Any] = {
            "workload": {"source": WORKLOAD, "source_name": "short.yaml"},
            "model": MODEL,
            "repetitions": 5,
            "engine": {"dtype": "float32", "threads": 1},
            **changes,
        }
        with self.client() as client:
            wait_for(
                lambda: any(MODEL in d.models for d in client.devices().devices), "a device with the model"
            )
            return client.submit(RunRequest.model_validate(request)).run_id

    def run(self, run_id: str) -> RunView:
        with self.client() as client:
            return client.run(run_id)

    def completed(self, run_id: str) -> RunView:
        wait_for(lambda: self.run(run_id).state is RunState.COMPLETED, f"the end of {run_id}", self.logs)
        return self.run(run_id)

    def wait_until_under_way(self, run_id: str) -> None:
        """A trial is done and more are to come: the middle of the attempt, by the runtime's own file."""

        def under_way() -> bool:
            attempts = [attempt for job in self.run(run_id).jobs for attempt in job.attempts]
            files = [FarmHome(self.home).events_file(attempt.attempt_id) for attempt in attempts]
            written = [file.read_bytes() for file in files if file.exists()]
            assert not any(b'"runtime_finished"' in lines for lines in written), "it ended before it was seen"
            return any(b'"trial_finished"' in lines for lines in written)

        wait_for(under_way, "the middle of the attempt", self.logs)

    def audit(self, run_id: str) -> EventAudit:
        with self.client() as client:
            return audit_run(client, FarmHome(self.home), client.run(run_id))

    def _start(self, role: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DYNOFARM_")}
        environment |= {"DYNOFARM_ENROLLMENT_TOKEN": self._token, **self._environment}
        with (self.home / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        self._roles[role] = process
        return process

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in (*self.home.glob("*.log"), *self.home.glob("agent/attempts/*/runtime.log"))
        )


def wait_for(condition: Callable[[], bool], what: str, more: Callable[[], str] = str) -> None:
    """Returns when the condition holds; fails with `what` at the deadline."""
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, f"waited {DEADLINE_S:g} s for {what}\n{more()}"
        time.sleep(0.1)


@contextmanager
def live_farm(home: Path) -> Iterator[LiveFarm]:
    """A farm that is up, and down afterwards whatever happened."""
    farm = LiveFarm(home)
    try:
        farm.start_controller()
        farm.start_agent()
        yield farm
    finally:
        farm.stop()
