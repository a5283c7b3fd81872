"""The device's side of DTX, on pymobiledevice3's codec: one of the two modules here that import it.

Its connection is symmetric, so it serves as well as it asks. A fault of the codec would cancel out between
both sides: recorded bytes of a real device are the check for that (docs/virtual-iphones.md).
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

from bpylist2 import archiver  # type: ignore[import-untyped]  # ships no types
from pymobiledevice3.dtx import DTXConnection, DTXContext, DTXService, dtx_on_dispatch, dtx_on_invoke
from pymobiledevice3.dtx.exceptions import DTXNsError
from pymobiledevice3.dtx.ns_types import NSError

from device_agent.virtual.link.wire import Wire

__all__ = ["Channel", "TapMessage", "on_invoke", "refusal", "serve_dtx"]

on_invoke = dtx_on_invoke
_CONTEXT_KEY: Final = "virtual-device"


class TapMessage:
    """A message of sysmontap: travels as an archived DTSysmonTapMessage."""

    def __init__(self, content: Any) -> None:
        """`content`: what a client gets out of it."""
        self.content = content

    def encode_archive(self, archive: Any) -> None:
        archive.encode("DTTapMessagePlist", self.content)


archiver.ARCHIVE_CLASS_MAP[TapMessage] = "DTSysmonTapMessage"


class Channel(DTXService):
    """Base of the services of a device; `host` is what the connection was opened with."""

    def __init__(self, context: DTXContext) -> None:
        super().__init__(context)
        self.host: Any = context[_CONTEXT_KEY]
        self._tasks: set[asyncio.Task[None]] = set()

    @dtx_on_dispatch
    async def _unknown(self, selector: str, *_: Any) -> NSError:
        return NSError.create_doesnt_respond_to_selector(selector)

    def tell(self, selector: str, *arguments: Any) -> None:
        """An invocation of the client that expects no answer; a client that has left hears nothing."""
        self.in_background(self._tell(selector, arguments))

    async def _tell(self, selector: str, arguments: Sequence[Any]) -> None:
        try:
            await self.invoke(selector, *arguments, expects_reply=False)
        except (OSError, RuntimeError):
            return

    def in_background(self, work: Any) -> "asyncio.Task[None]":
        """Runs a coroutine until it or the channel ends."""
        task = cast("asyncio.Task[None]", asyncio.ensure_future(work))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # The connection ended under it: the reader of the connection says so.
            task.exception()

    def on_closed(self, reason: str = "") -> None:
        """Ends what runs in the background."""
        for task in list(self._tasks):
            task.cancel()
        super().on_closed(reason)


def refusal(domain: str, number: int, user_info: dict[str, str]) -> Exception:
    """To be raised in a handler: the client gets it as an NSError."""
    return DTXNsError(NSError(number, domain, user_info))


async def serve_dtx(wire: Wire, services: Sequence[type[Channel]], host: Any) -> None:
    """One DTX connection with these services, until the client leaves."""
    # It reads and writes like any pair of streams; the paced writer has all that it uses.
    connection = DTXConnection(wire.reader, cast("asyncio.StreamWriter", wire.writer))
    connection.ctx[_CONTEXT_KEY] = host
    capabilities: dict[str, Any] = {
        "com.apple.private.DTXBlockCompression": 0,
        "com.apple.private.DTXConnection": 1,
    }
    for service in services:
        connection.register_service(service)
        capabilities[str(service.IDENTIFIER)] = 1
    connection.sent_capabilities = capabilities
    try:
        await connection.connect()
        await connection.wait_disconnected()
    finally:
        await connection.aclose()
