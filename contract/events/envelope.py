"""What every event has, and which stream carries it.

One writer per stream: `control`, `samples` and `log` are written by the runtime, `device_agent` by the
device agent. Each stream counts its events from 1 without a gap. `t_mono_ns` is the writer's own
monotonic clock and is only ever subtracted from itself: never compare `device_agent` with the others.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from contract.model import ContractModel


class Stream(StrEnum):
    """control: what happened, never dropped. samples: series, thinned when a disk is full.
    log: the trace of blocks and batches, dropped first. device_agent: what the device agent saw."""

    CONTROL = "control"
    SAMPLES = "samples"
    LOG = "log"
    DEVICE_AGENT = "device_agent"


Seq = Annotated[int, Field(ge=1, lt=2**53)]
MonoNs = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Trial = Annotated[int, Field(ge=1, lt=2**31)]
CallIndex = Annotated[int, Field(ge=0, lt=2**31)]
"""From 0, within one agent. Like the trial it has a column of 32 bits in PostgreSQL."""


class EventEnvelope(ContractModel):
    """seq: place in its stream, from 1. t_mono_ns: the writer's monotonic clock."""

    seq: Seq
    t_mono_ns: MonoNs
