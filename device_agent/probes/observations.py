"""What a target saw of its device, as events of the agent's stream."""

import asyncio

import structlog

from contract.events import BatterySampled, EventEnvelope, ThermalSampled
from device_agent.collect.spool import Spool
from device_agent.floor.errors import SpoolFullError
from device_agent.targets.port import Observation, RuntimeProcess

_log = structlog.get_logger(__name__)


async def record_observations(process: RuntimeProcess | None, spool: Spool, trial: int | None) -> bool:
    """Everything since the last time; False when the disk took no more, with the loss counted in the log.

    trial: the one that runs now, None between two.
    """
    observed = process.observations() if process is not None else ()
    for number, observation in enumerate(observed):
        try:
            await asyncio.to_thread(spool.record, _placed(observation, trial))
        except SpoolFullError as error:
            _log.error("observations_lost", count=len(observed) - number, detail=str(error))
            return False
    return True


def _placed(observation: Observation, trial: int | None) -> Observation:
    """Heat and battery count for the trial that runs now: the clocks of agent and runtime differ.

    Memory does not: seen from outside it is another quantity than what the runtime tells of itself.
    """

    def event(seq: int) -> EventEnvelope:
        made = observation(seq)
        if isinstance(made, ThermalSampled | BatterySampled) and made.trial is None:
            return made.model_copy(update={"trial": trial})
        return made

    return event
