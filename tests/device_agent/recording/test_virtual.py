"""The recording kit in front of an emulated device, with the unmodified library as the client."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract.virtual_devices import SOCKET_VARIABLE
from device_agent.ios_worker.plaintext import record_plaintext
from device_agent.recording.plaintext import ENV_PLAINTEXT_FOLDER, sink_from_environment
from device_agent.recording.transcript import conversations, read_lines
from tests.device_agent.virtual.fleet import REPOSITORY, running, short_folder
from tests.device_agent.virtual.mobile_client import documents_of, lockdown_of, run


def identifiers(record: Path) -> list[str]:
    """What the emulated device is known by, from its own record."""
    text = record.read_text()
    names = ("udid", "device_name", "ecid", "serial_number", "wifi_address")
    return [part.split(",")[0].strip().strip('"') for name in names for part in text.split(f'"{name}":')[1:2]]


@pytest.mark.phone
def test_a_session_of_the_real_library_leaves_no_identifier_in_the_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with short_folder() as home, running("--count=1", "--ios=18.5", home=home / "v") as fleet:
        udid = fleet.take("18.5")
        proxy = home / "proxy.sock"
        command = [sys.executable, "-m", "device_agent.recording", "--listen", str(proxy)]
        arguments = ["--upstream", str(fleet.usbmuxd_socket), "--out", str(home / "out")]
        process = subprocess.Popen([*command, *arguments], cwd=REPOSITORY)
        try:
            deadline_s = time.monotonic() + 20
            while not proxy.exists() and time.monotonic() < deadline_s:
                time.sleep(0.02)
            monkeypatch.setenv(SOCKET_VARIABLE, str(proxy))
            run(talk(udid))
        finally:
            process.terminate()
            code = process.wait(20)
        assert code == 0
        (transcript,) = (home / "out").glob("usbmux-*.jsonl")
        (record,) = (home / "v" / "devices" / udid).glob("device.json")
        secrets = identifiers(record)
        assert len(secrets) == 5
        found = conversations(transcript)
        written = transcript.read_bytes() + b"".join(
            frame.payload for frames in found.values() for frame in frames
        )
        # A name that every device has says nothing; it goes where it stands, and is not searched for.
        telling = [secret for secret in secrets if not secret.startswith("iPhone")]
        assert [secret for secret in telling if secret.encode() in written] == []
        assert udid.replace("-", "").encode() not in written
        assert b"PRIVATE KEY" not in written
        kinds = {line.kind for line in read_lines(transcript)}
        assert {"usbmux", "plist", "tls", "opened", "closed"} <= kinds


@pytest.mark.phone
def test_what_the_worker_says_above_tls_is_recorded_without_identifiers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with short_folder() as home, running("--count=1", "--ios=18.5", home=home / "v") as fleet:
        udid = fleet.take("18.5")
        monkeypatch.setenv(SOCKET_VARIABLE, str(fleet.usbmuxd_socket))
        monkeypatch.setenv(ENV_PLAINTEXT_FOLDER, str(home / "out"))
        sink = sink_from_environment("worker")
        assert sink is not None
        stop = record_plaintext(sink)
        try:
            run(talk(udid))
        finally:
            stop()
        assert sink.finish().leaks == 0
        frames = [frame for found in conversations(home / "out" / "worker.jsonl").values() for frame in found]
        asked = {frame.content.get("Request") for frame in frames if isinstance(frame.content, dict)}
        # Both are said inside of TLS only.
        assert {"StartService"} <= asked
        assert any(b"hello" in frame.payload for frame in frames)
        written = b"".join(frame.payload for frame in frames)
        assert udid.encode() not in written
        assert b"PRIVATE KEY" not in written


async def talk(udid: str) -> None:
    """Pair, ask, and push a file."""
    async with lockdown_of(udid) as lockdown:
        assert lockdown.all_values["UniqueDeviceID"] == udid
        async with await documents_of(lockdown) as files:
            await files.set_file_contents("/Documents/x", b"hello")
            assert await files.get_file_contents("/Documents/x") == b"hello"
