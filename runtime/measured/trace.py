"""The trace of blocks: what the pool does, as events of the log stream."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from contract.events import (
    BlockCopied,
    BlockEvicted,
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    PrefixHit,
)
from runtime.engine.generator import CallKey
from runtime.kv.observer import NullObserver
from runtime.measured.emit import PENDING_SEQ, EventEmitter

_OfBlocks = BlocksAllocated | BlocksShared | BlocksReleased

BLOCKS_PER_EVENT = 8192
"""Longer lists are split, so that a line stays far below the contract's limit."""


class TraceObserver(NullObserver):
    """Emits the pool's facts for one trial; pins and publishing, with no call behind them, have no event."""

    def __init__(self, emitter: EventEmitter, trial: int) -> None:
        self._emitter = emitter
        self._trial = trial
        self._keys: dict[int, CallKey] = {}

    def name_holder(self, holder: int, key: CallKey) -> None:
        """From now on facts about `holder` are facts about this call."""
        self._keys[holder] = key

    def blocks_allocated(self, holder: int, blocks: Sequence[int]) -> None:
        self._emit_blocks(BlocksAllocated, holder, blocks)

    def blocks_shared(self, holder: int, blocks: Sequence[int]) -> None:
        self._emit_blocks(BlocksShared, holder, blocks)

    def blocks_released(self, holder: int, blocks: Sequence[int]) -> None:
        self._emit_blocks(BlocksReleased, holder, blocks)

    def block_evicted(self, block: int) -> None:
        self._emitter.emit(BlockEvicted(**self._of_trial(), block=block))

    def block_copied(self, holder: int, source: int, target: int, tokens: int) -> None:
        self._emitter.emit(BlockCopied(**self._of_call(holder), source=source, target=target, tokens=tokens))

    def prefix_hit(self, holder: int, queried_tokens: int, hit_tokens: int, tail_tokens: int) -> None:
        """Emits prefix_hit, unless nothing was found."""
        if not hit_tokens:
            return
        self._emitter.emit(
            PrefixHit(
                **self._of_call(holder),
                queried_tokens=queried_tokens,
                hit_tokens=hit_tokens,
                tail_tokens=tail_tokens,
            )
        )

    def _emit_blocks(self, kind: type[_OfBlocks], holder: int, blocks: Sequence[int]) -> None:
        for part in _parts(blocks):
            self._emitter.emit(kind(**self._of_call(holder), blocks=part))

    def _of_call(self, holder: int) -> dict[str, Any]:
        """What every event about a call of the trial begins with."""
        agent, call = self._keys[holder]
        return {**self._of_trial(), "agent": agent, "call": call}

    def _of_trial(self) -> dict[str, Any]:
        return {"seq": PENDING_SEQ, "t_mono_ns": time.monotonic_ns(), "trial": self._trial}


def _parts(blocks: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(blocks), BLOCKS_PER_EVENT):
        yield list(blocks[start : start + BLOCKS_PER_EVENT])
