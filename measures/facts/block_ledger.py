"""The KV pool's accounting, rebuilt from the trace of block events: who holds which block, how often.

Serves as a check of the runtime (the figures must be those of kv_sampled) and of a trace that somebody sends.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from contract.events import BlockEvicted, BlocksAllocated, BlocksReleased, BlocksShared, Event, KvSampled
from measures.facts.attempt import ImpossibleEventsError

Holder = tuple[str, int]
"""Agent and call."""


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


def used_blocks(trace: Iterable[Event], samples: Sequence[KvSampled]) -> list[int]:
    """Blocks in use at each sample, from the trace alone; both of one trial, in order, of one clock.

    An event at the very nanosecond of a sample counts as before it: the runtime samples after a step.
    """
    ledger = BlockLedger()
    pending = list(trace)
    position = 0
    used: list[int] = []
    for sample in samples:
        while position < len(pending) and pending[position].t_mono_ns <= sample.t_mono_ns:
            ledger.apply(pending[position])
            position += 1
        used.append(ledger.used)
    return used
