"""What a target saw of its device, as events of the agent's stream."""

import asyncio

import structlog

from device_agent.collect.spool import Spool
from device_agent.devices.port import RuntimeProcess
from device_agent.errors import SpoolFullError

_log = structlog.get_logger(__name__)


async def record_observations(process: RuntimeProcess | None, spool: Spool) -> bool:
    """Everything since the last time; False when the disk took no more, with the loss counted in the log."""
    observed = process.observations() if process is not None else ()
    for number, observation in enumerate(observed):
        try:
            await asyncio.to_thread(spool.record, observation)
        except SpoolFullError as error:
            _log.error("observations_lost", count=len(observed) - number, detail=str(error))
            return False
    return True
