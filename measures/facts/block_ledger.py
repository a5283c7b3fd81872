"""The KV pool's accounting, rebuilt from the trace of block events: who holds which block, how often.

Samples of the pool are 50 ms apart and can miss what a short call held; the trace misses nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from contract.events import BlockEvicted, BlocksAllocated, BlocksReleased, BlocksShared, Event, KvSampled
from measures.facts.attempt import ImpossibleEventsError

Holder = tuple[str, int]
"""Agent and call."""

BlockEvent = BlocksAllocated | BlocksShared | BlocksReleased | BlockEvicted


@dataclass(slots=True)
class BlockLedger:
    """References of one trial's pool, event by event. A cached block without a holder is not in it."""

    references: dict[int, Counter[Holder]] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """Blocks that at least one sequence holds."""
        return len(self.references)

    def ref_count(self, block: int) -> int:
        """References to the block by all sequences."""
        return sum(self.references.get(block, Counter[Holder]()).values())

    def apply(self, event: Event) -> None:
        """Take one event; those that change no reference are passed over.

        ImpossibleEventsError for a block handed out while held, or let go by somebody who does not hold it.
        """
        match event:
            case BlocksAllocated():
                for block in event.blocks:
                    if block in self.references:
                        raise ImpossibleEventsError(f"block {block} was allocated while it was held")
                    self.references[block] = Counter([(event.agent, event.call)])
            case BlocksShared():
                for block in event.blocks:
                    self.references.setdefault(block, Counter())[event.agent, event.call] += 1
            case BlocksReleased():
                for block in event.blocks:
                    self._release(block, (event.agent, event.call))
            case BlockEvicted():
                if event.block in self.references:
                    raise ImpossibleEventsError(f"block {event.block} was evicted while it was held")

    def _release(self, block: int, holder: Holder) -> None:
        held = self.references.get(block, Counter[Holder]())
        if held[holder] == 0:
            raise ImpossibleEventsError(
                f"block {block} was released by agent {holder[0]}, call {holder[1]}, which does not hold it"
            )
        held[holder] -= 1
        if held[holder] == 0:
            del held[holder]
        if not held:
            del self.references[block]


@dataclass(slots=True)
class PeakReader:
    """The most blocks of one trial in use at once, between its samples too.

    An event at the very nanosecond of a sample counts as before it: the runtime samples after a step.
    """

    samples: Sequence[KvSampled]
    ledger: BlockLedger = field(default_factory=BlockLedger)
    peak: int = 0
    compared: int = 0
    is_whole: bool = True

    def apply(self, event: Event) -> None:
        """Take one event of the trial, in order."""
        self._compare(event.t_mono_ns)
        try:
            self.ledger.apply(event)
        except ImpossibleEventsError:
            self.is_whole = False
        self.peak = max(self.peak, self.ledger.used)

    def result(self) -> int | None:
        """None when the trace has gaps: it may lose events, and then does not fit itself or the samples."""
        self._compare(None)
        return self.peak if self.is_whole else None

    def _compare(self, until_ns: int | None) -> None:
        for sample in self.samples[self.compared :]:
            if until_ns is not None and sample.t_mono_ns >= until_ns:
                break
            self.compared += 1
            self.is_whole = self.is_whole and sample.blocks_used == self.ledger.used
