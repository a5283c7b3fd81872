"""usbmuxd as the agent follows it, against a daemon of raw bytes."""

import asyncio
import plistlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.targets.ios.usbmux import (
    MuxEntry,
    MuxList,
    MuxProtocolError,
    MuxWatch,
    canonical_udid,
    framed,
    read_message,
)

UDID = "00008140-001A2B3C4D5E6F70"


def attached(mux_id: int, serial: str = UDID, connection: str = "USB") -> dict[str, Any]:
    properties = {"ConnectionType": connection, "SerialNumber": serial, "DeviceID": mux_id}
    return {"MessageType": "Attached", "DeviceID": mux_id, "Properties": properties}


def detached(mux_id: int) -> dict[str, Any]:
    return {"MessageType": "Detached", "DeviceID": mux_id}


def test_the_list_is_what_was_attached_and_not_detached() -> None:
    found = MuxList()
    assert found.take(attached(1))
    assert found.take(attached(2, connection="Network"))
    assert found.take(detached(1))
    assert not found.take(detached(7))
    assert found.entries == {MuxEntry(2, UDID, "Network")}


def test_a_device_that_was_paired_is_worth_a_new_look() -> None:
    found = MuxList()
    before = found.trust_changes
    assert found.take({"MessageType": "Paired", "DeviceID": 1})
    assert found.trust_changes > before


@pytest.mark.parametrize("message", [{"MessageType": "Attached"}, attached(1, serial="")])
def test_a_device_without_a_serial_is_an_error_and_no_device(message: dict[str, Any]) -> None:
    with pytest.raises(MuxProtocolError):
        MuxList().take(message)


def test_a_serial_without_its_dash_is_the_same_device() -> None:
    assert canonical_udid(UDID.replace("-", "")) == UDID
    assert canonical_udid("0" * 40) == "0" * 40


async def read(content: bytes) -> dict[str, Any]:
    reader = asyncio.StreamReader()
    reader.feed_data(content)
    reader.feed_eof()
    return await read_message(reader)


@given(st.binary(max_size=80))
def test_whatever_comes_is_a_message_or_one_of_two_errors(content: bytes) -> None:
    with pytest.raises((MuxProtocolError, asyncio.IncompleteReadError)):
        asyncio.run(read(content))


@given(
    st.dictionaries(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8), st.integers(0, 9))
)
def test_a_message_comes_back_as_it_was_sent(message: dict[str, Any]) -> None:
    assert asyncio.run(read(framed(message))) == message


class Daemon:
    """usbmuxd as far as Listen goes: writes what a test tells it to whoever listens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writers: list[asyncio.StreamWriter] = []
        self.requests: list[dict[str, Any]] = []
        self.server: asyncio.Server | None = None

    async def start(self) -> None:
        self.server = await asyncio.start_unix_server(self.serve, self.path)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("<I", await reader.readexactly(4))
        self.requests.append(plistlib.loads((await reader.readexactly(length - 4))[12:]))
        self.writers.append(writer)
        self.tell({"MessageType": "Result", "Number": 0})

    def tell(self, message: dict[str, Any]) -> None:
        self.writers[-1].write(framed(message))

    async def stop(self) -> None:
        if self.server is not None:
            self.server.close()
        for writer in self.writers:
            writer.close()
        self.writers.clear()
        self.path.unlink(missing_ok=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


async def follow(tmp_path: Path) -> None:
    seen: list[set[str]] = []
    daemon = Daemon(tmp_path / "mux")
    watch = asyncio.create_task(
        MuxWatch(str(daemon.path), lambda found: seen.append({e.udid for e in found.entries})).run()
    )
    try:
        await until(lambda: bool(seen))
        assert seen[-1] == set(), "a daemon that is not there has no devices"
        await daemon.start()
        await until(lambda: bool(daemon.writers))
        assert daemon.requests[0]["MessageType"] == "Listen"
        daemon.tell(attached(4))
        await until(lambda: seen[-1] == {UDID})
        await daemon.stop()
        await until(lambda: seen[-1] == set())
        await daemon.start()
        await until(lambda: bool(daemon.writers))
        daemon.tell(attached(5))
        await until(lambda: seen[-1] == {UDID})
        daemon.writers[-1].write(b"no usbmux at all")
        await until(lambda: seen[-1] == set())
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await daemon.stop()


def test_a_daemon_is_followed_over_its_absence_its_restart_and_its_nonsense(tmp_path: Path) -> None:
    asyncio.run(follow(tmp_path))
