"""iOS version x fault in the middle of a run: classification, no lost event, the neighbours undisturbed."""

import os
import plistlib
import shutil
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from contract.events.envelope import Stream
from contract.failures import FAILURES, FailureReason
from tests.fakes.agent_process import alive, wait_until_dead
from tests.fakes.device_lanes import Cell, Played, play
from tests.fakes.device_rig import QUICK_LIMITS, DeviceRig, device_rig

pytestmark = [pytest.mark.phone, pytest.mark.timeout(1500 if os.environ.get("DEVICE_MATRIX") else 600)]

R = FailureReason
WHOLE = os.environ.get("DEVICE_MATRIX") == "whole"
# Each version goes another way to the developer services: over lockdown, or through the tunnel.
VERSIONS = ("16.7", "17.6", "18.5", "26.1", "27.0") if WHOLE else ("16.7", "18.5", "26.1")

CELLS = {
    "the cable is out for a moment": Cell(
        "detach", None, {"for_s": 1.0}, script={"tokens": 150}, events=("transport_lost",)
    ),
    "the cable is out and the app ends": Cell(
        "detach",
        R.DEVICE_DISCONNECTED,
        {"for_s": 1.0, "app": "ends"},
        script={"tokens": 400},
        events=("transport_lost",),
        in_short=False,
    ),
    "the cable stays out": Cell(
        "detach",
        R.DEVICE_DISCONNECTED,
        script={"tokens": 400},
        events=("transport_lost",),
        retried=True,
        keeps_events=False,
    ),
    "the cable is out in the middle of a push": Cell("detach", None, {"for_s": 1.0}, at="push:1000"),
    "the app crashes": Cell("crash", R.APP_CRASH, events=("runtime_exited",), retried=False),
    "memory": Cell("jetsam", R.JETSAM, events=("runtime_exited",), retried=False),
    "memory, and the report is not written": Cell(
        "jetsam", R.JETSAM, {"report": "missing"}, events=("runtime_exited",), in_short=False
    ),
    "memory, and the report comes after a flush": Cell(
        "jetsam", R.JETSAM, {"report": "pending"}, events=("runtime_exited",), in_short=False
    ),
    "memory, and the report is retired": Cell(
        "jetsam", R.JETSAM, {"report": "retired"}, events=("runtime_exited",), in_short=False
    ),
    "memory, with several victims": Cell(
        "jetsam", R.JETSAM, {"report": "several"}, events=("runtime_exited",), in_short=False
    ),
    "the system's watchdog": Cell("watchdog", R.WATCHDOG_KILLED, events=("runtime_exited",)),
    "killed from outside": Cell("kill", R.KILLED_OUTSIDE, events=("runtime_exited",)),
    "the app freezes": Cell("freeze", R.RUNTIME_STALLED, script={"tokens": 100}, retried=False),
    "the link is silent for a moment": Cell("stall", None, {"for_s": 2.0}, script={"tokens": 100}),
    "the device restarts": Cell(
        "reboot", R.DEVICE_REBOOTED, {"comes_back": "unlocked"}, script={"tokens": 400}
    ),
    "the tunnel dies": Cell("tunnel-death", None, script={"tokens": 150}),
    "the device is locked": Cell("lock", None, in_short=False),
    "the disk is full in the middle of a push": Cell(
        "fill", R.STORAGE_DEVICE, {"free_bytes": 0}, at="push:100", in_short=False
    ),
    "too hot": Cell(
        "thermal", R.THERMAL_ABORT, {"thermal_state": "critical"}, script={"tokens": 400}, retried=True
    ),
    "the profile does not hold": Cell("provisioning", R.SIGNING, {"kind": "untrusted"}, at=""),
    "the port opens late": Cell("port-delay", None, {"delay_s": 1.0}, at="", in_short=False),
    "a slow link": Cell("throttle", None, {"bytes_per_s": 200_000, "latency_s": 0.02}, in_short=False),
}
EVERYWHERE = {"memory", "the cable is out for a moment"}


def chosen(version: str) -> list[tuple[str, Cell]]:
    """In the short form each version gets its share of the faults, and a few that all get."""
    if WHOLE:
        return list(CELLS.items())
    short = [name for name, cell in CELLS.items() if cell.in_short and name not in EVERYWHERE]
    dealt = {*short[VERSIONS.index(version) :: len(VERSIONS)], *EVERYWHERE}
    return [(name, cell) for name, cell in CELLS.items() if name in dealt]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceRig]:
    with device_rig(tmp_path_factory.mktemp("rig"), VERSIONS) as rig:
        yield rig
        workers = rig.worker_pids()
        assert psutil.Process(rig.agent.running.pid).num_fds() < 60 + 10 * len(VERSIONS)
        assert rig.agent.stop() == 0
        assert not any(alive(pid) for pid in workers)
        for udid in rig.devices.udids:
            left = rig.devices.wait_until(udid, lambda view: view.counters.connections == 0).counters
            assert (left.assertions, left.tunnels) == (0, 0), udid
        sockets = list((rig.agent.home / "agent/sockets").glob("*"))
        assert sockets == []


@pytest.fixture(scope="module")
def played(rig: DeviceRig) -> dict[tuple[str, str], Played]:
    """By version and name. All devices at the same time, each one cell after the other."""
    version_of = dict(zip(rig.devices.udids, VERSIONS, strict=True))
    outcomes = play(rig, {udid: chosen(version) for udid, version in version_of.items()})
    return {(version_of[udid], name): outcome for (udid, name), outcome in outcomes.items()}


def cells() -> list[Any]:
    return [
        pytest.param(version, name, id=f"iOS {version}, {name}")
        for version in VERSIONS
        for name, _ in chosen(version)
    ]


@pytest.mark.parametrize(("version", "name"), cells())
def test_a_fault_in_a_run(
    rig: DeviceRig, played: dict[tuple[str, str], Played], version: str, name: str
) -> None:
    cell, outcome = CELLS[name], played[version, name]
    assert outcome.broke == ""
    assert outcome.attempt is not None
    result = outcome.attempt.result
    assert result is not None
    log = [line for line in rig.agent.log() if line.get("attempt_id") == outcome.attempt.lease.attempt_id]
    assert result.reason == cell.reason, (result, log)
    assert (result.outcome == "succeeded") is (cell.reason is None)
    if cell.retried is not None and cell.reason is not None:
        assert FAILURES[cell.reason].retryable is cell.retried
    told = [event.type for event in outcome.attempt.events(Stream.DEVICE_AGENT)]
    assert set(cell.events) <= set(told), told
    if cell.keeps_events:
        assert outcome.lost == 0


NAMED_STATES: dict[str, tuple[str, dict[str, Any], str]] = {
    "locked": ("lock", {}, "unlocked: unlock the iPhone"),
    "developer mode off": ("developer-mode", {"mode": "off"}, "developer_mode: Settings"),
    "image missing": ("image", {"image": "missing", "ticket": "lost"}, "developer_image: "),
    "full": ("fill", {"free_bytes": 1000}, "free_space: "),
    "battery low": ("battery", {"level_percent": 5, "is_charging": True}, "battery_low"),
    "hot": ("thermal", {"thermal_state": "serious"}, "hot"),
    "low-power mode": ("low-power", {"mode": "on"}, "low_power: switch off"),
}


@pytest.mark.parametrize("name", NAMED_STATES)
def test_a_device_that_cannot_be_used_says_why_and_comes_back(rig: DeviceRig, name: str) -> None:
    fault, options, reason = NAMED_STATES[name]
    udid, neighbour = rig.devices.udids[1], rig.devices.udids[0]
    rig.wait_until_ready()
    rig.devices.fault(udid, fault, **options)
    try:
        rig.wait_for_report(udid, ready=False, reason=reason)
        report = rig.report(neighbour)
        assert report is not None
        assert report.ready, report.reasons
    finally:
        # The devices are those of the whole file.
        rig.heal(udid)
    rig.wait_for_report(udid, ready=True)


def test_a_missing_image_is_mounted_from_this_host(rig: DeviceRig) -> None:
    images = rig.agent.home / "images"
    for name in (
        *("16.7/DeveloperDiskImage.dmg", "16.7/DeveloperDiskImage.dmg.signature"),
        *("Xcode_iOS_DDI_Personalized/Image.dmg", "Xcode_iOS_DDI_Personalized/Image.trustcache"),
    ):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        (images / name).write_bytes(b"image")
    (images / "Xcode_iOS_DDI_Personalized/BuildManifest.plist").write_bytes(plistlib.dumps({}))
    for udid in (rig.devices.udids[0], rig.devices.udids[1]):
        rig.wait_for_report(udid, ready=True)
        rig.devices.fault(udid, "image", image="missing", ticket="kept")
        rig.devices.wait_until(udid, lambda view: view.image_mounted)
        rig.wait_for_report(udid, ready=True)
    shutil.rmtree(images)


def test_trust_is_asked_for_once_and_a_denial_waits_for_a_replugging(rig: DeviceRig) -> None:
    udid = rig.devices.udids[1]
    rig.wait_for_report(udid, ready=True)
    rig.devices.fault(udid, "untrust")
    rig.devices.fault(udid, "detach")
    rig.devices.fault(udid, "attach")
    rig.wait_for_report(udid, ready=False, reason="tap Trust")
    rig.devices.fault(udid, "trust", answer="deny")
    rig.wait_for_report(udid, ready=False, reason="Don't Trust was tapped")
    rig.devices.fault(udid, "trust", answer="accept")
    rig.devices.fault(udid, "detach")
    rig.devices.fault(udid, "attach")
    rig.wait_for_report(udid, ready=True)


def test_a_device_that_never_answers_delays_no_other(rig: DeviceRig) -> None:
    sick, healthy = rig.devices.udids[:2]
    rig.wait_for_report(healthy, ready=True)
    rig.devices.fault(sick, "stall")
    rig.wait_for_report(sick, ready=False, reason="transport_lost")
    attempt = rig.attempt(rig.submit(healthy))
    assert attempt.result is not None
    assert attempt.result.outcome == "succeeded"
    rig.heal(sick)
    rig.wait_for_report(sick, ready=True)


def test_a_device_that_is_away_has_not_stalled(rig: DeviceRig) -> None:
    udid = rig.devices.udids[0]
    rig.wait_for_report(udid, ready=True)
    rig.devices.fault(udid, "detach", at="event:20", for_s=4.0)
    limits = QUICK_LIMITS.model_copy(update={"stall_s": 2.0})
    attempt = rig.attempt(rig.submit(udid, limits, tokens=300))
    assert attempt.result is not None
    assert attempt.result.outcome == "succeeded", attempt.result
    assert rig.lost(attempt) == []


def test_a_worker_that_is_killed_costs_an_attempt_nothing(rig: DeviceRig) -> None:
    udid = rig.devices.udids[0]
    rig.wait_for_report(udid, ready=True)
    spec = rig.submit(udid, tokens=150)
    rig.devices.wait_until(udid, lambda view: view.counters.apps == 1)
    for pid in rig.worker_pids():
        os.kill(pid, 9)
    attempt = rig.attempt(spec)
    assert attempt.result is not None
    assert attempt.result.outcome == "succeeded", attempt.result
    assert rig.lost(attempt) == []


def test_a_restarted_agent_goes_on_with_the_app_that_runs(rig: DeviceRig) -> None:
    udid = rig.devices.udids[-1]
    rig.wait_for_report(udid, ready=True)
    spec = rig.submit(udid, tokens=400)
    rig.devices.wait_until(udid, lambda view: view.counters.apps == 1)
    rig.controller.wait(lambda: "running" in rig.controller.attempts[spec.attempt_id].phases)
    workers = rig.worker_pids()
    rig.agent.kill()
    for pid in workers:
        wait_until_dead(pid)
    rig.agent.start()
    attempt = rig.attempt(spec)
    assert attempt.result is not None
    assert attempt.result.outcome == "succeeded", (attempt.result, rig.agent.log()[-12:])
    assert rig.lost(attempt) == []
    assert "device_agent_restarted" in [event.type for event in attempt.events(Stream.DEVICE_AGENT)]


def test_twins_block_each_other_and_the_wireless_second_entry_does_not(tmp_path: Any) -> None:
    with device_rig(tmp_path, ["16.7"]) as rig:
        (udid,) = rig.devices.udids
        rig.devices.fault(udid, "duplicate", kind="Network")
        spec = rig.submit(udid, tokens=5)
        assert rig.controller.result_of(spec).outcome == "succeeded"
        rig.devices.fault(udid, "duplicate", kind="clone")
        rig.wait_for_report(udid, ready=False, reason="two devices with this serial number")
