"""The trace: every block, share, copy, eviction, prefix hit and batch."""

from typing import Literal

from contract.events.envelope import CallIndex, Count, EventEnvelope, Trial
from contract.ids import Name
from contract.model import ContractModel


class _OwnerEvent(EventEnvelope):
    trial: Trial
    agent: Name
    call: CallIndex


class BlocksAllocated(_OwnerEvent):
    """Fresh blocks for a sequence; each now has reference count 1."""

    type: Literal["blocks_allocated"] = "blocks_allocated"
    blocks: list[Count]


class BlocksShared(_OwnerEvent):
    """Blocks that others hold or that were cached; each reference count went up by 1."""

    type: Literal["blocks_shared"] = "blocks_shared"
    blocks: list[Count]


class BlockCopied(_OwnerEvent):
    """Copy on write: the first `tokens` slots of `source` were copied into `target`."""

    type: Literal["block_copied"] = "block_copied"
    source: Count
    target: Count
    tokens: Count


class BlocksReleased(_OwnerEvent):
    """The sequence let go of blocks; each reference count went down by 1."""

    type: Literal["blocks_released"] = "blocks_released"
    blocks: list[Count]


class BlockEvicted(EventEnvelope):
    """A cached block with no user was given up for reuse."""

    type: Literal["block_evicted"] = "block_evicted"
    trial: Trial
    block: Count


class PrefixHit(_OwnerEvent):
    """`hit_tokens` of `queried_tokens` were found: full blocks, and `tail_tokens` of a partial one."""

    type: Literal["prefix_hit"] = "prefix_hit"
    queried_tokens: Count
    hit_tokens: Count
    tail_tokens: Count


class BatchMember(ContractModel):
    """One sequence's share of a batch: one token when decoding, a chunk when prefilling."""

    agent: Name
    call: CallIndex
    tokens: Count


class BatchExecuted(EventEnvelope):
    """One step of the model and who was in it."""

    type: Literal["batch_executed"] = "batch_executed"
    trial: Trial
    step: Count
    decode: list[BatchMember]
    prefill: list[BatchMember]
    duration_ns: Count
