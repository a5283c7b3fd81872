"""What a device leaves when it kills an app, or the app crashes: reports, lines of its log, nothing."""

import asyncio
import json
from typing import Any

import pytest
from pymobiledevice3.services.crash_reports import CrashReportsManager
from pymobiledevice3.services.os_trace import OsTraceService

from contract.ios_app import BUNDLE_ID
from tests.device_agent.virtual.fleet import Fleet
from tests.device_agent.virtual.mobile_client import environment, instruments_of, lockdown_of, run


async def launch(lockdown: Any, **plan: Any) -> int:
    async with instruments_of(lockdown) as (_, control):
        return int(await control.launch(BUNDLE_ID, environment=environment(json.dumps(plan))))


async def listed(lockdown: Any) -> list[str]:
    async with CrashReportsManager(lockdown) as reports:
        return [str(path) for path in await reports.ls("/", depth=-1)]


async def report(lockdown: Any, *, flush: bool = False) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """(path, header, body) of the one report that there is, once it is there."""
    for _ in range(200):
        if flush:
            mover = await lockdown.start_lockdown_service("com.apple.crashreportmover")
            assert await mover.recvall(5) == b"ping\0"
            await mover.close()
        async with CrashReportsManager(lockdown) as reports:
            paths = [path for path in await reports.ls("/", depth=-1) if path.endswith(".ips")]
            if paths:
                (path,) = paths
                text = (await reports.afc.get_file_contents(path)).decode()
                first, _, rest = text.partition("\n")
                return path, json.loads(first), json.loads(rest)
        await asyncio.sleep(0.05)
    raise AssertionError("no report came")


def victims(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [process for process in body["processes"] if "reason" in process]


def test_an_app_above_its_limit_is_killed_and_reported_with_its_footprint(fleet: Fleet) -> None:
    udid = fleet.take("16.7")
    limit_bytes = 80 << 20
    fleet.fault(udid, "memory-limit", limit_bytes=limit_bytes)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            pid = await launch(lockdown, grow_bytes=200 << 20)
            path, header, body = await report(lockdown)
            assert path.startswith("/JetsamEvent-")
            assert header["bug_type"] == "298"
            assert header["virtual"] is True
            (victim,) = victims(body)
            assert (victim["pid"], victim["name"], victim["reason"]) == (pid, "Runner", "per-process-limit")
            assert victim["rpages"] * body["memoryStatus"]["pageSize"] > limit_bytes
            assert body["largestProcess"] == "kernel_task", "the largest process is not the victim"

    run(scenario())
    assert fleet.wait_for(udid, lambda device: not device["apps"])


@pytest.mark.parametrize(
    ("mode", "folder", "needs_flush"),
    [("written", "/", False), ("pending", "/", True), ("retired", "/Retired/", False)],
)
def test_a_report_lies_where_it_was_ordered(fleet: Fleet, mode: str, folder: str, needs_flush: bool) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            await launch(lockdown)
            fleet.fault(udid, "jetsam", report=mode, report_delay_s=0.0)
            if needs_flush:
                await asyncio.sleep(0.2)
                assert await listed(lockdown) == []
            path, _, body = await report(lockdown, flush=needs_flush)
            assert path.rpartition("/")[0] + "/" == folder
            assert len(victims(body)) == 1

    run(scenario())


def test_a_report_can_name_another_pid_or_several_victims_or_be_missing(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            await launch(lockdown)
            fleet.fault(udid, "jetsam", report="missing", report_delay_s=0.0)
            await asyncio.sleep(0.2)
            assert await listed(lockdown) == []
            pid = await launch(lockdown)
            fleet.fault(udid, "jetsam", report="other-pid", report_delay_s=0.0)
            path, _, body = await report(lockdown)
            assert [(each["name"], each["pid"] == pid) for each in victims(body)] == [("Runner", False)]
            async with CrashReportsManager(lockdown) as reports:
                await reports.clear()
            pid = await launch(lockdown)
            fleet.fault(udid, "jetsam", report="several", report_delay_s=0.0)
            path, _, body = await report(lockdown)
            assert path
            assert len(victims(body)) == 3
            assert [each["pid"] for each in victims(body) if each["name"] == "Runner"] == [pid]

    run(scenario())


def test_under_pressure_another_process_dies_first(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            pid = await launch(lockdown)
            device = fleet.fault(udid, "pressure", app="survives")
            assert [app["pid"] for app in device["apps"]] == [pid]
            _, _, body = await report(lockdown)
            assert {each["name"] for each in victims(body)} == {"MobileSafari", "MobileMail"}
            assert any(each["pid"] == pid and "reason" not in each for each in body["processes"])
        fleet.fault(udid, "kill")

    run(scenario())


@pytest.mark.parametrize(
    ("fault", "namespace", "code"), [("crash", "SIGNAL", 11), ("watchdog", "FRONTBOARD", 0x8BADF00D)]
)
def test_a_crash_and_the_watchdog_leave_a_report_of_type_309(
    fleet: Fleet, fault: str, namespace: str, code: int
) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            pid = await launch(lockdown)
            fleet.fault(udid, fault)
            path, header, body = await report(lockdown)
            assert path.startswith("/Runner-")
            assert (header["bug_type"], header["bundleID"]) == ("309", BUNDLE_ID)
            assert (body["pid"], body["termination"]["namespace"]) == (pid, namespace)
            assert body["termination"]["code"] == code

    run(scenario())


def test_a_kill_from_outside_leaves_no_report(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            await launch(lockdown)
            fleet.fault(udid, "kill")
            await asyncio.sleep(0.5)
            assert await listed(lockdown) == []

    run(scenario())


def test_the_log_tells_of_the_kill_and_filters_by_pid(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def lines(lockdown: Any, pid: int, until: str) -> list[str]:
        seen: list[str] = []
        async with OsTraceService(lockdown) as log:
            async for entry in log.syslog(pid=pid):
                seen.append(f"{entry.pid} {entry.image_name} {entry.message}")
                if until in entry.message:
                    return seen
        raise AssertionError("the log ended")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            pid = await launch(lockdown, say="hello-from-the-app")
            own = await lines(lockdown, pid, "hello-from-the-app")
            assert all(line.startswith(f"{pid} Runner ") for line in own)
            fleet.fault(udid, "jetsam")
            everything = await lines(lockdown, -1, "Saved type '298")
            assert any(f"killing_specific_process pid {pid} [Runner]" in line for line in everything)
            assert "OSAnalytics" in everything[-1]

    run(scenario())
