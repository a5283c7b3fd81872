"""Who holds which block, rebuilt from the block events alone, line by line as they stand in the file."""

from collections import Counter

from contract.events import (
    BlockCopied,
    BlockEvicted,
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    event_line,
    parse_event,
)
from contract.events.envelope import EventEnvelope

Holder = tuple[str, int]
"""Agent and call."""


class EventLedger:
    """Takes an emitter's place; an event that the accounting does not allow is an AssertionError."""

    def __init__(self) -> None:
        self.held: Counter[tuple[Holder, int]] = Counter()
        self.refs: Counter[int] = Counter()
        self.filled: set[int] = set()
        self.evicted = 0

    def emit(self, event: EventEnvelope) -> None:
        """As the emitter: here the event becomes a line and is read again."""
        match parse_event(event_line(event)):
            case BlocksAllocated(agent=agent, call=call, blocks=blocks):
                for block in blocks:
                    assert not self.refs[block], f"block {block} was allocated while it was held"
                    self._hold((agent, call), block)
            case BlocksShared(agent=agent, call=call, blocks=blocks):
                for block in blocks:
                    assert block in self.filled, f"block {block} was shared before it was ever allocated"
                    self._hold((agent, call), block)
            case BlocksReleased(agent=agent, call=call, blocks=blocks):
                for block in blocks:
                    assert self.held[(agent, call), block] > 0, f"{agent} gave back what it did not hold"
                    self.held[(agent, call), block] -= 1
                    self.refs[block] -= 1
            case BlockCopied(agent=agent, call=call, source=source, target=target):
                assert source in self.filled
                assert source != target
                assert self.held[(agent, call), target] > 0, "a copy into a block of somebody else"
            case BlockEvicted(block=block):
                assert not self.refs[block], f"block {block} was evicted while it was held"
                assert block in self.filled
                self.filled.discard(block)
                self.evicted += 1
            case _:
                pass

    def blocks_of(self, holder: Holder) -> list[int]:
        """Blocks that the call holds, sorted."""
        return sorted(
            block for (who, block), count in self.held.items() if who == holder for _ in range(count)
        )

    @property
    def used(self) -> int:
        """Blocks that anybody holds."""
        return sum(count > 0 for count in self.refs.values())

    def _hold(self, holder: Holder, block: int) -> None:
        self.held[holder, block] += 1
        self.refs[block] += 1
        self.filled.add(block)
