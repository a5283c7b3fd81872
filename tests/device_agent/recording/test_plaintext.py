"""The sink for what a worker says above TLS, and the transcript file that both recordings share."""

import json
import plistlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.floor.redaction import Redactor
from device_agent.recording.plaintext import (
    ENV_PLAINTEXT_FOLDER,
    ENV_SECRETS_FILE,
    PlaintextSink,
    sink_from_environment,
)
from device_agent.recording.recorder import KEPT_BACK_BYTES, MAX_HELD_BYTES, Limits, Recorder
from device_agent.recording.transcript import (
    TranscriptError,
    conversations,
    from_json,
    read_frames,
    read_lines,
    to_json,
)
from tests.fakes.usbmuxd import IDENTITY, NETWORK, UDID, plist_frame


def sink_in(folder: Path, limits: Limits | None = None) -> tuple[PlaintextSink, Recorder]:
    """A sink whose clock stands still."""
    recorder = Recorder(folder, "worker", Redactor(), limits or Limits(), lambda: 1.0)
    return PlaintextSink(recorder), recorder


def test_only_a_worker_that_is_asked_to_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_PLAINTEXT_FOLDER, raising=False)
    assert sink_from_environment("w") is None
    (tmp_path / "secrets").write_text(f"{NETWORK}\n\n")
    monkeypatch.setenv(ENV_PLAINTEXT_FOLDER, str(tmp_path / "out"))
    monkeypatch.setenv(ENV_SECRETS_FILE, str(tmp_path / "secrets"))
    sink = sink_from_environment("w")
    assert sink is not None
    sink.record(1, "device", f"joined {NETWORK}\n".encode())
    assert sink.finish().leaks == 0
    text = (tmp_path / "out" / "w.jsonl").read_text()
    assert "joined" in text
    assert NETWORK not in text


def test_services_are_told_apart_and_their_frames_redacted(tmp_path: Path) -> None:
    sink, recorder = sink_in(tmp_path)
    sink.opened("a", "com.apple.mobile.diagnostics_relay")
    sink.record("a", "host", plist_frame({"Request": "GasGauge"}))
    sink.record("b", "host", b"CFA6LPAA" + UDID.encode())
    sink.record("a", "device", plist_frame({"Value": IDENTITY}, plistlib.FMT_BINARY))
    sink.finish()
    found = conversations(recorder.path)
    assert [frame.kind for frame in found[1]] == ["plist", "plist"]
    assert found[1][1].content["Value"]["ProductType"] == "iPhone17,1"
    assert found[2][0].payload.startswith(b"CFA6LPAA")
    assert UDID.encode() not in found[2][0].payload
    details = [line.detail for line in read_lines(recorder.path) if line.kind == "opened"]
    assert details == ["com.apple.mobile.diagnostics_relay", ""]


def test_a_secret_that_is_learned_late_is_removed_from_what_was_written_before(tmp_path: Path) -> None:
    sink, recorder = sink_in(tmp_path)
    sink.record("log", "device", b"hello from Kitchen-Tablet-7\n")
    sink.record("early", "device", plist_frame({"note": "Kitchen-Tablet-7", "n": 123456789}))
    sink.closed("log")
    sink.closed("early")
    assert "Kitchen-Tablet-7" in recorder.path.read_text()
    sink.record("late", "device", plist_frame({"DeviceName": "Kitchen-Tablet-7", "ECID": 123456789}))
    assert sink.finish().leaks == 0
    text = recorder.path.read_text()
    assert "Kitchen-Tablet-7" not in text
    assert "123456789" not in text


def test_a_secret_across_the_border_of_two_writes_is_found_even_in_a_long_stream(tmp_path: Path) -> None:
    sink, recorder = sink_in(tmp_path, Limits(connection_bytes=4 * MAX_HELD_BYTES))
    filler = b"\xfe" * (MAX_HELD_BYTES - 100)
    cut = UDID.encode()[:11], UDID.encode()[11:]
    for data in (filler, cut[0], cut[1], b"\xfd" * KEPT_BACK_BYTES, filler):
        sink.record("raw", "device", data)
    sink.finish()
    payload = b"".join(frame.payload for frame in read_frames(recorder.path))
    assert UDID.encode() not in payload
    assert len(payload) == 2 * len(filler) + len(UDID) + KEPT_BACK_BYTES


def test_a_leak_is_found_by_the_search_at_the_end(tmp_path: Path) -> None:
    class Blind(Redactor):
        """Learns and forgets to replace."""

        def redact_bytes(self, data: bytes) -> bytes:
            return data

    recorder = Recorder(tmp_path, "x", Blind(["Kitchen-Tablet-7"]), Limits(), lambda: 1.0)
    sink = PlaintextSink(recorder)
    sink.record("log", "device", b"Kitchen-Tablet-7 \xff")
    assert sink.finish().leaks > 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense\n",
        '{"format":"another/1","made_by":"x","started_at":"2026-11-29T12:00:00Z"}\n',
        '{"t_ms":1}\n',
        '{"t_ms":1,"connection":1,"sender":"host","kind":"raw","size_bytes":1,"surprise":1}\n',
        '{"t_ms":1,"connection":1,"sender":"host","kind":"raw","size_bytes":1,"data":"%"}\n',
        '{"t_ms":1,"connection":1,"sender":"host","kind":"plist","size_bytes":1,"form":"xml","body":{"$data":"%"}}\n',
        '{"t_ms":1,"connection":1,"sender":"host","kind":"plist","size_bytes":1,"form":"xml","body":{"a":null}}\n',
    ],
)
def test_a_damaged_transcript_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    head = '{"format":"dynofarm-transcript/1","made_by":"x","started_at":"2026-11-29T12:00:00Z"}\n'
    path = tmp_path / "t.jsonl"
    path.write_text(text if "connection" not in text and "t_ms" not in text else head + text)
    if text:
        with pytest.raises(TranscriptError, match=r"t\.jsonl"):
            list(read_frames(path))
    else:
        assert list(read_frames(path)) == []


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text("abc $é", max_size=8) | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab$dict", max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_a_property_list_survives_its_way_through_json(value: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


def test_dates_and_uids_survive_too() -> None:
    value = {"when": datetime(2026, 11, 29, 12, tzinfo=UTC), "uid": plistlib.UID(7)}
    assert from_json(json.loads(json.dumps(to_json(value)))) == value
