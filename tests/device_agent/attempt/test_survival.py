"""Kills, partitions and lost messages against the real agent process: nothing is lost,
nothing runs twice, and no runtime outlives its lease."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from contract.events import DeviceAgentRestarted, RuntimeExited
from contract.events.envelope import Stream
from contract.failures import FailureReason
from tests.device_agent.conftest import StartAgent
from tests.fakes.agent_process import AgentProcess, wait_until_dead
from tests.fakes.attempts import attempt_spec
from tests.fakes.controller import FakeController
from tests.fakes.wire import served


def short_lease() -> FakeController:
    return FakeController(ttl_s=2.0, renew_interval_s=0.4, margin_s=0.7)


def patient_lease() -> FakeController:
    """For a test that holds the runtime's end against the lease's: a busy machine is slow to see it."""
    return FakeController(ttl_s=4.0, renew_interval_s=0.8, margin_s=1.4)


def assert_exactly_once(controller: FakeController, attempt_id: str) -> None:
    attempt = controller.attempts[attempt_id]
    assert attempt.result is not None
    for stream, last_seq in attempt.result.last_seq.items():
        assert [event.seq for event in attempt.events(stream)] == list(range(1, last_seq + 1))


def tokens_of(controller: FakeController, attempt_id: str) -> list[int]:
    control = controller.attempts[attempt_id].events(Stream.CONTROL)
    return [event.index for event in control if event.type == "token_emitted"]


def running(controller: FakeController, attempt_id: str) -> Callable[[], bool]:
    """Whether some events of the attempt are there already."""

    def events_are_there() -> bool:
        attempt = controller.attempts.get(attempt_id)
        return attempt is not None and len(attempt.streams.get(Stream.CONTROL, [])) > 3

    return events_are_there


def test_a_killed_agent_adopts_its_runtime_and_delivers_every_event_once(start_agent: StartAgent) -> None:
    controller = FakeController(ttl_s=30.0)
    spec = controller.submit(attempt_spec({"tokens": 150, "token_s": 0.01, "samples": 1, "held": True}))
    agent = start_agent(controller)
    controller.wait(running(controller, spec.attempt_id))
    for _ in range(2):
        agent.kill()
        agent.start()
        seen = len(controller.hellos)
        controller.wait(lambda seen=seen: len(controller.hellos) > seen)
    agent.release(spec.attempt_id)
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == ("succeeded", None)
    assert tokens_of(controller, spec.attempt_id) == list(range(150))
    assert_exactly_once(controller, spec.attempt_id)
    assert len(agent.starts(spec.attempt_id)) == 1
    told = controller.attempts[spec.attempt_id].events(Stream.DEVICE_AGENT)
    assert [e.runtime_alive for e in told if isinstance(e, DeviceAgentRestarted)] == [True, True]


@pytest.mark.parametrize(
    ("then", "outcome", "reason"),
    [("complete", "succeeded", None), ("signal", "errored", FailureReason.AGENT_RESTARTED)],
)
def test_a_runtime_that_ended_while_the_agent_was_dead_is_judged_by_its_file(
    start_agent: StartAgent, then: str, outcome: str, reason: FailureReason | None
) -> None:
    controller = FakeController(ttl_s=10.0)
    spec = controller.submit(attempt_spec({"tokens": 30, "token_s": 0.02, "then": then}))
    agent = start_agent(controller)
    controller.wait(lambda: bool(agent.starts(spec.attempt_id)))
    agent.kill()
    wait_until_dead(agent.starts(spec.attempt_id)[0])
    agent.start()
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == (outcome, reason)
    assert tokens_of(controller, spec.attempt_id) == list(range(30))
    told = controller.attempts[spec.attempt_id].events(Stream.DEVICE_AGENT)
    assert [(e.exit_code, e.signal) for e in told if isinstance(e, RuntimeExited)] == [(None, None)]


def test_an_agent_killed_again_and_again_still_brings_the_attempt_home(start_agent: StartAgent) -> None:
    """Each start lives a little longer, so that every step between claim and acknowledgement is hit."""
    controller = FakeController(ttl_s=30.0)
    spec = controller.submit(attempt_spec({"tokens": 40, "token_s": 0.01, "samples": 1}))
    agent = start_agent(controller)
    controller.wait(lambda: spec.attempt_id in controller.attempts)
    for life_s in (0.0, 0.05, 0.1, 0.2):
        agent.kill()
        agent.start()
        seen = len(controller.requests)
        controller.wait(lambda seen=seen: len(controller.requests) > seen)
        time.sleep(life_s)
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == ("succeeded", None)
    assert_exactly_once(controller, spec.attempt_id)
    assert len(agent.starts(spec.attempt_id)) == 1
    assert len([lease for lease in controller.claims.values() if lease is not None]) == 1


def test_the_agent_outlives_a_controller_that_is_away_for_less_than_a_lease(start_agent: StartAgent) -> None:
    controller = FakeController()
    spec = controller.submit(attempt_spec({"tokens": 120, "token_s": 0.02}))
    agent = start_agent(controller)
    controller.wait(running(controller, spec.attempt_id))
    controller.faults = lambda method, path: "unavailable"
    time.sleep(1.5)
    controller.faults = lambda method, path: ""
    assert controller.result_of(spec).outcome == "succeeded"
    assert_exactly_once(controller, spec.attempt_id)
    assert agent.running.poll() is None


@pytest.mark.parametrize("delay_s", [0.0, 1.7], ids=["prompt answers", "slow answers"])
def test_a_partition_longer_than_the_lease_ends_the_runtime_before_the_lease_ends(
    start_agent: StartAgent, delay_s: float
) -> None:
    """With slow answers only a deadline that counts from the sending is early enough."""
    controller = patient_lease()
    controller.renewal_answer_delay_s = delay_s
    spec = controller.submit(attempt_spec({"then": "hang", "tokens": 20, "ignore_term": True}))
    agent = start_agent(controller)
    controller.wait(running(controller, spec.attempt_id))
    controller.faults = lambda method, path: "lose_request"
    (pid,) = agent.starts(spec.attempt_id)
    wait_until_dead(pid)
    assert time.monotonic() < controller.attempts[spec.attempt_id].expires_s
    controller.faults = lambda method, path: ""
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == ("errored", FailureReason.LEASE_EXPIRED)
    assert_exactly_once(controller, spec.attempt_id)


def test_a_runtime_stops_by_its_lease_when_the_agent_stays_dead(start_agent: StartAgent) -> None:
    controller = patient_lease()
    spec = controller.submit(attempt_spec({"tokens": 10_000, "token_s": 0.02}))
    agent = start_agent(controller)
    controller.wait(running(controller, spec.attempt_id))
    agent.kill()
    wait_until_dead(agent.starts(spec.attempt_id)[0])
    assert time.monotonic() < controller.attempts[spec.attempt_id].expires_s
    agent.start()
    result = controller.result_of(spec)
    assert result.outcome != "succeeded"
    assert_exactly_once(controller, spec.attempt_id)


def test_an_agent_that_was_stopped_longer_than_its_lease_says_that_the_host_slept(
    start_agent: StartAgent,
) -> None:
    controller = short_lease()
    spec = controller.submit(attempt_spec({"then": "hang", "tokens": 20}))
    agent = start_agent(controller)
    controller.wait(running(controller, spec.attempt_id))
    os.kill(agent.running.pid, signal.SIGSTOP)
    time.sleep(2.2)
    os.kill(agent.running.pid, signal.SIGCONT)
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == ("errored", FailureReason.HOST_SUSPENDED)


def test_lost_answers_change_nothing(start_agent: StartAgent) -> None:
    """Every second answer is lost after it took effect, so every write is done about twice."""
    controller = FakeController(ttl_s=20.0)
    count = iter(range(1_000_000))
    controller.faults = lambda method, path: "lose_answer" if next(count) % 2 and "enroll" not in path else ""
    specs = [controller.submit(attempt_spec({"tokens": 30, "samples": 1})) for _ in range(2)]
    agent = start_agent(controller)
    for spec in specs:
        assert controller.result_of(spec).outcome == "succeeded"
        assert_exactly_once(controller, spec.attempt_id)
        assert len(agent.starts(spec.attempt_id)) == 1
    assert len([lease for lease in controller.claims.values() if lease is not None]) == 2


def test_a_claim_whose_answer_never_came_is_asked_again_after_a_restart(start_agent: StartAgent) -> None:
    controller = FakeController(ttl_s=20.0)
    controller.faults = lambda method, path: "lose_answer" if path == "/device-agent/claims" else ""
    spec = controller.submit(attempt_spec({"tokens": 5}))
    agent = start_agent(controller)
    controller.wait(lambda: spec.attempt_id in controller.attempts)
    agent.kill()
    controller.faults = lambda method, path: ""
    agent.start()
    assert controller.result_of(spec).outcome == "succeeded"
    assert controller.fences == {controller.attempts[spec.attempt_id].lease.device_id: 1}


def test_a_controller_restored_from_a_backup_gets_what_it_lost_again(start_agent: StartAgent) -> None:
    controller = FakeController(ttl_s=20.0)
    controller.faults = lambda method, path: "unavailable" if path.endswith("/result") else ""
    spec = controller.submit(attempt_spec({"tokens": 30}))
    start_agent(controller)
    controller.wait(
        lambda: ("PUT", f"/device-agent/attempts/{spec.attempt_id}/result") in controller.requests
    )
    controller.restore_from_backup(spec.attempt_id, Stream.CONTROL, keep=5)
    controller.restore_from_backup(spec.attempt_id, Stream.DEVICE_AGENT, keep=0)
    controller.faults = lambda method, path: ""
    assert controller.result_of(spec).outcome == "succeeded"
    assert tokens_of(controller, spec.attempt_id) == list(range(30))
    assert_exactly_once(controller, spec.attempt_id)


def test_two_hosts_serve_two_devices_at_once(
    start_agent: StartAgent, tmp_path_factory: pytest.TempPathFactory
) -> None:
    controller = FakeController()
    controller.enrollment_tokens.add("another")
    specs = [controller.submit(attempt_spec({"tokens": 60, "token_s": 0.02})) for _ in range(2)]
    with (
        served(controller) as url,
        AgentProcess(tmp_path_factory.mktemp("other"), url, enrollment_token="another"),
    ):
        start_agent(controller)
        for spec in specs:
            assert controller.result_of(spec).outcome == "succeeded"
    assert len(controller.fences) == 2
