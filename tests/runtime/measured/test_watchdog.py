import threading
from pathlib import Path

import pytest

from runtime.errors import LeaseExpiredError
from runtime.measured.errors import AttemptFolderError, CancelledError
from runtime.measured.watchdog import Watchdog, read_lease
from tests.fakes.attempt_specs import write_lease

POLL_S = 0.01


def no_hang() -> None:
    raise AssertionError("nothing hangs here")


def test_a_valid_lease_lets_the_engine_work(tmp_path: Path) -> None:
    write_lease(tmp_path, 60)
    watchdog = Watchdog(tmp_path / "lease.json", no_hang, POLL_S)
    watchdog.check()
    watchdog.wait(0.01)
    watchdog.close()


def test_past_the_deadline_the_engine_must_stop(tmp_path: Path) -> None:
    write_lease(tmp_path, 0.05)
    watchdog = Watchdog(tmp_path / "lease.json", no_hang, POLL_S)
    with pytest.raises(LeaseExpiredError):
        watchdog.wait(60)
    watchdog.close()


def test_a_renewal_is_seen(tmp_path: Path) -> None:
    write_lease(tmp_path, 0.3)
    watchdog = Watchdog(tmp_path / "lease.json", no_hang, POLL_S)
    write_lease(tmp_path, 60)
    watchdog.wait(0.5)
    watchdog.close()


def write_ttl(folder: Path, ttl_s: float, renewal: int) -> None:
    beside = folder / "lease.new"
    beside.write_text(f'{{"deadline_mono_ns": 0, "ttl_s": {ttl_s}, "renewal": {renewal}}}')
    beside.rename(folder / "lease.json")


def test_a_lease_of_another_machine_runs_from_the_first_look_at_its_renewal(tmp_path: Path) -> None:
    write_ttl(tmp_path, 0.3, 1)
    watchdog = Watchdog(tmp_path / "lease.json", no_hang, POLL_S)
    write_ttl(tmp_path, 60, 1)
    with pytest.raises(LeaseExpiredError):
        watchdog.wait(60)
    watchdog.close()


def test_a_new_renewal_of_another_machine_moves_the_deadline(tmp_path: Path) -> None:
    write_ttl(tmp_path, 0.3, 1)
    watchdog = Watchdog(tmp_path / "lease.json", no_hang, POLL_S)
    write_ttl(tmp_path, 60, 2)
    watchdog.wait(0.5)
    watchdog.close()


def test_the_directive_cancel_ends_a_wait_at_once(tmp_path: Path) -> None:
    write_lease(tmp_path, 60)
    watchdog = Watchdog(tmp_path / "lease.json", no_hang, POLL_S)
    threading.Timer(0.05, lambda: write_lease(tmp_path, 60, "cancel")).start()
    with pytest.raises(CancelledError):
        watchdog.wait(60)
    watchdog.close()


def test_a_signal_handler_can_cancel(tmp_path: Path) -> None:
    write_lease(tmp_path, 60)
    watchdog = Watchdog(tmp_path / "lease.json", no_hang, POLL_S)
    watchdog.cancel()
    with pytest.raises(CancelledError):
        watchdog.check()
    watchdog.close()


@pytest.mark.parametrize("text", ["", "{", '{"deadline_mono_ns": -1}'])
def test_a_lease_that_becomes_unreadable_leaves_the_last_deadline_in_force(tmp_path: Path, text: str) -> None:
    write_lease(tmp_path, 0.2)
    watchdog = Watchdog(tmp_path / "lease.json", no_hang, POLL_S)
    (tmp_path / "lease.json").write_text(text)
    watchdog.check()
    with pytest.raises(LeaseExpiredError):
        watchdog.wait(60)
    watchdog.close()


def test_an_engine_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    write_lease(tmp_path, 0.0)
    hung = threading.Event()
    watchdog = Watchdog(tmp_path / "lease.json", hung.set, POLL_S, hang_s=0.02)
    assert hung.wait(30)
    watchdog.close()


def test_an_engine_that_has_ended_does_not_hang(tmp_path: Path) -> None:
    write_lease(tmp_path, 0.0)
    before = set(threading.enumerate())
    watchdog = Watchdog(tmp_path / "lease.json", no_hang, POLL_S, hang_s=60)
    (watching,) = set(threading.enumerate()) - before
    watchdog.close()
    assert not watching.is_alive()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read"),
        ("{", "not valid"),
        ('{"deadline_mono_ns": 1, "x": 2}', "x: Extra inputs"),
        ('{"deadline_mono_ns": 1, "directive": "pause"}', "directive"),
    ],
)
def test_there_is_no_work_without_a_lease(tmp_path: Path, text: str | None, problem: str) -> None:
    if text is not None:
        (tmp_path / "lease.json").write_text(text)
    with pytest.raises(AttemptFolderError, match=problem):
        read_lease(tmp_path / "lease.json")
