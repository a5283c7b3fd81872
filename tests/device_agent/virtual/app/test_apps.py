"""The app as a child process: launch, stream, output, every way to end, as pymobiledevice3 sees it."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pymobiledevice3.dtx.exceptions import DTXNsError
from pymobiledevice3.services.dvt.instruments.dvt_provider import DvtProvider
from pymobiledevice3.services.dvt.instruments.sysmontap import Sysmontap

from contract.ios_app import BUNDLE_ID, RunFile
from tests.device_agent.virtual.fleet import Fleet
from tests.device_agent.virtual.mobile_client import (
    ObservedProcesses,
    connect_to_app,
    documents_of,
    environment,
    instruments_of,
    lockdown_of,
    run,
    tunnel_of,
)

SELECTOR = "launchSuspendedProcessWithDevicePath:bundleIdentifier:environment:arguments:options:"
LAUNCH = {"StartSuspendedKey": False, "KillExisting": True}


@asynccontextmanager
async def launched(udid: str, **plan: Any) -> AsyncIterator[tuple[Any, int, Any]]:
    """(lockdown, pid, queue of exits) of an app that runs."""
    async with (
        lockdown_of(udid) as lockdown,
        DvtProvider(lockdown) as connection,
        ObservedProcesses(connection) as processes,
    ):
        arguments = ("", BUNDLE_ID, environment(json.dumps(plan)), [], LAUNCH)
        pid = await processes.service.invoke(SELECTOR, *arguments)
        yield lockdown, pid, processes.service.exits


async def first_line(lockdown: Any) -> bytes:
    stream = await connect_to_app(lockdown)
    try:
        return bytes(await stream.reader.readline())
    finally:
        await stream.close()


async def ended(exits: Any) -> Any:
    return await asyncio.wait_for(exits.get(), 10.0)


def test_an_app_is_told_its_folders_and_its_output_is_seen_and_kept(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            async with await documents_of(lockdown) as files:
                await files.makedirs("/Documents/attempts/one")
            async with instruments_of(lockdown) as (_, control):
                pid = await control.launch(BUNDLE_ID, environment=environment('{"say": "hello"}'))
                said = await asyncio.wait_for(anext(aiter(control)), 10.0)
                assert said.pid == pid
                word, attempt, model = said.message.split()
                assert word == "hello"
                assert attempt.endswith("/Documents/attempts/one")
                assert model.endswith("/Documents/models/none")
                await control.kill(pid)
            async with await documents_of(lockdown) as files:
                log = await files.get_file_contents("/Documents/attempts/one/runtime.log")
                assert log.startswith(b"hello")

    run(scenario())


def test_the_stream_of_an_app_comes_through_its_port(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with launched(udid, lines=5, exit=0, ready_s=0.2) as (lockdown, pid, exits):
            stream = await connect_to_app(lockdown)
            lines = [json.loads(await stream.reader.readline()) for _ in range(5)]
            assert lines == [{"line": number} for number in range(1, 6)]
            assert await stream.reader.read() == b""
            await stream.close()
            assert await ended(exits) == (pid, 0, None)
            assert fleet.view(udid)["apps"] == []

    run(scenario())


def test_an_app_lives_on_while_the_cable_is_out(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, instruments_of(lockdown) as (_, control):
            pid = await control.launch(BUNDLE_ID, environment=environment('{"lines": 2}'))
        fleet.fault(udid, "detach")
        device = fleet.fault(udid, "attach")
        assert [app["pid"] for app in device["apps"]] == [pid]
        async with lockdown_of(udid) as lockdown:
            stream = await connect_to_app(lockdown)
            assert json.loads(await stream.reader.readline()) == {"line": 1}
            await stream.close()
        fleet.fault(udid, "kill")

    run(scenario())


def test_a_cable_is_pulled_after_exactly_that_line_of_the_stream(fleet: Fleet) -> None:
    udid = fleet.take("16.7")
    received: list[bytes] = []

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            async with instruments_of(lockdown) as (_, control):
                await control.launch(BUNDLE_ID, environment=environment('{"lines": 50}'))
            fleet.fault(udid, "detach", at="event:7", for_s=0.2)
            stream = await connect_to_app(lockdown)
            while line := await stream.reader.readline():
                received.append(line)
            await stream.close()

    run(scenario())
    assert [json.loads(line)["line"] for line in received] == list(range(1, 8))
    fleet.wait_for(udid, lambda device: device["device_ids"])
    fleet.fault(udid, "kill")


@pytest.mark.parametrize(
    ("fault", "options", "code", "number"),
    [
        ("crash", {"signal": "SIGSEGV"}, None, signal.SIGSEGV),
        ("crash", {"signal": "SIGABRT"}, None, signal.SIGABRT),
        ("watchdog", {}, None, signal.SIGKILL),
        ("kill", {}, None, signal.SIGKILL),
        ("jetsam", {}, None, signal.SIGKILL),
        ("exit", {}, 3, None),
    ],
)
def test_each_end_is_told_to_who_observes_the_process(
    fleet: Fleet, fault: str, options: dict[str, str], code: int | None, number: int | None
) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with launched(udid) as (lockdown, pid, exits):
            stream = await connect_to_app(lockdown)
            fleet.fault(udid, fault, **options)
            assert await ended(exits) == (pid, code, number)
            # To the stream all ends are the same.
            assert await stream.reader.read() == b""
            await stream.close()

    run(scenario())
    device = fleet.wait_for(udid, lambda device: device["counters"]["connections"] == 0)
    assert device["counters"]["apps"] == 0


def test_a_frozen_app_is_silent_and_goes_on_when_it_is_thawed(fleet: Fleet) -> None:
    udid = fleet.take("17.5")

    async def scenario() -> None:
        fleet.fault(udid, "freeze", at="launch:1")
        async with (
            lockdown_of(udid) as lockdown,
            tunnel_of(udid) as provider,
            instruments_of(provider) as (_, control),
        ):
            await control.launch(BUNDLE_ID, environment=environment('{"lines": 1}'))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(first_line(lockdown), 0.4)
            fleet.fault(udid, "thaw")
            assert await first_line(lockdown)
            fleet.fault(udid, "kill")

    run(scenario())


def test_sysmontap_tells_the_footprint_of_the_real_process(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, instruments_of(lockdown) as (connection, control):
            plan = json.dumps({"grow_bytes": 60 << 20})
            pid = await control.launch(BUNDLE_ID, environment=environment(plan))
            names, seen = ["pid", "name", "physFootprint", "cpuUsage"], []
            async with Sysmontap(connection, names, [], interval_ms=50) as samples:
                async for processes in samples.iter_processes():
                    seen += [each for each in processes if each["pid"] == pid]
                    if seen[-1]["physFootprint"] > 60 << 20:
                        break
            assert seen[0]["cpuUsage"] is None
            assert seen[-1]["physFootprint"] < 160 << 20
            (app,) = fleet.view(udid)["apps"]
            assert os.path.isdir(f"/proc/{app['host_pid']}") or app["host_pid"] > 0
            await control.kill(pid)

    run(scenario())


@pytest.mark.parametrize("kind", ["expired", "foreign", "untrusted"])
def test_an_app_whose_profile_does_not_hold_is_not_launched(fleet: Fleet, kind: str) -> None:
    udid = fleet.take("16.7")
    fleet.fault(udid, "provisioning", kind=kind)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, instruments_of(lockdown) as (_, control):
            with pytest.raises(DTXNsError, match="profile"):
                await control.launch(BUNDLE_ID, environment=environment())
            fleet.fault(udid, "provisioning", kind="valid")
            await control.kill(await control.launch(BUNDLE_ID, environment=environment()))

    run(scenario())


def test_a_locked_device_launches_nothing(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, instruments_of(lockdown) as (_, control):
            fleet.fault(udid, "lock")
            with pytest.raises(DTXNsError, match="unlocked"):
                await control.launch(BUNDLE_ID, environment=environment())

    run(scenario())


def test_the_port_of_an_app_can_open_late(fleet: Fleet) -> None:
    udid = fleet.take("26.1")
    fleet.fault(udid, "port-delay", delay_s=0.5)

    async def scenario() -> None:
        async with (
            lockdown_of(udid) as lockdown,
            tunnel_of(udid) as provider,
            instruments_of(provider) as (_, control),
        ):
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            await control.launch(BUNDLE_ID, environment=environment('{"lines": 1}'))
            stream = await connect_to_app(lockdown)
            assert loop.time() - started_s >= 0.5
            await stream.close()
            fleet.fault(udid, "kill")

    run(scenario())


def test_an_app_started_by_a_tap_reads_the_newest_run_file(fleet: Fleet) -> None:
    udid = fleet.take("16.7")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            async with await documents_of(lockdown) as files:
                await files.makedirs("/Documents/attempts/one")
                said = RunFile.of_environment(environment()).model_dump_json().encode()
                await files.set_file_contents("/Documents/attempts/one/run.json", said)
            async with instruments_of(lockdown) as (_, control):
                pid = await control.launch(BUNDLE_ID)
                stream = await connect_to_app(lockdown)
                await stream.close()
                await control.kill(pid)

    run(scenario())
