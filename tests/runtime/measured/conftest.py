"""An attempt run in this process, and what its events say."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from contract.events import Event, RuntimeFinished, Stream, parse_event
from contract.jobs import AttemptSpec
from runtime.measured.cli import main
from runtime.measured.emit import stream_of
from tests.fakes.attempt_specs import attempt_folder

Run = Callable[..., tuple[int, list[Event]]]


@pytest.fixture
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short: a Unix socket's path has room for about 100 bytes."""
    return tmp_path_factory.mktemp("s") / "e"


@pytest.fixture
def run(tmp_path: Path, tiny_model: Path, socket_path: Path) -> Run:
    """Runs an attempt in this process: exit code and events."""

    def run_attempt(spec: AttemptSpec, model: Path = tiny_model) -> tuple[int, list[Event]]:
        folder = attempt_folder(tmp_path, spec)
        return start(folder, model, socket_path), read_events(folder)

    return run_attempt


def start(folder: Path, model: Path, socket_path: Path) -> int:
    """The runtime's own entry point; its exit code."""
    return main(["--attempt-dir", str(folder), "--model-path", str(model), "--socket", str(socket_path)])


def last_word(events: Sequence[Event]) -> RuntimeFinished:
    """The only runtime_finished, which ends the control stream."""
    (finished,) = of_type(events, "runtime_finished")
    assert isinstance(finished, RuntimeFinished)
    assert [event for event in events if stream_of(event) is Stream.CONTROL][-1] is finished
    return finished


def read_events(folder: Path) -> list[Event]:
    """Every event of the attempt; a line that the contract refuses raises."""
    return [parse_event(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]


def of_type(events: Sequence[Event], name: str) -> list[Event]:
    return [event for event in events if event.type == name]
