"""The loops with several devices in one agent: parallel, and apart from each other's trouble."""

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.agent_api import DeviceReport, EnrollRequest
from contract.failures import FailureReason
from device_agent.client import ControllerClient
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.settings import AgentSettings
from device_agent.loop.loop import Agent
from device_agent.main import home_lock
from device_agent.targets.host.target import HostTarget
from device_agent.targets.port import RuntimeProcess, Target
from tests.fakes.agent_process import FAKE_RUNTIME
from tests.fakes.attempts import attempt_spec
from tests.fakes.controller import FakeController
from tests.fakes.wire import transport


def settings(home: Path) -> AgentSettings:
    chosen = AgentSettings.model_validate(
        {
            "home": home,
            "runtime_command": [sys.executable, str(FAKE_RUNTIME)],
            "tick_s": 0.02,
            "upload_interval_s": 0.02,
            "retry_first_s": 0.02,
            "retry_cap_s": 0.1,
            "disk_floor_bytes": 0,
            "shutdown_s": 5,
        }
    )
    with home_lock(chosen):
        (chosen.models_folder / "tiny-model.gguf").write_bytes(b"GGUF")
    return chosen


class Hanging(HostTarget):
    """A device whose library never comes back."""

    release = threading.Event()

    def report(self) -> DeviceReport:
        self.release.wait(60)
        raise OSError("released")


class Broken(HostTarget):
    """A device whose code has a bug when it starts a runtime."""

    def launch(self, folder: AttemptFolder, model_path: Path) -> RuntimeProcess:
        raise KeyError("a bug")


def serve(
    controller: FakeController, home: Path, kinds: list[type[HostTarget]], until: Callable[[], bool]
) -> list[Target]:
    """One agent with a target of each kind, in this process, until the condition holds."""
    chosen = settings(home)
    targets: list[Target] = [kind(settings(home / str(number))) for number, kind in enumerate(kinds)]

    async def run() -> None:
        client = ControllerClient("http://c", 5, transport=transport(controller))
        client.authorise((await client.enroll("one-time", EnrollRequest(agent_name="a"))).token)
        stop = asyncio.Event()
        serving = asyncio.create_task(Agent(client, chosen, targets).run(stop))
        await asyncio.to_thread(controller.wait, until)
        stop.set()
        await serving
        await client.close()

    asyncio.run(run())
    return targets


def test_two_devices_of_one_agent_run_at_the_same_time(tmp_path: Path) -> None:
    controller = FakeController()
    specs = [controller.submit(attempt_spec({"tokens": 5, "held": True})) for _ in range(2)]
    folders = [tmp_path / "agent/attempts" / spec.attempt_id for spec in specs]

    def both_started_then_done() -> bool:
        if all((folder / "starts").exists() for folder in folders):
            for folder in folders:
                (folder / "release").touch()
        return all(
            spec.attempt_id in controller.attempts and controller.attempts[spec.attempt_id].result is not None
            for spec in specs
        )

    serve(controller, tmp_path, [HostTarget, HostTarget], both_started_then_done)
    assert [controller.attempts[spec.attempt_id].state for spec in specs] == ["succeeded"] * 2
    assert list(controller.fences.values()) == [1, 1]


def test_a_device_that_hangs_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device_agent.loop.loop._REPORT_DEADLINE_S", 0.1)
    controller = FakeController()
    spec = controller.submit(attempt_spec({"tokens": 3}))
    before = threading.active_count()
    targets = serve(
        controller,
        tmp_path,
        [Hanging, HostTarget],
        lambda: bool(controller.attempts) and controller.attempts[spec.attempt_id].result is not None,
    )
    seen = {report.device_id for hello in controller.hellos for report in hello.devices}
    assert seen == {targets[1].device_id}
    hanging = [thread for thread in threading.enumerate() if "report of" in thread.name]
    assert len(hanging) == 1, f"{threading.active_count() - before} more threads"
    Hanging.release.set()


def test_a_bug_at_one_device_ends_its_attempt_and_nothing_else(tmp_path: Path) -> None:
    controller = FakeController()
    specs = [controller.submit(attempt_spec({"tokens": 3})) for _ in range(4)]

    def all_done() -> bool:
        done = [a for a in controller.attempts.values() if a.result is not None]
        return len(done) == len(specs)

    targets = serve(controller, tmp_path, [Broken, HostTarget], all_done)
    for attempt in controller.attempts.values():
        assert attempt.result is not None
        broken = attempt.lease.device_id == targets[0].device_id
        reason = FailureReason.AGENT_BUG if broken else None
        assert attempt.result.reason is reason, json.dumps(attempt.result.detail)
    assert targets[0].device_id in controller.fences


def test_a_disk_that_takes_no_file_makes_the_device_wait_and_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = FakeController()

    class Emptied(HostTarget):
        """A file stands where its agent's home was: nothing can be made there."""

        def report(self) -> DeviceReport:
            home = tmp_path / "agent"
            if home.is_dir():
                home.rename(tmp_path / "away")
                home.write_text("no folder")
            return super().report()

    controller.submit(attempt_spec())
    serve(controller, tmp_path, [Emptied], lambda: len(controller.hellos) >= 1)
    (device,) = controller.hellos[-1].devices
    assert (device.ready, device.reasons) == (False, ["storage_host"])
    assert controller.attempts == {}
    assert capsys.readouterr().out.count("disk_takes_nothing") == 1


def test_an_attempt_without_room_for_its_folder_is_given_back_with_the_reason(tmp_path: Path) -> None:
    controller = FakeController()

    class Filling(HostTarget):
        """The place of its attempts is taken once it is ready."""

        def report(self) -> DeviceReport:
            report = super().report()
            place = tmp_path / "agent/attempts"
            if place.is_dir():
                place.rmdir()
                place.write_text("no folder")
            return report

    spec = controller.submit(attempt_spec())
    serve(controller, tmp_path, [Filling], lambda: spec.attempt_id in controller.attempts)
    result = controller.result_of(spec)
    assert (result.outcome, result.reason) == ("errored", FailureReason.STORAGE_HOST)
