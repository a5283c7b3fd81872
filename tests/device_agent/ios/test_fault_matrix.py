"""iOS version x fault in the middle of a run: classification, no lost event, the neighbour undisturbed."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from contract.events.envelope import Stream
from contract.failures import FAILURES, FailureReason
from tests.fakes.device_rig import DeviceRig, device_rig

pytestmark = pytest.mark.phone

R = FailureReason
WHOLE = os.environ.get("DYNOFARM_DEVICE_MATRIX") == "whole"
VERSIONS = ("16.7", "18.5", "17.6", "26.1", "27.0") if WHOLE else ("16.7", "18.5")
# Two versions have different ways to the developer services: over lockdown, and through a tunnel.
SHORT = ("18.5",)


@dataclass(frozen=True)
class Cell:
    """A fault: when it is played, with what options, and what must come of it. reason None: it succeeds."""

    fault: str
    reason: FailureReason | None
    options: dict[str, Any] = field(default_factory=dict)
    at: str = "event:20"
    script: dict[str, Any] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    retried: bool | None = None
    in_short: bool = True


CELLS = {
    "the cable is out for a moment": Cell(
        "detach", None, {"for_s": 1.0}, script={"tokens": 150}, events=("transport_lost",)
    ),
    "the cable stays out": Cell(
        "detach",
        R.DEVICE_DISCONNECTED,
        script={"tokens": 400},
        events=("transport_lost",),
        retried=True,
    ),
    "the app crashes": Cell("crash", R.APP_CRASH, events=("app_crashed",), retried=False),
    "memory": Cell("jetsam", R.JETSAM, events=("jetsam_killed",), retried=False),
    "memory, and the report is not written": Cell(
        "jetsam", R.JETSAM, {"report": "missing"}, events=("jetsam_killed",), in_short=False
    ),
    "memory, and the report comes after a flush": Cell(
        "jetsam", R.JETSAM, {"report": "pending"}, events=("jetsam_killed",), in_short=False
    ),
    "memory, and the report is retired": Cell(
        "jetsam", R.JETSAM, {"report": "retired"}, events=("jetsam_killed",), in_short=False
    ),
    "memory, with several victims": Cell(
        "jetsam", R.JETSAM, {"report": "several"}, events=("jetsam_killed",), in_short=False
    ),
    "the system's watchdog": Cell("watchdog", R.WATCHDOG_KILLED, events=("app_crashed",)),
    "killed from outside": Cell("kill", R.KILLED_OUTSIDE, events=("app_crashed",)),
    "the app freezes": Cell("freeze", R.RUNTIME_STALLED, script={"tokens": 100}, retried=False),
    "the link is silent for a moment": Cell("stall", None, {"for_s": 2.0}, script={"tokens": 100}),
    "the device restarts": Cell(
        "reboot", R.DEVICE_REBOOTED, {"comes_back": "unlocked"}, script={"tokens": 400}
    ),
    "the tunnel dies": Cell("tunnel-death", None, script={"tokens": 150}),
    "the device is locked": Cell("lock", None, in_short=False),
    "too hot": Cell(
        "thermal", R.THERMAL_ABORT, {"thermal_state": "critical"}, script={"tokens": 400}, retried=True
    ),
    "the port opens late": Cell("port-delay", None, {"delay_s": 1.0}, at="", in_short=False),
    "a slow link": Cell("throttle", None, {"bytes_per_s": 200_000, "latency_s": 0.02}, in_short=False),
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceRig]:
    with device_rig(tmp_path_factory.mktemp("rig"), VERSIONS) as rig:
        yield rig
        assert rig.agent.stop() == 0
        for udid in rig.devices.udids:
            left = rig.devices.wait_until(udid, lambda view: view.counters.connections == 0).counters
            assert (left.assertions, left.tunnels) == (0, 0), udid


def cells() -> list[Any]:
    return [
        pytest.param(version, name, id=f"iOS {version}, {name}")
        for version in VERSIONS
        for name, cell in CELLS.items()
        if WHOLE
        or (version in SHORT and cell.in_short)
        or name in {"memory", "the cable is out for a moment"}
    ]


@pytest.mark.parametrize(("version", "name"), cells())
def test_a_fault_in_a_run(rig: DeviceRig, version: str, name: str) -> None:
    cell = CELLS[name]
    udid = rig.devices.udids[VERSIONS.index(version)]
    neighbour = rig.devices.udids[VERSIONS.index(version) - 1]
    rig.wait_for_report(udid, ready=True)
    rig.devices.fault(udid, cell.fault, at=cell.at or None, **cell.options)
    spec = rig.submit(udid, **cell.script)
    beside = rig.submit(neighbour)
    attempt = rig.attempt(spec)
    assert attempt.result is not None
    assert attempt.result.reason == cell.reason, (attempt.result, rig.agent.log()[-12:])
    assert attempt.result.outcome == ("succeeded" if cell.reason is None else attempt.result.outcome)
    if cell.retried is not None and cell.reason is not None:
        assert FAILURES[cell.reason].retryable is cell.retried
    told = [event.type for event in attempt.events(Stream.AGENT)]
    assert set(cell.events) <= set(told), told
    if cell.reason not in {R.DEVICE_DISCONNECTED, R.DEVICE_REBOOTED}:
        assert rig.lost(attempt) == []
    undisturbed = rig.attempt(beside)
    assert undisturbed.result is not None
    assert undisturbed.result.outcome == "succeeded", undisturbed.result
    assert rig.lost(undisturbed) == []
    rig.heal(udid)
    rig.wait_for_report(udid, ready=True)
    rig.devices.wait_until(udid, lambda view: view.counters.apps == 0, timeout_s=30)


Play = Callable[[DeviceRig, str], None]
NAMED_STATES: dict[str, tuple[str, dict[str, Any], str]] = {
    "locked": ("lock", {}, "unlocked: unlock the iPhone"),
    "developer mode off": ("developer-mode", {"mode": "off"}, "developer_mode: Settings"),
    "image missing": ("image", {"image": "missing", "ticket": "lost"}, "developer_image: "),
    "full": ("fill", {"free_bytes": 1000}, "free_space: "),
    "battery low": ("battery", {"level_percent": 5, "is_charging": True}, "battery_low"),
    "hot": ("thermal", {"thermal_state": "serious"}, "hot"),
    "low-power mode": ("low-power", {"mode": "on"}, "low_power: switch off"),
    "over Wi-Fi too": ("duplicate", {"kind": "Network"}, ""),
    "a twin": ("duplicate", {"kind": "clone"}, "two devices with this serial number"),
}


@pytest.mark.parametrize("name", NAMED_STATES)
def test_a_device_that_cannot_be_used_says_why_and_comes_back(rig: DeviceRig, name: str) -> None:
    fault, options, reason = NAMED_STATES[name]
    udid, neighbour = rig.devices.udids[1], rig.devices.udids[0]
    rig.wait_for_report(udid, ready=True)
    rig.devices.fault(udid, fault, **options)
    if reason:
        rig.wait_for_report(udid, ready=False, reason=reason)
    report = rig.report(neighbour)
    assert report is not None
    assert report.ready
    if fault == "duplicate":
        rig.devices.fault(udid, "detach")
        rig.devices.fault(udid, "attach")
    rig.heal(udid)
    rig.wait_for_report(udid, ready=True)


def test_a_worker_that_is_killed_costs_an_attempt_nothing(rig: DeviceRig) -> None:
    udid = rig.devices.udids[0]
    spec = rig.submit(udid, tokens=150)
    rig.devices.wait_until(udid, lambda view: view.counters.apps == 1)
    for pid in rig.worker_pids():
        os.kill(pid, 9)
    attempt = rig.attempt(spec)
    assert attempt.result is not None
    assert attempt.result.outcome == "succeeded", attempt.result
    assert rig.lost(attempt) == []


def test_a_restarted_agent_goes_on_with_the_app_that_runs(rig: DeviceRig) -> None:
    udid = rig.devices.udids[1]
    spec = rig.submit(udid, tokens=400)
    app = rig.devices.wait_until(udid, lambda view: view.counters.apps == 1).apps[0]
    rig.controller.wait(lambda: "running" in rig.controller.attempts[spec.attempt_id].phases)
    rig.agent.kill()
    rig.agent.start()
    attempt = rig.attempt(spec)
    assert attempt.result is not None
    assert attempt.result.outcome == "succeeded", (attempt.result, rig.agent.log()[-12:])
    assert rig.lost(attempt) == []
    assert "agent_restarted" in [event.type for event in attempt.events(Stream.AGENT)]
    assert app.pid not in [each.pid for each in rig.devices.view(udid).apps]
