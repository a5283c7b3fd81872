"""The agent as a process: how it starts, what it says, when it ends and when it does not."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

from contract.failures import FailureReason
from device_agent.main import AgentExit
from tests.device_agent.conftest import StartAgent
from tests.fakes.agent_process import ROOT, AgentProcess, alive
from tests.fakes.attempts import attempt_spec
from tests.fakes.controller import FakeController
from tests.fakes.wire import served

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "device_agent", "--home", sys.argv[1]])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_the_first_hello_describes_this_machine_and_the_token_stays_private(
    start_agent: StartAgent, tmp_path: Path
) -> None:
    controller = FakeController()
    agent = start_agent(controller)
    controller.wait(lambda: bool(controller.hellos))
    (device,) = controller.hellos[0].devices
    assert device.ready
    assert "tiny-model" in device.models
    assert device.memory_bytes
    assert (tmp_path / "agent/host-device-id").read_text() == device.device_id
    assert controller.hellos[0].health.open_files > 0
    assert stat.S_IMODE((tmp_path / "agent/identity.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "agent").stat().st_mode) == 0o700
    os.kill(agent.running.pid, signal.SIGINT)
    assert agent.wait() == AgentExit.STOPPED


def test_sigterm_ends_runtimes_delivers_and_exits_with_zero(start_agent: StartAgent) -> None:
    controller = FakeController()
    spec = controller.submit(attempt_spec({"tokens": 10_000, "token_s": 0.02}))
    agent = start_agent(controller)
    controller.wait(lambda: bool(agent.starts(spec.attempt_id)))
    assert agent.stop() == AgentExit.STOPPED
    assert not alive(agent.starts(spec.attempt_id)[0])
    result = controller.attempts[spec.attempt_id].result
    assert result is not None
    assert (result.outcome, result.reason) == ("errored", FailureReason.AGENT_RESTARTED)


def test_an_agent_without_a_controller_waits_and_does_not_exit(tmp_path: Path) -> None:
    with AgentProcess(tmp_path, "http://127.0.0.1:9") as agent:
        end_s = time.monotonic() + 30
        while len(agent.log()) < 3:
            assert time.monotonic() < end_s
            time.sleep(0.05)
        assert agent.running.poll() is None
        assert agent.stop() == AgentExit.STOPPED
        assert {line["event"] for line in agent.log()} == {"enrolment_waits"}


def test_a_used_enrolment_token_ends_the_start_with_advice(tmp_path: Path) -> None:
    with served(FakeController()) as url, AgentProcess(tmp_path, url, enrollment_token="used") as agent:
        assert agent.wait() == AgentExit.NOT_ENROLLED
        assert "enrolment token" in agent.log()[-1]["advice"]


def test_a_revoked_agent_enrols_again_when_it_has_a_new_token(start_agent: StartAgent) -> None:
    controller = FakeController()
    start_agent(controller)
    controller.wait(lambda: bool(controller.hellos))
    with controller.lock:
        controller.tokens.clear()
        controller.enrollment_tokens.add("one-time")
    spec = controller.submit(attempt_spec({"tokens": 2}))
    assert controller.result_of(spec).outcome == "succeeded"


def test_a_second_agent_in_the_same_home_is_refused(start_agent: StartAgent, tmp_path: Path) -> None:
    controller = FakeController()
    first = start_agent(controller)
    controller.wait(lambda: bool(controller.hellos))
    second = AgentProcess(tmp_path, first.environment["DYNOFARM_CONTROLLER_URL"])
    with second:
        assert second.wait() == AgentExit.HOME_LOCKED
    assert first.running.poll() is None


def test_an_agent_may_end_with_its_parent(start_agent: StartAgent, tmp_path: Path) -> None:
    with served(FakeController()) as url:
        agent = AgentProcess(tmp_path, url, exit_with_parent=True)
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(tmp_path)],
            stdout=subprocess.PIPE,
            env=agent.environment,
            cwd=ROOT,
        )
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        end_s = time.monotonic() + 15
        while not (tmp_path / "agent/identity.json").exists():
            assert time.monotonic() < end_s
            time.sleep(0.05)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        while alive(pid):
            assert time.monotonic() < end_s
            time.sleep(0.05)


def test_an_agent_over_its_memory_budget_starts_itself_anew_between_attempts(start_agent: StartAgent) -> None:
    controller = FakeController()
    spec = controller.submit(attempt_spec({"tokens": 2}))
    agent = start_agent(controller, max_resident_bytes=16 << 20)
    pid = agent.running.pid
    assert controller.result_of(spec).outcome == "succeeded"
    controller.wait(lambda: [line["event"] for line in agent.log()].count("agent_starts") > 1)
    assert agent.running.poll() is None
    assert agent.running.pid == pid


def test_a_disk_below_its_floor_claims_nothing(start_agent: StartAgent) -> None:
    controller = FakeController()
    controller.submit(attempt_spec())
    start_agent(controller, disk_floor_bytes=1 << 60)
    controller.wait(lambda: len(controller.hellos) > 1)
    assert controller.claim_requests == 0
    assert controller.hellos[-1].devices[0].reasons == ["storage_host"]


def test_a_draining_agent_claims_nothing(start_agent: StartAgent) -> None:
    controller = FakeController()
    controller.drain = True
    controller.submit(attempt_spec())
    start_agent(controller)
    controller.wait(lambda: len(controller.hellos) > 1)
    assert controller.claim_requests == 0


def test_settled_attempts_are_removed_after_their_time(start_agent: StartAgent) -> None:
    controller = FakeController()
    spec = controller.submit(attempt_spec({"tokens": 2}))
    agent = start_agent(controller, keep_settled_s=0)
    controller.result_of(spec)
    controller.wait(lambda: not agent.folder(spec.attempt_id).exists())


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "device_agent", "--home", str(tmp_path), "--controller", "no address"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == AgentExit.USAGE
    assert "http://HOST:PORT" in done.stderr
