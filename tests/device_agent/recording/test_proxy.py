"""The recording proxy: bytes pass unchanged, nothing that identifies is written, and it plays again."""

import asyncio
import json
import os
import plistlib
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.floor.redaction import Redactor
from device_agent.recording.proxy import ListenError, ProxySettings, RecordingProxy
from device_agent.recording.recorder import Counts, Limits, Recorder
from device_agent.recording.transcript import Frame, conversations, read_lines
from tests.fakes.usbmuxd import (
    APP_PORT,
    APP_TEXT,
    LOCKDOWN_PORT,
    NETWORK,
    SILENT_PORT,
    TLS,
    UDID,
    connect_to,
    mux_frame,
    plist_frame,
    read_mux,
    read_plist,
    secrets_of_device,
    usbmuxd,
)

Talk = Callable[[Path], Awaitable[None]]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short enough for a Unix socket."""
    return tmp_path_factory.mktemp("rec")


def recorder_in(folder: Path, limits: Limits | None = None) -> Recorder:
    """A recorder that knows the network's name, as a person would tell it."""
    started = time.monotonic()
    return Recorder(
        folder / "out",
        "r",
        Redactor([NETWORK]),
        limits or Limits(),
        lambda: (time.monotonic() - started) * 1e3,
    )


def record(folder: Path, talk: Talk, limits: Limits | None = None) -> tuple[Path, Counts]:
    """The transcript of what a client says through the proxy."""
    recorder = recorder_in(folder, limits)

    async def session() -> None:
        settings = ProxySettings(folder / "p", str(folder / "u"))
        async with usbmuxd(folder / "u"), RecordingProxy(settings, recorder):
            async with asyncio.timeout(10):
                await talk(folder / "p")

    asyncio.run(session())
    return recorder.path, recorder.finish()


async def talk_to_usbmuxd(path: Path) -> None:
    """List, and read the pair record."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(mux_frame({"MessageType": "ListDevices"}, 1))
    devices, _ = await read_mux(reader)
    assert devices["DeviceList"][0]["Properties"]["SerialNumber"] == UDID
    writer.write(mux_frame({"MessageType": "ReadPairRecord", "PairRecordID": UDID}, 2))
    record, _ = await read_mux(reader)
    assert b"HostPrivateKey" in record["PairRecordData"]
    writer.close()


async def talk_to_lockdown(path: Path) -> None:
    """All values, then TLS."""
    reader, writer = await connect_to(path, LOCKDOWN_PORT)
    writer.write(plist_frame({"Request": "GetValue"}))
    assert (await read_plist(reader))["Value"]["UniqueDeviceID"] == UDID
    writer.write(plist_frame({"Request": "StartSession", "HostID": "x"}))
    assert (await read_plist(reader))["EnableSessionSSL"]
    writer.write(TLS)
    assert await reader.read() == TLS
    writer.close()


async def talk_to_app(path: Path) -> None:
    """One line, and what the app says until it ends."""
    reader, writer = await connect_to(path, APP_PORT)
    writer.write(b'{"after":{}}\n')
    assert (await reader.read()).startswith(APP_TEXT)
    writer.close()


async def talk_to_all(path: Path) -> None:
    """The app first: what it says of itself is only known to be secret later."""
    for talk in (talk_to_app, talk_to_usbmuxd, talk_to_lockdown):
        await talk(path)


def decoded(path: Path) -> bytes:
    """The transcript and all bytes that it carries."""
    frames = [frame for frames in conversations(path).values() for frame in frames]
    packed = [json.dumps(frame.content, default=repr, ensure_ascii=False).encode() for frame in frames]
    payloads = [frame.payload for frame in frames]
    wide = [payload.replace(b"\0", b"") for payload in payloads]
    return b"\n".join([path.read_bytes(), *packed, *payloads, *wide])


def of(frames: tuple[Frame, ...], sender: str) -> list[Frame]:
    """One side of a conversation."""
    return [frame for frame in frames if frame.sender == sender]


def test_no_secret_of_the_device_is_in_the_recording(folder: Path) -> None:
    path, counts = record(folder, talk_to_all)
    written = decoded(path)
    found = [secret for secret in secrets_of_device() if secret in written]
    assert found == []
    assert counts.leaks == 0
    assert counts.secrets > 20


def test_what_says_nothing_about_a_person_stays_readable(folder: Path) -> None:
    path, _ = record(folder, talk_to_all)
    text = path.read_text()
    for word in (
        "iPhone17,1",
        "ProductVersion",
        "18.5",
        "GetValue",
        "ListDevices",
        "port 62078",
        "StartSession",
    ):
        assert word in text


def test_the_same_secret_has_the_same_pseudonym_wherever_it_stands(folder: Path) -> None:
    path, _ = record(folder, talk_to_all)
    found = conversations(path)
    listed = of(found[2], "device")[0].content["DeviceList"][0]["Properties"]["SerialNumber"]
    values = of(found[3], "device")[1].content["Value"]
    assert listed == values["UniqueDeviceID"] != UDID
    said = b"".join(frame.payload for frame in of(found[1], "device"))
    told = json.loads(said[said.index(b"{") : said.index(b"}\n") + 1])
    assert told["device"] == listed
    assert told["mac"] == values["WiFiAddress"].upper()
    assert (told["model"], told["n"]) == ("iPhone17,1", 1)
    assert len(listed) == len(UDID)


def test_a_recording_plays_again_as_valid_frames(folder: Path) -> None:
    path, _ = record(folder, talk_to_lockdown)
    ((_, frames),) = conversations(path).items()
    connect, asked, start = of(frames, "host")
    assert plistlib.loads(connect.payload[16:])["MessageType"] == "Connect"
    assert int.from_bytes(asked.payload[:4], "big") == len(asked.payload) - 4
    assert plistlib.loads(asked.payload[4:]) == {"Request": "GetValue"}
    assert plistlib.loads(start.payload[4:])["Request"] == "StartSession"
    assert of(frames, "device")[2].payload[4:12] == b"bplist00"


def test_tls_is_counted_and_never_written(folder: Path) -> None:
    path, counts = record(folder, talk_to_lockdown)
    sealed = [line for line in read_lines(path) if line.kind == "tls"]
    assert sum(line.size_bytes for line in sealed) == counts.sealed_bytes == 2 * len(TLS)
    assert sealed[0].detail == "records 22 23"
    assert b"0123456789abcdef" not in decoded(path)


def test_what_is_over_the_limit_passes_and_is_counted(folder: Path) -> None:
    path, counts = record(folder, talk_to_app, Limits(connection_bytes=400))
    left_out = [line.size_bytes for line in read_lines(path) if line.kind == "left_out"]
    assert sum(left_out) == counts.left_out_bytes > 0


def test_a_disk_that_is_full_ends_the_recording_and_not_what_passes(folder: Path) -> None:
    recorder = recorder_in(folder)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def session() -> None:
        async with (
            usbmuxd(folder / "u"),
            RecordingProxy(ProxySettings(folder / "p", str(folder / "u")), recorder),
        ):
            # Every file of this process ends there, as on a disk without room.
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
            try:
                await talk_to_all(folder / "p")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)

    asyncio.run(session())
    counts = recorder.finish()
    assert counts.lines_lost > 0
    assert counts.seen_bytes > 1500
    assert list(read_lines(recorder.path))


def test_the_end_of_the_recording_closes_what_is_open_and_keeps_it(folder: Path) -> None:
    recorder = recorder_in(folder)

    async def session() -> bytes:
        async with usbmuxd(folder / "u"):
            async with RecordingProxy(ProxySettings(folder / "p", str(folder / "u")), recorder):
                reader, writer = await connect_to(folder / "p", SILENT_PORT)
                writer.write(b"only half a")
                await writer.drain()
                await asyncio.sleep(0.1)
            async with asyncio.timeout(5):
                rest = await reader.read()
            writer.close()
            await writer.wait_closed()
            return rest

    assert asyncio.run(session()) == b""
    recorder.finish()
    path = recorder.path
    lines = list(read_lines(path))
    assert [line.text for line in lines if line.kind == "text"] == ["only half a"]
    assert (lines[-1].kind, lines[-1].detail) == ("closed", "the recording ended")
    assert not (folder / "p").exists()


def test_a_usbmuxd_that_is_not_there_closes_the_client_at_once(folder: Path) -> None:
    recorder = recorder_in(folder)

    async def session() -> bytes:
        async with RecordingProxy(ProxySettings(folder / "p", str(folder / "none")), recorder):
            reader, writer = await asyncio.open_unix_connection(folder / "p")
            async with asyncio.timeout(5):
                answer = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(session()) == b""
    recorder.finish()
    assert "FileNotFoundError" in list(read_lines(recorder.path))[-1].detail


def test_too_many_connections_are_refused_and_counted(folder: Path) -> None:
    recorder = recorder_in(folder)

    async def session() -> bytes:
        settings = ProxySettings(folder / "p", str(folder / "u"), max_connections=1)
        async with usbmuxd(folder / "u"), RecordingProxy(settings, recorder):
            _, first = await connect_to(folder / "p", SILENT_PORT)
            reader, second = await asyncio.open_unix_connection(folder / "p")
            async with asyncio.timeout(5):
                answer = await reader.read()
            first.close()
            second.close()
            return answer

    assert asyncio.run(session()) == b""
    assert recorder.finish().refused == 1


def test_the_socket_is_for_its_user_only_and_is_not_taken_from_somebody(folder: Path) -> None:
    recorder = recorder_in(folder)
    settings = ProxySettings(folder / "p", str(folder / "u"))

    async def session() -> int:
        async with RecordingProxy(settings, recorder):
            with pytest.raises(ListenError, match="already"):
                async with RecordingProxy(settings, recorder):
                    pass
            # Let the first one notice that the second one had looked.
            await asyncio.sleep(0.1)
            return stat.S_IMODE(os.stat(folder / "p").st_mode)

    assert asyncio.run(session()) == 0o600
    recorder.finish()
    assert stat.S_IMODE(recorder.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_cleanly_on_a_signal(folder: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "device_agent.recording", "--listen", str(folder / "p")]
    arguments = ["--upstream", str(folder / "u"), "--out", str(folder / "out")]
    process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 20
        while not (folder / "p").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    (summary,) = (folder / "out").glob("*.summary.json")
    assert json.loads(summary.read_text())["leaks"] == 0
    assert not (folder / "p").exists()


def test_the_command_refuses_nonsense() -> None:
    command = [
        sys.executable,
        "-m",
        "device_agent.recording",
        "--listen",
        "x",
        "--out",
        "y",
        "--total-mib",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert "from 1 to 4096" in done.stderr
