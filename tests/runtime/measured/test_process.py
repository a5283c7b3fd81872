"""The real process, `python -m runtime`, as an agent starts it: followed, cancelled, fenced and killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from contract.events import EventLineError, Stream, parse_event
from contract.failures import FailureReason
from contract.jobs import AttemptSpec
from contract.runtime_link import RuntimeExit
from runtime.measured.emit import stream_of
from tests.fakes.attempt_specs import attempt_folder, attempt_spec, shared_prefix, write_lease
from tests.runtime.measured.conftest import last_word, of_type, read_events
from tests.runtime.measured.test_serve import Reader

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 120.0


class Runtime:
    """One runtime in a session of its own, its output in runtime.log."""

    def __init__(
        self, folder: Path, model: Path, socket_path: Path, program: tuple[str, str] = ("-m", "runtime")
    ) -> None:
        self.folder = folder
        self.socket_path = socket_path
        with (folder / "runtime.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, *program, "--attempt-dir", str(folder)),
                    *("--model-path", str(model), "--socket", str(socket_path)),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> int:
        out, _ = self.process.communicate(timeout=DEADLINE_S)
        assert out == b"", "a runtime writes nothing to standard output"
        return self.process.returncode

    def wait_for(self, text: bytes) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        path = self.folder / "events.jsonl"
        while not (path.exists() and text in path.read_bytes()):
            assert self.process.poll() is None, (self.folder / "runtime.log").read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)


Launch = Callable[[AttemptSpec], Runtime]


@pytest.fixture
def launch(tmp_path: Path, tiny_model: Path, socket_path: Path) -> Iterator[Launch]:
    started: list[Runtime] = []

    def start(spec: AttemptSpec) -> Runtime:
        started.append(Runtime(attempt_folder(tmp_path, spec), tiny_model, socket_path))
        return started[-1]

    yield start
    for runtime in started:
        runtime.kill()


def endless() -> AttemptSpec:
    """More trials than any test waits for."""
    return attempt_spec(shared_prefix(), pairs=2000)


def test_a_reader_of_the_socket_holds_exactly_what_the_file_holds(launch: Launch) -> None:
    runtime = launch(attempt_spec(shared_prefix(), pairs=3))
    runtime.wait_for(b"token_emitted")
    reader = Reader(runtime.socket_path, {})
    received: list[bytes] = []
    follower = threading.Thread(target=lambda: received.append(reader.rest()))
    follower.start()
    assert runtime.wait() == RuntimeExit.COMPLETED
    follower.join(DEADLINE_S)
    reader.close()
    assert received == [(runtime.folder / "events.jsonl").read_bytes()]
    assert not runtime.socket_path.exists()
    assert last_word(read_events(runtime.folder)).status == "completed"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux which signals are caught")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_anything_has_begun_is_a_cancellation_too(
    launch: Launch, number: signal.Signals
) -> None:
    runtime = launch(endless())
    status = Path(f"/proc/{runtime.process.pid}/status")
    deadline_s = time.monotonic() + DEADLINE_S
    while not _catches(status.read_text(), number):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert not (runtime.folder / "events.jsonl").exists()
    runtime.process.send_signal(number)
    assert runtime.wait() == RuntimeExit.CANCELLED
    assert b"Traceback" not in (runtime.folder / "runtime.log").read_bytes()


def _catches(status: str, number: signal.Signals) -> bool:
    """Whether a process with this /proc status has a handler that is not Python's own for Ctrl-C."""
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1) and bool(caught >> (number - 1) & 1)


def test_a_signal_after_the_last_trial_changes_neither_the_last_event_nor_the_exit_code(
    launch: Launch,
) -> None:
    runtime = launch(attempt_spec(shared_prefix(), pairs=30))
    runtime.wait_for(b"stream_opened")
    # It takes nothing of what it asked for, so the process lingers at its end until its patience is over.
    with closing(Reader(runtime.socket_path, {})):
        runtime.wait_for(b"runtime_finished")
        runtime.process.send_signal(signal.SIGTERM)
        assert runtime.wait() == RuntimeExit.COMPLETED
    assert last_word(read_events(runtime.folder)).status == "completed"
    assert not runtime.socket_path.exists()


def test_a_killed_runtime_leaves_a_valid_beginning_of_every_stream(launch: Launch) -> None:
    runtime = launch(endless())
    runtime.wait_for(b'"trial_finished"')
    os.kill(runtime.process.pid, signal.SIGKILL)
    assert runtime.wait() == -signal.SIGKILL
    *whole, torn = (runtime.folder / "events.jsonl").read_bytes().split(b"\n")
    events = [parse_event(line) for line in whole]
    if torn:
        with pytest.raises(EventLineError):
            parse_event(torn)
    for stream in (Stream.CONTROL, Stream.SAMPLES, Stream.LOG):
        numbers = [event.seq for event in events if stream_of(event) is stream]
        assert numbers == list(range(1, len(numbers) + 1))
        assert numbers
    assert not of_type(events, "runtime_finished")


@pytest.mark.parametrize("by", ["directive", "signal"])
def test_a_cancelled_runtime_ends_its_agents_its_trial_and_itself(launch: Launch, by: str) -> None:
    runtime = launch(endless())
    runtime.wait_for(b"token_emitted")
    if by == "directive":
        write_lease(runtime.folder, 60, "cancel")
    else:
        runtime.process.terminate()
    assert runtime.wait() == RuntimeExit.CANCELLED
    events = read_events(runtime.folder)
    finished = last_word(events)
    assert (finished.status, finished.reason) == ("cancelled", FailureReason.CANCELLED)
    assert len(of_type(events, "trial_started")) == len(of_type(events, "trial_finished"))
    running = {(event.agent, event.call, event.trial) for event in of_type(events, "call_arrived")}
    ended = {(event.agent, event.call, event.trial) for event in of_type(events, "call_finished")}
    assert running == ended


def test_past_its_lease_a_runtime_stops_by_itself(launch: Launch) -> None:
    runtime = launch(endless())
    runtime.wait_for(b"token_emitted")
    write_lease(runtime.folder, 0.0)
    assert runtime.wait() == RuntimeExit.LEASE_EXPIRED
    finished = last_word(read_events(runtime.folder))
    assert (finished.status, finished.reason) == ("failed", FailureReason.LEASE_EXPIRED)


def test_a_runtime_whose_step_hangs_past_its_lease_is_ended_by_its_watchdog(
    tmp_path: Path, tiny_model: Path, socket_path: Path
) -> None:
    folder = attempt_folder(tmp_path, endless())
    runtime = Runtime(folder, tiny_model, socket_path, ("-c", _HANGING_RUNTIME))
    try:
        runtime.wait_for(b'"stage":"weights"')
        write_lease(folder, 0.0)
        assert runtime.wait() == RuntimeExit.LEASE_EXPIRED
    finally:
        runtime.kill()
    assert last_word(read_events(folder)).reason is FailureReason.LEASE_EXPIRED


# The fault is put in here: a forward pass that never comes back, as a kernel that hangs would not.
_HANGING_RUNTIME = """
import sys, time
from runtime.measured import watchdog
from runtime.model.llama import LlamaModel
watchdog.Watchdog.__init__.__defaults__ = (0.1, 0.2)
LlamaModel.forward = lambda self, batch, kv: time.sleep(600)
from runtime.measured.cli import main
sys.exit(main(sys.argv[1:]))
"""
