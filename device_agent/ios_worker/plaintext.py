"""Shows what this worker says to its device above TLS to whoever records it (docs/first-contact.md).

Streams are watched where decrypted bytes enter and leave them, so that services which read their streams
themselves (instruments, the tunnel) are recorded too. In everyday use nobody imports this.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, Protocol

from pymobiledevice3.service_connection import ServiceConnection


class PlaintextSink(Protocol):
    """Takes the bytes of connections; `key` is the same for one connection while it is open."""

    def opened(self, key: object, service: str) -> None: ...

    def record(self, key: object, sender: Literal["host", "device"], data: bytes) -> None: ...

    def closed(self, key: object) -> None: ...


def record_plaintext(sink: PlaintextSink) -> Callable[[], None]:
    """Watch every connection that is made from now on; call the answer to stop."""
    make, secure, end = ServiceConnection.__init__, ServiceConnection.start_tls, ServiceConnection.close

    def made(self: ServiceConnection, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        sink.opened(id(self), "")
        _watch_reader(self.reader, id(self), sink)
        _watch_writer(self.writer, id(self), sink)

    async def secured(self: ServiceConnection, *arguments: Any, **named: Any) -> None:
        before = self.writer
        await secure(self, *arguments, **named)
        if self.writer is not before:
            _watch_writer(self.writer, id(self), sink)

    async def ended(self: ServiceConnection) -> None:
        await end(self)
        sink.closed(id(self))

    def use(*methods: Any) -> None:
        for name, method in zip(("__init__", "start_tls", "close"), methods, strict=True):
            setattr(ServiceConnection, name, method)

    use(made, secured, ended)
    return lambda: use(make, secure, end)


def _watch_reader(reader: asyncio.StreamReader, key: int, sink: PlaintextSink) -> None:
    feed = reader.feed_data

    def fed(data: bytes) -> None:
        sink.record(key, "device", bytes(data))
        feed(data)

    vars(reader)["feed_data"] = fed


def _watch_writer(writer: asyncio.StreamWriter, key: int, sink: PlaintextSink) -> None:
    write = writer.write

    def wrote(data: bytes) -> None:
        sink.record(key, "host", bytes(data))
        write(data)

    vars(writer)["write"] = wrote
