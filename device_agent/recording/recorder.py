"""One recording: what passes is read, held for a moment, redacted and written; what is left out is counted.

Chunks without frames are held until their connection ends or MAX_HELD_BYTES have come, and their last bytes
for longer, so that a secret that two reads have torn apart is found. When the recording ends the whole file
is redacted again: by then secrets are known that passed before they were.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from device_agent.floor.atomic_file import write_atomically
from device_agent.floor.redaction import Redactor
from device_agent.recording.transcript import Kind, Line, Sender, head_line, line_bytes, read_lines, to_json
from device_agent.recording.wire import Chunk, Conversation, Message, Piece, Sealed, Stage

MIB: Final = 1 << 20
MAX_HELD_BYTES: Final = MIB
KEPT_BACK_BYTES: Final = 512
_SEARCHED_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is written. Beyond it bytes still pass, but only their number is recorded."""

    connection_bytes: int = 8 * MIB
    total_bytes: int = 256 * MIB


@dataclass(slots=True)
class Counts:
    """What a recording saw and kept. leaks: secrets that a search of the written file still found.

    lines_lost: since the disk took no more; from the first of them on nothing was written.
    """

    connections: int = 0
    refused: int = 0
    seen_bytes: int = 0
    left_out_bytes: int = 0
    sealed_bytes: int = 0
    secrets: int = 0
    secrets_forgotten: int = 0
    lines_lost: int = 0
    leaks: int = 0


@dataclass(slots=True)
class _Held:
    t_ms: float
    sender: Sender
    data: bytes


@dataclass(slots=True)
class Capture:
    """One connection of a recording; made by Recorder.open."""

    number: int
    conversation: Conversation
    recorded_bytes: int = 0
    left_out: dict[Sender, int] = field(default_factory=lambda: {"host": 0, "device": 0})
    held: list[_Held] = field(default_factory=list)


class Recorder:
    """Writes `<name>.jsonl` and, at the end, `<name>.summary.json` into a folder. Used by one thread."""

    def __init__(
        self, folder: Path, name: str, redactor: Redactor, limits: Limits, now_ms: Callable[[], float]
    ) -> None:
        """Makes folder (0700) and file (0600); OSError. now_ms: milliseconds since the start."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"
        self.counts = Counts()
        self._summary_path = folder / f"{name}.summary.json"
        self._redactor = redactor
        self._limits = limits
        self._now_ms = now_ms
        self._recorded_bytes = 0
        head = head_line(name)
        write_atomically(self.path, head)
        self._file = self.path.open("ab", buffering=0)
        self._file_bytes = len(head)

    def open(self, stage: Stage = Stage.MUX, detail: str = "") -> Capture:
        """A new connection."""
        self.counts.connections += 1
        capture = Capture(self.counts.connections, Conversation(stage))
        self._write(self._line(capture, "host", "opened", detail=self._redactor.redact_text(detail)))
        return capture

    def record(self, capture: Capture, sender: Sender, data: bytes) -> None:
        """What one side sent. Never raises: what passes must not depend on what is noted of it."""
        self.counts.seen_bytes += len(data)
        before = capture.conversation.port
        pieces = capture.conversation.feed(sender, data)
        for piece in pieces:
            self._keep(capture, sender, piece)
        port = capture.conversation.port
        if port is not None and port != before:
            self._write(self._line(capture, "host", "opened", detail=f"port {port} of the device"))
        if sum(len(each.data) for each in capture.held) > MAX_HELD_BYTES:
            self._release(capture, KEPT_BACK_BYTES)

    def close(self, capture: Capture, detail: str = "") -> None:
        """The connection has ended."""
        for sender, piece in capture.conversation.close():
            self._keep(capture, sender, piece)
        self._release(capture, 0)
        for sender, count in capture.left_out.items():
            if count:
                self._write(self._line(capture, sender, "left_out", size_bytes=count))
        self._write(self._line(capture, "host", "closed", detail=detail))

    def finish(self) -> Counts:
        """Redact the file once more with all that is known now, search it for secrets, write the summary.

        OSError when the disk does not take it: then the file is as it was, redacted once only.
        """
        self._file.close()
        with self.path.open("rb") as file:
            head = file.readline()
        lines = b"".join(line_bytes(self._redacted_again(line)) for line in read_lines(self.path))
        write_atomically(self.path, head + lines)
        self.counts.secrets = len(self._redactor.learned)
        self.counts.secrets_forgotten = self._redactor.overflow
        self.counts.leaks = leaks_in(lines, self._redactor)
        summary = json.dumps(asdict(self.counts), indent=1) + "\n"
        write_atomically(self._summary_path, summary.encode())
        return self.counts

    def _keep(self, capture: Capture, sender: Sender, piece: Piece) -> None:
        match piece:
            case Message():
                self._release(capture, 0)
                self._message(capture, sender, piece)
            case Sealed():
                self.counts.sealed_bytes += piece.size_bytes
                records = f"records {' '.join(map(str, piece.records))}" if piece.records else ""
                self._write(self._line(capture, sender, "tls", size_bytes=piece.size_bytes, detail=records))
            case Chunk():
                if self._has_room(capture, sender, len(piece.data)):
                    capture.held.append(_Held(self._now_ms(), sender, piece.data))

    def _has_room(self, capture: Capture, sender: Sender, size: int) -> bool:
        full = (
            capture.recorded_bytes + size > self._limits.connection_bytes
            or self._recorded_bytes + size > self._limits.total_bytes
        )
        if full:
            self.counts.left_out_bytes += size
            capture.left_out[sender] += size
            return False
        capture.recorded_bytes += size
        self._recorded_bytes += size
        return True

    def _message(self, capture: Capture, sender: Sender, message: Message) -> None:
        if not self._has_room(capture, sender, message.size_bytes):
            self._redactor.learn_value(message.content)
            return
        line = self._line(
            capture, sender, "usbmux" if message.mux else "plist", size_bytes=message.size_bytes
        )
        body = to_json(self._redactor.redact_value(message.content))
        self._write(line.model_copy(update={"mux": message.mux, "form": message.form, "body": body}))

    def _release(self, capture: Capture, keep_bytes: int) -> None:
        """Write held chunks but the newest `keep_bytes` of each side; cut where they were cut."""
        ready: list[_Held] = []
        for sender in capture.left_out:
            own = [each for each in capture.held if each.sender == sender]
            stream = self._redactor.redact_bytes(b"".join(each.data for each in own))
            last = len(stream) - keep_bytes
            place = 0
            for each in own:
                end = place + len(each.data)
                if end <= last:
                    ready.append(_Held(each.t_ms, sender, stream[place:end]))
                    capture.held.remove(each)
                place = end
        for each in sorted(ready, key=lambda held: held.t_ms):
            self._write(self._chunk(capture, each))

    def _chunk(self, capture: Capture, held: _Held) -> Line:
        line = self._line(capture, held.sender, "raw", size_bytes=len(held.data)).model_copy(
            update={"t_ms": held.t_ms}
        )
        text = _as_text(held.data)
        if text is not None:
            return line.model_copy(update={"kind": "text", "text": text})
        return line.model_copy(update={"data": base64.b64encode(held.data).decode()})

    def _line(
        self, capture: Capture, sender: Sender, kind: Kind, *, size_bytes: int = 0, detail: str = ""
    ) -> Line:
        return Line(
            t_ms=round(self._now_ms(), 3),
            connection=capture.number,
            sender=sender,
            kind=kind,
            size_bytes=size_bytes,
            detail=detail,
        )

    def _write(self, line: Line) -> None:
        if self.counts.lines_lost:
            self.counts.lines_lost += 1
            return
        data = line_bytes(line)
        try:
            whole = self._file.write(data) == len(data)
        except OSError:
            whole = False
        if whole:
            self._file_bytes += len(data)
        else:
            # Half a line would make the file unreadable.
            self._file.truncate(self._file_bytes)
            self.counts.lines_lost += 1

    def _redacted_again(self, line: Line) -> Line:
        changed: dict[str, object] = {"detail": self._redactor.redact_text(line.detail)}
        if line.body is not None:
            changed["body"] = _body_again(line.body, self._redactor)
        if line.text is not None:
            changed["text"] = self._redactor.redact_text(line.text)
        if line.data is not None:
            data = self._redactor.redact_bytes(base64.b64decode(line.data))
            changed["data"] = base64.b64encode(data).decode()
        return line.model_copy(update=changed)


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(sign.isprintable() or sign in "\r\n\t" for sign in text) else None


def _body_again(body: object, redactor: Redactor) -> object:
    """A body that was redacted before; only what was learned since is replaced."""
    if isinstance(body, dict):
        if set(body) == {"$data"} and isinstance(body["$data"], str):
            data = redactor.redact_bytes(base64.b64decode(body["$data"]))
            return {"$data": base64.b64encode(data).decode()}
        return {redactor.redact_text(key): _body_again(each, redactor) for key, each in body.items()}
    if isinstance(body, list):
        return [_body_again(each, redactor) for each in body]
    if isinstance(body, str):
        return redactor.redact_text(body)
    if isinstance(body, int) and not isinstance(body, bool):
        return redactor.redact_value(body)
    return body


def leaks_in(lines: bytes, redactor: Redactor) -> int:
    """How many secrets still stand in a transcript, in the clear or in base64 of any alignment."""
    decoded = b"\n".join(base64.b64decode(part) for part in _base64_parts(lines) if len(part) % 4 == 0)
    return sum(
        secret in lines or secret in decoded for secret in redactor.learned if len(secret) >= _SEARCHED_BYTES
    )


def _base64_parts(lines: bytes) -> list[bytes]:
    marks = (b'"data": "', b'"$data": "')
    return [part.split(b'"', 1)[0] for mark in marks for part in lines.split(mark)[1:] if b'"' in part]
