"""A client of usbmuxd's plist protocol, byte by byte: it shares no code with emulator or library."""

import plistlib
import socket
import struct
from pathlib import Path
from typing import Any, Self

DEADLINE_S = 10.0


class MuxClient:
    """One connection."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: dict[str, Any], tag: int = 1, version: int = 1, kind: int = 8) -> None:
        body = plistlib.dumps({"ClientVersionString": "test", "ProgName": "test", **message})
        self.socket.sendall(struct.pack("<IIII", 16 + len(body), version, kind, tag) + body)

    def receive(self) -> tuple[int, dict[str, Any]]:
        size, version, kind, tag = struct.unpack("<IIII", self.exactly(16))
        assert (version, kind) == (1, 8)
        return tag, plistlib.loads(self.exactly(size - 16))

    def ask(self, message: dict[str, Any], tag: int = 1) -> dict[str, Any]:
        self.send(message, tag)
        answered, answer = self.receive()
        assert answered == tag
        return answer

    def connect(self, number: int, port: int) -> int:
        """Result of a Connect; 0 when what follows is the port's own."""
        return self.ask({"MessageType": "Connect", "DeviceID": number, "PortNumber": socket.htons(port)})[
            "Number"
        ]

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError(f"{len(data)} of {size} bytes")
            data += piece
        return data

    def until_end(self) -> bytes:
        """Everything that comes before the end of the stream."""
        data = b""
        while piece := self.socket.recv(65536):
            data += piece
        return data
