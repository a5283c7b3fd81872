"""Rounds: arms take turns, disturbed runs are repeated up to a bound, and who is asked to stop stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contract.bench import BenchRequest
from runtime.bench.recording import WITHOUT_EVENTS
from runtime.bench.report import wanted_runs
from runtime.bench.session import BenchSession, Measured
from runtime.errors import BadAttemptSpecError, ContextOverflowError
from runtime.measured.errors import CancelledError
from tests.fakes.machine_use import FakeMachine
from tests.runtime.bench.conftest import MakeRequest, small_work


@contextmanager
def session_of(request: BenchRequest, folder: Path, told: list[str] | None = None) -> Iterator[BenchSession]:
    said = [] if told is None else told
    session = BenchSession(request, Path(request.model), folder, said.append)
    try:
        yield session
    finally:
        session.close()


def measure(request: BenchRequest, folder: Path, told: list[str] | None = None) -> Measured:
    with session_of(request, folder, told) as session:
        return session.measure(request.workload, wanted_runs(request), lambda _: None)


def test_arms_take_turns_and_the_order_turns_round(
    make_request_for: MakeRequest, machine: FakeMachine, tmp_path: Path
) -> None:
    request = make_request_for(
        repeats={"serial": 1, "serial_cached": 2, "paged": 2}, without_events_repeats=2
    )
    measured = measure(request, tmp_path)
    order = [(run.round, run.arm) for run in measured.runs]
    first = ["serial", "serial-cached", "paged", WITHOUT_EVENTS]
    assert order == [(1, arm) for arm in first] + [(2, arm) for arm in first[:0:-1]]
    assert list(tmp_path.iterdir()) == []


def test_disturbed_runs_are_repeated_up_to_a_bound(
    make_request_for: MakeRequest, machine: FakeMachine, tmp_path: Path
) -> None:
    machine.others_percent = 40.0
    request = make_request_for(
        repeats={"paged": 1}, without_events_repeats=0, extra_rounds=2, quiet_wait_s=0.01
    )
    told: list[str] = []
    measured = measure(request, tmp_path, told)
    assert [run.arm for run in measured.runs] == ["paged"] * 3
    assert all(run.others_cpu_percent == pytest.approx(40.0) for run in measured.runs)
    assert any("not quiet" in line for line in told)


def test_a_run_without_events_has_a_wall_time_and_nothing_else(
    make_request_for: MakeRequest, machine: FakeMachine, tmp_path: Path
) -> None:
    measured = measure(make_request_for(repeats={"paged": 1}), tmp_path)
    with_events, without = measured.runs
    assert with_events.events.facts.calls
    assert without.arm == WITHOUT_EVENTS
    assert without.events.facts.completed
    assert (without.events.facts.calls, without.events.decode_steps) == ((), [])


def test_a_session_that_is_asked_to_stop_measures_nothing_more(
    make_request_for: MakeRequest, machine: FakeMachine, tmp_path: Path
) -> None:
    request = make_request_for()
    with session_of(request, tmp_path) as session:
        session.cancel()
        with pytest.raises(CancelledError):
            session.measure(request.workload, wanted_runs(request), lambda _: None)


def test_a_session_ends_at_its_limit(
    make_request_for: MakeRequest, machine: FakeMachine, tmp_path: Path
) -> None:
    with pytest.raises(BadAttemptSpecError, match="limit_s"):
        measure(make_request_for(limit_s=0.000_001), tmp_path)


def test_work_that_the_model_cannot_hold_is_refused_by_name(
    make_request_for: MakeRequest, machine: FakeMachine, tmp_path: Path
) -> None:
    request = make_request_for(workload=small_work(prefix_tokens=600).model_dump())
    with pytest.raises((BadAttemptSpecError, ContextOverflowError), match=r"512|context"):
        measure(request, tmp_path)
