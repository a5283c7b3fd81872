"""The file of a recording: JSON lines, readable by people, from which the bytes can be made again.

Line 1 names format and maker; every other line is one frame, chunk or remark of one connection.
"""

import base64
import binascii
import json
import plistlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from device_agent.floor.errors import AgentError

FORMAT: Final = "dynofarm-transcript/1"
MAX_LINE_BYTES: Final = 16 << 20

Sender = Literal["host", "device"]
Kind = Literal["opened", "usbmux", "plist", "text", "raw", "tls", "left_out", "closed"]
PlistForm = Literal["xml", "binary"]

_FORMS: Final = {"xml": plistlib.FMT_XML, "binary": plistlib.FMT_BINARY}
_MUX_HEADER: Final = struct.Struct("<IIII")
_PLIST_HEADER: Final = struct.Struct(">I")


class TranscriptError(AgentError):
    """A file is not a transcript; the message names the line."""

    kind = "transcript-damaged"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Head(_Model):
    """First line."""

    format: Literal["dynofarm-transcript/1"] = FORMAT
    made_by: str
    started_at: AwareDatetime


class Line(_Model):
    """One frame (usbmux, plist), one chunk (text, raw), or what is not shown: tls, left_out.

    t_ms: since the start. size_bytes: as it passed, before anything was replaced. body: a property list as
    JSON, `$data` and `$date` for what JSON lacks. mux: version, message and tag of a usbmux header.
    """

    t_ms: float = Field(ge=0)
    connection: int = Field(ge=1)
    sender: Sender
    kind: Kind
    size_bytes: int = Field(ge=0)
    mux: tuple[int, int, int] | None = None
    form: PlistForm | None = None
    body: Any = None
    text: str | None = None
    data: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message or chunk as bytes on the wire; content: the property list in it, None for others."""

    t_ms: float
    connection: int
    sender: Sender
    kind: Kind
    payload: bytes
    content: Any


def head_line(made_by: str) -> bytes:
    """The first line, with its newline."""
    return Head(made_by=made_by, started_at=datetime.now(UTC)).model_dump_json().encode() + b"\n"


def line_bytes(line: Line) -> bytes:
    """The line, with its newline; fields at their default are left out."""
    text = json.dumps(line.model_dump(exclude_defaults=True), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


def to_json(value: Any) -> Any:
    """A property list as JSON."""
    if isinstance(value, dict):
        members = {str(key): to_json(each) for key, each in value.items()}
        return {"$dict": members} if any(key.startswith("$") for key in members) else members
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return {"$data": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return {"$date": value.isoformat()}
    if isinstance(value, plistlib.UID):
        return {"$uid": value.data}
    return value


def from_json(value: Any) -> Any:
    """The property list again; ValueError for what to_json never writes."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$data": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"$date": str(text)}:
            return datetime.fromisoformat(text)
        case {"$uid": int(number)}:
            return plistlib.UID(number)
        case {"$dict": dict(members)}:
            return {key: from_json(each) for key, each in members.items()}
    return {key: from_json(each) for key, each in value.items()}


def read_lines(path: Path) -> Iterator[Line]:
    """Every line after the first; TranscriptError, OSError."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if len(text) > MAX_LINE_BYTES:
                raise TranscriptError(f"{path}, line {number}: longer than {MAX_LINE_BYTES} bytes")
            try:
                if number == 1:
                    Head.model_validate_json(text)
                else:
                    yield Line.model_validate_json(text)
            except ValidationError as error:
                raise TranscriptError(f"{path}, line {number}: {error.errors()[0]['msg']}") from error


def read_frames(path: Path) -> Iterator[Frame]:
    """What was sent, in the order of the file, as bytes that can be sent again; remarks are left out."""
    for line in read_lines(path):
        try:
            payload, content = _payload(line)
        except (ValueError, TypeError, OverflowError, binascii.Error, struct.error) as error:
            raise TranscriptError(
                f"{path}: a {line.kind} of connection {line.connection}: {error}"
            ) from error
        if payload:
            yield Frame(line.t_ms, line.connection, line.sender, line.kind, payload, content)


def conversations(path: Path) -> Mapping[int, tuple[Frame, ...]]:
    """The frames of each connection, by time."""
    found: dict[int, list[Frame]] = {}
    for frame in read_frames(path):
        found.setdefault(frame.connection, []).append(frame)
    return {key: tuple(sorted(frames, key=lambda frame: frame.t_ms)) for key, frames in found.items()}


def _payload(line: Line) -> tuple[bytes, Any]:
    if line.kind == "text" and line.text is not None:
        return line.text.encode(), None
    if line.kind == "raw" and line.data is not None:
        return base64.b64decode(line.data, validate=True), None
    if line.kind in {"usbmux", "plist"} and line.form is not None:
        content = from_json(line.body)
        packed = plistlib.dumps(content, fmt=_FORMS[line.form], sort_keys=False)
        if line.mux is not None:
            return _MUX_HEADER.pack(len(packed) + _MUX_HEADER.size, *line.mux) + packed, content
        return _PLIST_HEADER.pack(len(packed)) + packed, content
    return b"", None
