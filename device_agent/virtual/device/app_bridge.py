"""Between a client's connection to an app's port and the Unix socket on which the app's process listens."""

import asyncio
from typing import Final

from device_agent.virtual.device.triggers import Progress, Triggers
from device_agent.virtual.link.wire import Wire

_CHUNK_BYTES: Final = 64 * 1024


async def bridge_to_app(
    wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, triggers: Triggers
) -> None:
    """Both directions until the app or the client ends; `triggers` count the lines that the app sent."""
    tasks = {
        asyncio.create_task(_to_app(wire, writer)),
        asyncio.create_task(_to_client(wire, reader, triggers)),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            # An abrupt end of either side is an end: both sides see the end of the stream.
            task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()


async def _to_app(wire: Wire, writer: asyncio.StreamWriter) -> None:
    while data := await wire.receive_some(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


async def _to_client(wire: Wire, reader: asyncio.StreamReader, triggers: Triggers) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        view = data
        while view:
            piece = _through_line(view, triggers.room(Progress.EVENTS))
            await wire.send(piece)
            view = view[len(piece) :]
            await triggers.advance(Progress.EVENTS, piece.count(b"\n"))


def _through_line(data: bytes, lines: int | None) -> bytes:
    """`data` up to and including the end of its line number `lines`, or all of it."""
    if lines is None or data.count(b"\n") < lines:
        return data
    end = 0
    for _ in range(lines):
        end = data.index(b"\n", end) + 1
    return data[:end]
