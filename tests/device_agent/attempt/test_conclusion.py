"""The last events and the result of an attempt."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.agent_api import ResultRequest
from contract.events import RuntimeExited
from contract.events.envelope import Stream
from contract.failures import FAILURES, FailureReason
from contract.run_end import RunEnd
from device_agent.attempt.conclusion import conclude_attempt
from device_agent.attempt.resumption import open_spool
from device_agent.collect.intake import Progress
from device_agent.collect.spool import Arrivals, Spool
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.settings import AgentSettings
from device_agent.targets.port import ExitStatus
from tests.device_agent.floor.test_attempt_folder import grant

A, C = Stream.DEVICE_AGENT, Stream.CONTROL


class Ended:
    """A runtime process that has ended."""

    pid = 4711

    def __init__(self, status: ExitStatus, *, memory_kill: bool = False) -> None:
        self._status = status
        self._memory_kill = memory_kill

    def exit_status(self) -> ExitStatus:
        return self._status

    def terminate(self) -> None:
        raise AssertionError("it has ended")

    kill = terminate

    def end(self) -> RunEnd | None:
        return KILLED if self._memory_kill else None


KILLED = RunEnd.because(FailureReason.JETSAM, "out of memory", evidence=["a count rose"])


def concluded(
    folder: AttemptFolder, spool: Spool, process: Ended | None, stop: FailureReason | None = None
) -> ResultRequest:
    """The result of a runtime that was started."""
    folder.log_path.touch()
    because = RunEnd.because(stop) if stop is not None else None
    conclude_attempt(folder, spool, process, Progress(0), because)
    result = folder.result()
    assert result is not None
    return result


def exits(spool: Spool) -> list[RuntimeExited]:
    return [e for e in spool.events(A, "runtime_exited") if isinstance(e, RuntimeExited)]


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder.create(tmp_path, grant())


@pytest.fixture
def spool(folder: AttemptFolder, tmp_path: Path) -> Iterator[Spool]:
    spool = open_spool(folder, AgentSettings(home=tmp_path))
    yield spool
    spool.close()


def test_the_result_names_the_last_event_of_every_stream_there_is(
    folder: AttemptFolder, spool: Spool
) -> None:
    result = concluded(folder, spool, Ended(ExitStatus(1, None)))
    assert result.last_seq == spool.last_seqs() == {A: 2}
    assert result.fence == folder.grant().lease.fence


def test_a_result_is_written_once_and_its_stream_stays_closed(folder: AttemptFolder, spool: Spool) -> None:
    first = concluded(folder, spool, Ended(ExitStatus(1, None)))
    spool.take(Arrivals(dropped={C: 3}))
    assert concluded(folder, spool, Ended(ExitStatus(None, 9))) == first
    assert spool.last_seqs() == {A: 2}


def test_an_exit_seen_in_an_earlier_life_is_remembered(folder: AttemptFolder, spool: Spool) -> None:
    concluded(folder, spool, Ended(ExitStatus(7, None)))
    (folder.path / "result.json").unlink()
    assert concluded(folder, spool, None).reason is FailureReason.RUNTIME_EXIT
    assert [e.exit_code for e in exits(spool)] == [7]


def test_what_the_device_tells_of_a_kill_is_in_the_event_and_in_the_result(
    folder: AttemptFolder, spool: Spool
) -> None:
    result = concluded(folder, spool, Ended(ExitStatus(None, 9), memory_kill=True))
    assert [e.end for e in exits(spool)] == [KILLED]
    assert (result.outcome, result.reason) == ("failed", FailureReason.JETSAM)
    assert (result.confidence, result.evidence) == (KILLED.confidence, KILLED.evidence)


@pytest.mark.parametrize(
    ("signal", "reason"),
    [
        (6, FailureReason.APP_CRASH),
        (11, FailureReason.APP_CRASH),
        (9, FailureReason.KILLED_OUTSIDE),
        (15, FailureReason.KILLED_OUTSIDE),
    ],
)
def test_a_signal_of_its_own_fault_is_a_crash_and_one_that_somebody_sent_is_not(
    folder: AttemptFolder, spool: Spool, signal: int, reason: FailureReason
) -> None:
    result = concluded(folder, spool, Ended(ExitStatus(None, signal)))
    (exited,) = exits(spool)
    assert exited.end is not None
    assert (exited.signal, exited.end.reason, result.reason) == (signal, reason, reason)


def test_a_runtime_that_was_killed_from_outside_is_tried_again(folder: AttemptFolder, spool: Spool) -> None:
    result = concluded(folder, spool, Ended(ExitStatus(None, 9)))
    assert result.outcome == "errored"
    assert result.reason is not None
    assert FAILURES[result.reason].retryable


def test_a_signal_that_the_agent_sent_is_no_crash(folder: AttemptFolder, spool: Spool) -> None:
    ended = Ended(ExitStatus(None, 9), memory_kill=True)
    result = concluded(folder, spool, ended, FailureReason.RUN_TIMEOUT)
    assert [e.end for e in exits(spool)] == [None]
    assert result.outcome == "timed_out"


def test_the_end_of_the_log_is_in_the_detail_and_bounded(folder: AttemptFolder, spool: Spool) -> None:
    folder.log_path.write_bytes(b"\xff" * 100_000 + b"last words")
    assert concluded(folder, spool, Ended(ExitStatus(1, None))).detail.endswith("last words")


def test_a_log_of_any_bytes_gives_a_detail_that_the_controller_takes(
    folder: AttemptFolder, spool: Spool
) -> None:
    folder.log_path.write_bytes(b"\xff half a word \xed\xa0\x80 \x00 the end")
    result = concluded(folder, spool, Ended(ExitStatus(7, None)))
    assert "\0" not in result.detail
    assert result.detail.endswith("\ufffd the end")


def test_a_refusal_has_its_reason_and_no_exit(folder: AttemptFolder, spool: Spool) -> None:
    stop = RunEnd.because(FailureReason.MODEL_MISSING, "none")
    conclude_attempt(folder, spool, None, Progress(0), stop)
    result = folder.result()
    assert result is not None
    assert (result.outcome, result.reason, result.detail) == (
        "refused",
        FailureReason.MODEL_MISSING,
        "none",
    )
    assert exits(spool) == []
