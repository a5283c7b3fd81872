"""Lines of a runtime: parsed once, in order, holes found and counted."""

import json
from pathlib import Path

import pytest

from contract.events import EventRefused
from contract.events.envelope import Stream
from contract.failures import FailureReason
from device_agent.collect.framing import TooLong
from device_agent.collect.intake import Intake, LinkBrokenError
from device_agent.collect.spool import Spool
from device_agent.floor.errors import SpoolFullError
from tests.fakes.lines import ATTEMPT_ID, line, opened

C, S, L, A = Stream.CONTROL, Stream.SAMPLES, Stream.LOG, Stream.DEVICE_AGENT


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool.sqlite", 1 << 30)


@pytest.fixture
def intake(spool: Spool) -> Intake:
    return Intake(spool, ATTEMPT_ID)


def control(seq: int, **fields: object) -> bytes:
    return json.dumps({"seq": seq, "t_mono_ns": 1, **fields}).encode()


def test_interleaved_streams_are_sorted_out(spool: Spool, intake: Intake) -> None:
    intake.from_socket([line(C, 1), line(L, 1), line(C, 2), line(S, 1), line(S, 2), line(L, 2)])
    assert spool.last_seqs() == {C: 2, L: 2, S: 2}


def test_socket_and_file_together_bring_each_event_once(spool: Spool, intake: Intake) -> None:
    intake.from_socket([line(C, 1), line(C, 2)])
    intake.from_file([line(C, 1), line(C, 2), line(C, 3)], 300)
    intake.from_socket([line(C, 2), line(C, 3), line(C, 4)])
    assert spool.last_seqs() == {C: 4}
    assert spool.file_offset() == 300
    assert intake.progress.invalid == ""


@pytest.mark.parametrize("wrong", [b"no json", line(C, 4)], ids=["unparsable", "a gap"])
def test_the_socket_is_left_at_what_cannot_come_next_and_the_rest_is_kept(
    spool: Spool, intake: Intake, wrong: bytes
) -> None:
    with pytest.raises(LinkBrokenError):
        intake.from_socket([line(C, 1), line(C, 2), wrong, line(C, 3)])
    assert spool.last_seqs() == {C: 2}
    assert intake.progress.invalid == ""
    intake.from_file([line(C, 1), line(C, 2), line(C, 3)], 1)
    assert spool.last_seqs() == {C: 3}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (b"no json", ""),
        (control(2, type="unknown"), ""),
        (control(2, type="host_sampled", others_cpu_percent=1, disk_free_bytes=1, open_files=1), "only the"),
        (opened(C, seq=2), "begins with stream_opened"),
        (opened(S, contract_version="0.1"), "is not known here"),
        (opened(S, attempt_id="att_01ARZ3NDEKTSV4RRFFQ69G5FAW"), "another attempt"),
        (TooLong(300_000), "300000 bytes"),
    ],
)
def test_a_line_of_the_file_that_is_no_event_of_this_attempt_is_told(
    spool: Spool, intake: Intake, wrong: bytes | TooLong, told: str
) -> None:
    intake.from_file([line(C, 1), wrong], 1)
    (refused,) = spool.events(A, "event_refused")
    assert isinstance(refused, EventRefused)
    assert refused.reason is FailureReason.EVENTS_INVALID
    assert told in refused.detail
    assert intake.progress.invalid == refused.detail


def test_after_a_hole_the_stream_ends_and_what_follows_is_counted(spool: Spool, intake: Intake) -> None:
    intake.from_file([line(C, 1), line(S, 1), line(C, 3), line(C, 4), line(S, 2)], 1)
    intake.from_file([line(C, 5)], 2)
    assert spool.last_seqs() == {C: 1, S: 2, A: 1}
    assert spool.dropped() == {C: 3}


def test_a_flood_of_refused_lines_is_told_a_few_times_only(spool: Spool, intake: Intake) -> None:
    for offset in range(10):
        intake.from_file([b"?"] * 10, offset)
    assert len(spool.events(A, "event_refused")) == 20


def test_progress_is_the_same_after_a_restart(spool: Spool, intake: Intake) -> None:
    intake.from_file(
        [
            line(C, 1),
            control(2, type="runtime_stage", stage="ready", duration_ns=1),
            control(3, type="trial_started", trial=1, arm="paged", pair=1, warmup=False),
            control(4, type="trial_finished", trial=1, status="completed"),
            control(5, type="runtime_finished", status="completed"),
            b"?",
        ],
        1,
    )
    again = Intake(spool, ATTEMPT_ID).progress
    now = intake.progress
    assert (again.ready, again.trials_done, again.finished, again.invalid) == (
        now.ready,
        now.trials_done,
        now.finished,
        now.invalid,
    )
    assert again.ready
    assert (again.trials_done, again.trial) == (1, None)
    assert again.finished is not None


def test_the_trial_that_runs_is_known_until_it_ends(intake: Intake) -> None:
    intake.from_socket([line(C, 1), control(2, type="trial_started", trial=1, arm="a", pair=1, warmup=False)])
    assert intake.progress.trial == 1
    intake.from_socket([control(3, type="trial_finished", trial=1, status="completed")])
    assert intake.progress.trial is None


def test_a_full_disk_loses_nothing_the_same_lines_are_taken_later(spool: Spool, intake: Intake) -> None:
    many = [line(L, seq, "z" * 200) for seq in range(1, 300)]
    spool.limit_pages(1)
    with pytest.raises(SpoolFullError):
        intake.from_file(many, 1)
    spool.limit_pages(1_000_000)
    intake.from_file(many, 1)
    assert spool.last_seqs() == {L: 299}
