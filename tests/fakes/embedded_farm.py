"""A process that behaves as `python -m controller.embedded` does towards whoever starts it.

    python -m tests.fakes.embedded_farm --home DIR --port 0 [--host H] [--no-agent]

FAKE_FARM, a JSON object, says what goes wrong: {"exit": 3} ends before it is ready, {"deaf": true} ignores
SIGTERM, {"lose": 2} and {"repeat": 2} lose and repeat events of the store, {"no_device": true},
{"outcome": "failed"}, {"polls": 1000000}.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from contract.events import Event, Stream
from contract.states import JobOutcome
from tests.fakes.rest_controller import TOKEN, RestController
from tests.fakes.scripted_run import Script, ScriptedRun


class LossyRun(ScriptedRun):
    """A run whose store is not what its runtime wrote."""

    lose: int = 0
    repeat: int = 0

    def events(self, stream: Stream) -> list[Event]:
        events = super().events(stream)
        if stream is not Stream.SAMPLES or self.outcome is None:
            return events
        return events[self.lose :] + events[-1:] * self.repeat


def main() -> int:
    """Serves until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host")
    parser.add_argument("--port")
    parser.add_argument("--no-agent", action="store_true")
    home: Path = parser.parse_args().home
    plan: dict[str, Any] = json.loads(os.environ.get("FAKE_FARM", "{}"))
    sys.stderr.write(f"fake farm in {home}\n")
    (home / "environment.json").write_text(json.dumps(dict(os.environ)))
    if "exit" in plan:
        sys.stderr.write("controller: the port is taken\n")
        return int(plan["exit"])
    if plan.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        # Before any thread is started, so that all of them leave it to sigwait.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _serve(home, plan)
    return 0


def _serve(home: Path, plan: dict[str, Any]) -> None:
    controller = RestController(
        script=Script(polls=plan.get("polls", 3), outcome=JobOutcome(plan.get("outcome", "succeeded")))
    )
    if plan.get("no_device"):
        controller.devices.clear()

    def on_submit(run: ScriptedRun) -> None:
        run.__class__ = LossyRun
        vars(run).update(lose=plan.get("lose", 0), repeat=plan.get("repeat", 0))
        folder = home / "agent" / "attempts" / run.attempt_id
        folder.mkdir(parents=True)
        (folder / "events.jsonl").write_bytes(run.written_lines())

    controller.on_submit = on_submit
    with controller.served() as url:
        (home / "admin-token").write_text(TOKEN + "\n")
        (home / "controller.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        signal.sigwait({signal.SIGTERM})
    (home / "asked.txt").write_text("".join(f"{asked.method} {asked.path}\n" for asked in controller.asked))
    with contextlib.suppress(FileNotFoundError):
        (home / "controller.json").unlink()


if __name__ == "__main__":
    sys.exit(main())
