"""The last events and the result of an attempt."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contract.events import AppCrashed, JetsamKilled, RuntimeExited
from contract.events.envelope import Stream
from contract.failures import FailureReason
from device_agent.attempt.conclusion import Finding, conclude_attempt
from device_agent.attempt.resumption import open_spool
from device_agent.collect.intake import Progress
from device_agent.collect.spool import Arrivals, Spool
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.settings import AgentSettings
from device_agent.targets.port import Diagnosis, ExitStatus
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

    def diagnosis(self) -> Diagnosis | None:
        return Diagnosis(FailureReason.JETSAM, "out of memory", killed) if self._memory_kill else None


def killed(seq: int, t_mono_ns: int) -> JetsamKilled:
    return JetsamKilled(
        seq=seq,
        t_mono_ns=t_mono_ns,
        report_found=False,
        kill_reason="out of memory",
        process_name="runtime",
        pid=Ended.pid,
        evidence=["a count rose"],
    )


def finding(process: Ended | None, stop: FailureReason | None = None) -> Finding:
    return Finding(process=process, started=True, progress=Progress(0), stop=stop, refused=False, detail="")


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
    conclude_attempt(folder, spool, finding(Ended(ExitStatus(1, None))))
    result = folder.result()
    assert result is not None
    assert result.last_seq == spool.last_seqs() == {A: 2}
    assert result.fence == folder.grant().lease.fence


def test_a_result_is_written_once_and_its_stream_stays_closed(folder: AttemptFolder, spool: Spool) -> None:
    conclude_attempt(folder, spool, finding(Ended(ExitStatus(1, None))))
    first = folder.result()
    spool.take(Arrivals(dropped={C: 3}))
    conclude_attempt(folder, spool, finding(Ended(ExitStatus(None, 9))))
    assert folder.result() == first
    assert spool.last_seqs() == {A: 2}


def test_an_exit_seen_in_an_earlier_life_is_remembered(folder: AttemptFolder, spool: Spool) -> None:
    conclude_attempt(folder, spool, finding(Ended(ExitStatus(7, None))))
    (folder.path / "result.json").unlink()
    conclude_attempt(folder, spool, finding(None))
    result = folder.result()
    assert result is not None
    assert result.reason is FailureReason.RUNTIME_EXIT
    exits = [e for e in spool.events(A, "runtime_exited") if isinstance(e, RuntimeExited)]
    assert [e.exit_code for e in exits] == [7]


def test_what_the_device_tells_of_a_kill_is_an_event_and_the_reason(
    folder: AttemptFolder, spool: Spool
) -> None:
    conclude_attempt(folder, spool, finding(Ended(ExitStatus(None, 9), memory_kill=True)))
    (killed,) = spool.events(A, "jetsam_killed")
    assert isinstance(killed, JetsamKilled)
    assert (killed.report_found, killed.pid) == (False, Ended.pid)
    assert killed.evidence
    result = folder.result()
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", FailureReason.JETSAM)


@pytest.mark.parametrize("signal", [6, 9, 11])
def test_any_other_signal_is_a_crash(folder: AttemptFolder, spool: Spool, signal: int) -> None:
    conclude_attempt(folder, spool, finding(Ended(ExitStatus(None, signal))))
    (crashed,) = spool.events(A, "app_crashed")
    assert isinstance(crashed, AppCrashed)
    assert crashed.signal == signal


def test_a_signal_that_the_agent_sent_is_no_crash(folder: AttemptFolder, spool: Spool) -> None:
    ended = Ended(ExitStatus(None, 9), memory_kill=True)
    conclude_attempt(folder, spool, finding(ended, FailureReason.RUN_TIMEOUT))
    assert spool.events(A, "app_crashed", "jetsam_killed") == []
    result = folder.result()
    assert result is not None
    assert result.outcome == "timed_out"


def test_the_end_of_the_log_is_in_the_detail_and_bounded(folder: AttemptFolder, spool: Spool) -> None:
    folder.log_path.write_bytes(b"\xff" * 100_000 + b"last words")
    conclude_attempt(folder, spool, finding(Ended(ExitStatus(1, None))))
    result = folder.result()
    assert result is not None
    assert result.detail.endswith("last words")


def test_a_log_of_any_bytes_gives_a_detail_that_the_controller_takes(
    folder: AttemptFolder, spool: Spool
) -> None:
    folder.log_path.write_bytes(b"\xff half a word \xed\xa0\x80 \x00 the end")
    conclude_attempt(folder, spool, finding(Ended(ExitStatus(7, None))))
    result = folder.result()
    assert result is not None
    assert "\0" not in result.detail
    assert result.detail.endswith("\ufffd the end")


def test_a_refusal_has_its_reason_and_no_exit(folder: AttemptFolder, spool: Spool) -> None:
    refused = replace(finding(None, FailureReason.MODEL_MISSING), started=False, refused=True, detail="none")
    conclude_attempt(folder, spool, refused)
    result = folder.result()
    assert result is not None
    assert (result.outcome, result.reason, result.detail) == (
        "refused",
        FailureReason.MODEL_MISSING,
        "none",
    )
    assert spool.events(A, "runtime_exited") == []
