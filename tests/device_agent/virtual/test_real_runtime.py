"""The real runtime as the app: an attempt is pushed, run, followed and read back; and one is killed."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.events import parse_event
from contract.ios_app import BUNDLE_ID, ENV_ATTEMPT_FOLDER, ENV_MODEL_FOLDER, ENV_PORT
from contract.runtime_link import EVENTS_FILE, LEASE_FILE, SPEC_FILE, LeaseFile, Subscribe
from contract.virtual_devices import SOCKET_VARIABLE
from tests.device_agent.virtual.fleet import Fleet, running, short_folder
from tests.device_agent.virtual.mobile_client import (
    connect_to_app,
    documents_of,
    instruments_of,
    lockdown_of,
    run,
)
from tests.fakes.attempt_specs import ATTEMPT_ID, attempt_spec, shared_prefix
from tests.fakes.tiny_model import save_tiny_model

PLACE = f"/Documents/attempts/{ATTEMPT_ID}"
PORT = 9900
RUNTIME = (sys.executable, "-m", "runtime")


@pytest.fixture(scope="module")
def runtimes() -> Iterator[Fleet]:
    with short_folder() as home, running("--count=2", "--ios=16.7", home=home, program=RUNTIME) as fleet:
        yield fleet


@pytest.fixture
def fleet(runtimes: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv(SOCKET_VARIABLE, str(runtimes.usbmuxd_socket))
    return runtimes


async def push(lockdown: Any, model: Path) -> None:
    lease = LeaseFile(deadline_mono_ns=0, ttl_s=120.0, renewal=1)
    spec = attempt_spec(shared_prefix(agents=2, calls=2), pairs=1)
    async with await documents_of(lockdown) as files:
        await files.makedirs(PLACE)
        await files.makedirs("/Documents/models/tiny")
        for path in model.iterdir():
            await files.set_file_contents(f"/Documents/models/tiny/{path.name}", path.read_bytes())
        await files.set_file_contents(f"{PLACE}/{SPEC_FILE}", spec.model_dump_json().encode())
        await files.set_file_contents(f"{PLACE}/{LEASE_FILE}", lease.model_dump_json().encode())


async def launch(lockdown: Any) -> int:
    environment = {
        ENV_ATTEMPT_FOLDER: f"attempts/{ATTEMPT_ID}",
        ENV_MODEL_FOLDER: "models/tiny",
        ENV_PORT: str(PORT),
    }
    async with instruments_of(lockdown) as (_, control):
        return int(await control.launch(BUNDLE_ID, environment=environment))


async def follow(lockdown: Any) -> list[bytes]:
    """Every event line of the stream, to its end."""
    stream = await connect_to_app(lockdown, PORT)
    stream.writer.write(Subscribe().model_dump_json().encode() + b"\n")
    lines = []
    while line := await stream.reader.readline():
        if json.loads(line)["type"] != "heartbeat":
            lines.append(line)
    await stream.close()
    return lines


async def file_lines(lockdown: Any) -> list[bytes]:
    async with await documents_of(lockdown) as files:
        return (await files.get_file_contents(f"{PLACE}/{EVENTS_FILE}")).splitlines(keepends=True)


def test_an_attempt_runs_and_its_stream_is_what_its_file_holds(fleet: Fleet, tmp_path: Path) -> None:
    udid = fleet.take("16.7")
    model = save_tiny_model(tmp_path / "tiny")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            await push(lockdown, model)
            await launch(lockdown)
            lines = await follow(lockdown)
            assert sorted(lines) == sorted(await file_lines(lockdown))
            events = [parse_event(line) for line in lines]
            (finished,) = [event for event in events if event.type == "runtime_finished"]
            assert finished.status == "completed"
            limits = {event.limit_bytes for event in events if event.type == "memory_sampled"}
            limit_bytes = fleet.view(udid)["memory_limit_bytes"]
            # The smaller one of the device's and this machine's.
            assert all(limit is not None and limit <= limit_bytes for limit in limits)

    run(scenario())
    fleet.wait_for(udid, lambda device: not device["apps"])


def test_a_runtime_above_the_limit_is_killed_and_reported(fleet: Fleet, tmp_path: Path) -> None:
    udid = fleet.take("16.7")
    model = save_tiny_model(tmp_path / "tiny")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            await push(lockdown, model)
            # More than an interpreter needs, and less than torch does.
            fleet.fault(udid, "memory-limit", limit_bytes=40 << 20)
            pid = await launch(lockdown)
            await asyncio.to_thread(fleet.wait_for, udid, lambda device: not device["apps"])
            reports = fleet.home / "devices" / udid / "CrashReports"
            for _ in range(200):
                if found := list(reports.glob("JetsamEvent-*.ips")):
                    break
                await asyncio.sleep(0.05)
            _, _, body = found[0].read_text().partition("\n")
            (victim,) = [each for each in json.loads(body)["processes"] if "reason" in each]
            assert (victim["pid"], victim["reason"]) == (pid, "per-process-limit")

    run(scenario())
