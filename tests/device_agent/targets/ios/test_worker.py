"""The agent's side of a worker, against one that misbehaves at the wire."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from device_agent.ios_worker.protocol import (
    CONDITIONS,
    DESCRIBE,
    LIST,
    MOUNT_IMAGE,
    OPEN_TUNNEL,
    RELEASE,
    REMOVE,
    SIGNAL,
    Nothing,
    Notice,
    ProcessExited,
    RemotePath,
    Signal,
    WorkerErrorKind,
)
from device_agent.targets.ios import worker as worker_module
from device_agent.targets.ios.errors import DeviceFaultError
from device_agent.targets.ios.worker import WorkerCommand, WorkerProcess, worker_environment, worker_program
from tests.fakes.emulator import ROOT

PLACE = RemotePath(bundle_id="b", remote_path="x")


@asynccontextmanager
async def worker(place: Path, notices: list[Notice] | None = None) -> AsyncIterator[WorkerProcess]:
    command = WorkerCommand(
        worker_program([sys.executable, str(ROOT / "tests/fakes/ios_worker.py")], "u", place),
        dict(os.environ),
        place / "log",
    )
    process = await WorkerProcess.start(command, (notices if notices is not None else []).append)
    try:
        yield process
    finally:
        await process.stop()
        assert process.ended
        assert not psutil.pid_exists(process.pid)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "ANSWER_GRACE_S", 0.1)


def test_an_answer_is_parsed_and_notices_come_by_themselves(tmp_path: Path) -> None:
    async def scenario() -> None:
        notices: list[Notice] = []
        async with worker(tmp_path, notices) as process:
            assert (await process.call(DESCRIBE, Nothing(), 10)).os_version == "18.5"
            await process.call(SIGNAL, Signal(pid=5, number=9), 10)
        assert notices == [ProcessExited(pid=5, exit_code=0, signal=None)]

    asyncio.run(scenario())


def test_an_error_keeps_its_kind_and_costs_no_worker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with worker(tmp_path) as process:
            with pytest.raises(DeviceFaultError, match="unlock it") as failed:
                await process.call(REMOVE, PLACE, 10)
            assert failed.value.fault_kind is WorkerErrorKind.LOCKED
            await process.call(DESCRIBE, Nothing(), 10)

    asyncio.run(scenario())


def test_a_worker_that_does_not_answer_is_killed_at_its_deadline(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with worker(tmp_path) as process:
            await process.call(DESCRIBE, Nothing(), 10)
            began_s = time.monotonic()
            with pytest.raises(DeviceFaultError) as failed:
                await process.call(CONDITIONS, Nothing(), 0.3)
            assert failed.value.fault_kind is WorkerErrorKind.STALLED
            assert time.monotonic() - began_s < 10
            assert process.ended
            with pytest.raises(DeviceFaultError):
                await process.call(DESCRIBE, Nothing(), 10)

    asyncio.run(scenario())


def test_progress_moves_the_deadline(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: list[tuple[int, int]] = []
        async with worker(tmp_path) as process:
            await process.call(DESCRIBE, Nothing(), 10)
            await process.call(MOUNT_IMAGE, Nothing(), 0.6, lambda done, total: seen.append((done, total)))
        assert seen == [(step, 10) for step in range(10)]

    asyncio.run(scenario())


def test_whoever_waits_is_told_when_the_worker_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with worker(tmp_path) as process:
            waiting = asyncio.create_task(process.call(CONDITIONS, Nothing(), 60))
            with pytest.raises(DeviceFaultError) as failed:
                await process.call(OPEN_TUNNEL, Nothing(), 60)
            assert failed.value.fault_kind is WorkerErrorKind.DISCONNECTED
            with pytest.raises(DeviceFaultError):
                await waiting

    asyncio.run(scenario())


def test_a_worker_that_speaks_nonsense_is_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with worker(tmp_path) as process:
            with pytest.raises(DeviceFaultError):
                await process.call(RELEASE, Nothing(), 60)
            assert process.ended

    asyncio.run(scenario())


def test_an_answer_of_the_wrong_shape_is_a_protocol_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with worker(tmp_path) as process:
            with pytest.raises(DeviceFaultError) as failed:
                await process.call(LIST, PLACE, 60)
            assert failed.value.fault_kind is WorkerErrorKind.PROTOCOL

    asyncio.run(scenario())


def test_a_worker_is_told_where_usbmuxd_is_and_no_secret(tmp_path: Path) -> None:
    given = {"PATH": "/bin", "DYNOFARM_ENROLLMENT_TOKEN": "secret"}
    found = worker_environment(given, "UNIX:/run/mux", tmp_path)
    assert found["USBMUXD_SOCKET_ADDRESS"] == "/run/mux"
    assert "secret" not in found.values()


def test_the_real_worker_ends_when_its_agent_is_gone(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "device_agent.ios_worker", "--udid", "u", "--images", str(tmp_path)]
    environment = {**os.environ, "USBMUXD_SOCKET_ADDRESS": str(tmp_path / "none")}
    child = subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=ROOT,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b'{"id":1,"method":"describe","deadline_s":5,"params":{}}\n')
    child.stdin.flush()
    answer = child.stdout.readline()
    assert b'"disconnected"' in answer, answer
    child.stdin.close()
    assert child.wait(timeout=20) == 0
    child.stdout.close()
