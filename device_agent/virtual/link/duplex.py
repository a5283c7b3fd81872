"""Services that send without being asked: they end when the client leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from device_agent.virtual.link.wire import Wire


async def until_client_leaves(wire: Wire, sending: Coroutine[Any, Any, None]) -> None:
    """Runs `sending` until it ends or fails, or until the client closes; nothing that it says is read."""

    async def wait_for_end() -> None:
        while await wire.receive_some(4096):
            pass

    tasks = {asyncio.create_task(sending), asyncio.create_task(wait_for_end())}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
