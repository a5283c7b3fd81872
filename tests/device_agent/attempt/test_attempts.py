"""The real agent process, a real socket, a scripted runtime: how attempts end. One agent serves all."""

import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from contract.events import EventRefused, PhaseChanged, RuntimeExited
from contract.events.envelope import Stream
from contract.failures import FailureReason
from contract.jobs import Limits
from tests.fakes.agent_process import AgentProcess, alive
from tests.fakes.attempts import attempt_spec
from tests.fakes.controller import Attempt, FakeController
from tests.fakes.wire import served


@pytest.fixture(scope="module")
def controller() -> FakeController:
    return FakeController()


@pytest.fixture(scope="module")
def agent(controller: FakeController, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with served(controller) as url, AgentProcess(tmp_path_factory.mktemp("home"), url) as agent:
        yield agent


def assert_complete(attempt: Attempt) -> None:
    """Every stream has exactly the events 1 to last_seq."""
    assert attempt.result is not None
    for stream in attempt.streams:
        seqs = [event.seq for event in attempt.events(stream)]
        assert seqs == list(range(1, attempt.result.last_seq[stream] + 1))


def test_a_normal_attempt_succeeds_with_every_event_once(
    controller: FakeController, agent: AgentProcess
) -> None:
    spec = controller.submit(attempt_spec({"tokens": 50, "samples": 1, "logs": 1}))
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == ("succeeded", None)
    attempt = controller.attempts[spec.attempt_id]
    assert set(attempt.streams) == set(Stream)
    assert_complete(attempt)
    written = (agent.folder(spec.attempt_id) / "events.jsonl").read_bytes().splitlines()
    uploaded = [
        line for stream in Stream if stream is not Stream.DEVICE_AGENT for line in attempt.streams[stream]
    ]
    assert sorted(written) == sorted(uploaded)
    told = attempt.events(Stream.DEVICE_AGENT)
    assert [(e.exit_code, e.signal) for e in told if isinstance(e, RuntimeExited)] == [(0, None)]
    assert [e.phase for e in told if isinstance(e, PhaseChanged)] == ["preparing", "running", "uploading"]
    assert len(agent.starts(spec.attempt_id)) == 1


QUICK = {"prepare_s": 20.0, "run_s": 20.0, "upload_s": 20.0, "stall_s": 20.0}
ENDINGS: dict[str, tuple[dict[str, Any], dict[str, float], str, FailureReason | None]] = {
    "the runtime's own reason": ({"then": "fail"}, {}, "failed", FailureReason.BUDGET_TOO_SMALL),
    "a crash by a signal": ({"then": "signal"}, {}, "failed", FailureReason.APP_CRASH),
    "a kill that the agent did not send": (
        {"then": "signal", "code": int(signal.SIGKILL), "torn": True},
        {},
        "errored",
        FailureReason.KILLED_OUTSIDE,
    ),
    "an exit code": ({"then": "exit", "code": 7}, {}, "failed", FailureReason.RUNTIME_EXIT),
    "an exit without a last event": ({"then": "exit"}, {}, "failed", FailureReason.RUNTIME_EXIT),
    "a wrong command line": ({"then": "exit", "code": 2}, {}, "errored", FailureReason.AGENT_BUG),
    "the lease ran out": ({"then": "exit", "code": 4}, {}, "errored", FailureReason.LEASE_EXPIRED),
    "cancelled by itself": ({"then": "cancelled_by_itself"}, {}, "cancelled", FailureReason.CANCELLED),
    "a line that is not an event": ({"invalid_at": 3}, {}, "failed", FailureReason.EVENTS_INVALID),
    "a number left out": ({"skip_at": 3}, {}, "failed", FailureReason.EVENTS_INVALID),
    "half a line at the end": ({"torn": True}, {}, "succeeded", None),
    "no socket at all": ({"no_socket": True, "tokens": 20}, {}, "succeeded", None),
    "no event for too long": ({"then": "hang"}, {"stall_s": 0.5}, "failed", FailureReason.RUNTIME_STALLED),
    "never ready": ({"ready_s": 60}, {"prepare_s": 0.7}, "errored", FailureReason.PREPARE_TIMEOUT),
    "longer than allowed": (
        {"tokens": 1000, "token_s": 0.05},
        {"run_s": 0.6},
        "timed_out",
        FailureReason.RUN_TIMEOUT,
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_an_attempt_ends_as_its_runtime_ended(
    controller: FakeController, agent: AgentProcess, name: str
) -> None:
    fake, limits, outcome, reason = ENDINGS[name]
    spec = controller.submit(attempt_spec(fake, limits=Limits(**{**QUICK, **limits})))
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == (outcome, reason), result.detail
    assert_complete(controller.attempts[spec.attempt_id])
    assert not any(alive(pid) for pid in agent.starts(spec.attempt_id))


def test_a_crash_is_told_with_its_signal_and_the_end_of_the_log(
    controller: FakeController, agent: AgentProcess
) -> None:
    spec = controller.submit(attempt_spec({"then": "signal", "code": int(signal.SIGABRT)}))
    result = controller.result_of(spec)
    told = controller.attempts[spec.attempt_id].events(Stream.DEVICE_AGENT)
    assert [e.signal for e in told if isinstance(e, RuntimeExited)] == [signal.SIGABRT]
    assert "fake runtime starts" in result.detail


def test_a_stream_ends_before_a_hole_and_the_refused_line_is_told(
    controller: FakeController, agent: AgentProcess
) -> None:
    spec = controller.submit(attempt_spec({"tokens": 40, "skip_at": 10, "no_socket": True}))
    controller.result_of(spec)
    attempt = controller.attempts[spec.attempt_id]
    assert [getattr(event, "index", None) for event in attempt.events(Stream.CONTROL)][3:] == list(range(10))
    refused = [e for e in attempt.events(Stream.DEVICE_AGENT) if isinstance(e, EventRefused)]
    assert ["was due" in event.detail for event in refused] == [True]


def test_an_unknown_model_is_refused_and_nothing_is_started(
    controller: FakeController, agent: AgentProcess
) -> None:
    spec = controller.submit(attempt_spec(model="no-such-model"))
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == ("refused", FailureReason.MODEL_MISSING)
    assert "tiny-model" in result.detail
    assert controller.attempts[spec.attempt_id].renewals == 0
    assert agent.starts(spec.attempt_id) == []


@pytest.mark.parametrize(
    "fake", [{}, {"then": "hang", "ignore_term": True, "tokens": 1}], ids=["obeys", "ignores"]
)
def test_a_cancelled_runtime_is_asked_first_and_then_ended(
    controller: FakeController, agent: AgentProcess, fake: dict[str, Any]
) -> None:
    spec = controller.submit(attempt_spec({"tokens": 1000, "token_s": 0.02, **fake}))
    controller.wait(lambda: bool(agent.starts(spec.attempt_id)))
    controller.cancel.add(spec.attempt_id)
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == ("cancelled", FailureReason.CANCELLED)
    told = controller.attempts[spec.attempt_id].events(Stream.DEVICE_AGENT)
    (exited,) = [e for e in told if isinstance(e, RuntimeExited)]
    assert (exited.exit_code, exited.signal) == ((None, signal.SIGKILL) if fake else (3, None))


@pytest.mark.parametrize("told_by", ["abandon", "revoked"], ids=["the hello", "the renewal"])
def test_a_lease_that_the_controller_ended_ends_the_runtime(
    controller: FakeController, agent: AgentProcess, told_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ttl is so long that only the controller's word can be the cause."""
    monkeypatch.setattr(controller, "ttl_s", 600.0)
    spec = controller.submit(attempt_spec({"tokens": 1000, "token_s": 0.02}))
    controller.wait(lambda: bool(agent.starts(spec.attempt_id)))
    getattr(controller, told_by).add(controller.attempts[spec.attempt_id].lease.lease_id)
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == ("errored", FailureReason.LEASE_EXPIRED)


def test_thirty_attempts_leave_no_descriptor_and_no_process(
    controller: FakeController, agent: AgentProcess
) -> None:
    def serve(attempts: int) -> tuple[int, int]:
        specs = [controller.submit(attempt_spec({"tokens": 2})) for _ in range(attempts)]
        for spec in specs:
            assert controller.result_of(spec).outcome == "succeeded"
        seen = len(controller.hellos)
        controller.wait(lambda: len(controller.hellos) > seen + 1)
        process = psutil.Process(agent.running.pid)
        return controller.hellos[-1].health.open_files, len(process.children(recursive=True))

    files_before, _ = serve(3)
    files_after, children = serve(27)
    assert files_after <= files_before + 2
    assert children == 0
    assert not any(alive(pid) for pid in agent.runtime_pids())
