"""A controller, the real agent and emulated iPhones: what a test of the device path needs, in one place."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from contract.agent_api import DeviceReport
from contract.events.envelope import Stream
from contract.jobs import AttemptSpec, Limits
from tests.fakes.agent_process import AgentProcess
from tests.fakes.attempts import attempt_spec
from tests.fakes.controller import Attempt, FakeController
from tests.fakes.emulator import FAKE_APP, EmulatedDevices
from tests.fakes.wire import served

QUICK_LIMITS = Limits(prepare_s=40, run_s=60, upload_s=20, stall_s=6)
QUICK_AGENT = {
    "start_policy": json.dumps({"cool_down_s": 0.1, "settle_s": 0.1}),
    "device_sample_s": 0.3,
    "device_conditions_s": 0.5,
    "device_call_s": 3,
    "device_chunk_s": 4,
    "gather_s": 4,
    "reattach_s": 8,
    "preflight_s": 1,
    "preflight_retry_s": 0.4,
    "shutdown_s": 8,
}


class DeviceRig:
    """One agent with several devices. Times are short; the lease is long enough for a busy machine."""

    def __init__(self, controller: FakeController, devices: EmulatedDevices, agent: AgentProcess) -> None:
        self.controller = controller
        self.devices = devices
        self.agent = agent

    def submit(self, udid: str, limits: Limits = QUICK_LIMITS, **script: Any) -> AttemptSpec:
        """An attempt for that device; the fake app's script with 60 tokens in 1.2 s as its default."""
        told = {"tokens": 60, "token_s": 0.02, "samples": 1, **script}
        return self.controller.submit(attempt_spec(told, limits=limits), udid)

    def attempt(self, spec: AttemptSpec, timeout_s: float = 60.0) -> Attempt:
        """Once its result is there."""
        self.controller.result_of(spec, timeout_s)
        return self.controller.attempts[spec.attempt_id]

    def report(self, udid: str) -> DeviceReport | None:
        """As the agent told it last; None when it does not name the device."""
        hellos = self.controller.hellos
        return next((d for d in hellos[-1].devices if d.device_id == udid), None) if hellos else None

    def wait_for_report(
        self, udid: str, *, ready: bool | None = None, reason: str = "", timeout_s: float = 40.0
    ) -> DeviceReport:
        """Until the agent calls it ready, or names a reason that contains this text."""
        end_s = time.monotonic() + timeout_s
        while True:
            report = self.report(udid)
            if report is not None:
                said = any(reason in each for each in report.reasons) if reason else True
                if said and (ready is None or report.ready is ready):
                    return report
            assert time.monotonic() < end_s, (report, self.agent.log()[-15:])
            time.sleep(0.05)

    def wait_until_ready(self) -> None:
        """Every device."""
        for udid in self.devices.udids:
            self.wait_for_report(udid, ready=True)

    def heal(self, udid: str) -> None:
        """Take back every fault that a test may have played."""
        if not self.devices.view(udid).device_ids:
            self.devices.fault(udid, "attach")
        self.devices.fault(udid, "resume")
        self.devices.fault(udid, "clear")
        self.devices.fault(udid, "unlock")
        self.devices.fault(udid, "trust", answer="accept")
        self.devices.fault(udid, "fill", free_bytes=6 << 30)
        self.devices.fault(udid, "developer-mode", mode="on")
        self.devices.fault(udid, "image", image="mounted")
        self.devices.fault(udid, "battery", level_percent=90, is_charging=True)
        self.devices.fault(udid, "thermal", thermal_state="nominal", temperature_c=28.0)
        self.devices.fault(udid, "low-power", mode="off")
        self.devices.fault(udid, "provisioning", kind="valid")
        self.devices.fault(udid, "port-delay", delay_s=0.0)

    def lost(self, attempt: Attempt) -> list[bytes]:
        """Lines that the app wrote on its device and the controller does not have."""
        stored = {line for stream in Stream for line in attempt.streams.get(stream, [])}
        return [line for line in self.devices.written(attempt.lease.attempt_id) if line not in stored]

    def worker_pids(self) -> list[int]:
        """Of the workers that the agent runs."""
        children = psutil.Process(self.agent.running.pid).children(recursive=True)
        return [child.pid for child in children if "device_agent.ios_worker" in " ".join(child.cmdline())]


@contextmanager
def device_rig(
    place: Path, ios: Sequence[str], program: Sequence[str] = FAKE_APP, **settings: Any
) -> Iterator[DeviceRig]:
    """Everything up and every device ready; everything down and nothing left at the end."""
    controller = FakeController(ttl_s=20.0, renew_interval_s=1.0)
    with (
        EmulatedDevices(place / "devices", ios, program) as devices,
        served(controller) as url,
        AgentProcess(
            _made(place / "agent"),
            url,
            usbmux_address=devices.usbmuxd_socket,
            **{**QUICK_AGENT, **settings},
        ) as agent,
    ):
        rig = DeviceRig(controller, devices, agent)
        rig.wait_until_ready()
        yield rig


def _made(folder: Path) -> Path:
    os.makedirs(folder, exist_ok=True)
    return folder
