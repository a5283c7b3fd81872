"""What happens to blocks, as facts. Whoever wants a trace implements `KVObserver`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

NO_HOLDER = -1
"""Holder id where no sequence is behind a change: pins and direct users of the pool."""


class KVObserver(Protocol):
    """One method per fact, called after the fact, in order. Ids are plain ints and must not be kept mutable.

    The pool's whole accounting can be rebuilt from these facts; tests/runtime/kv does so.
    """

    def blocks_allocated(self, holder: int, blocks: Sequence[int]) -> None:
        """Fresh blocks, each with reference count 1."""

    def blocks_shared(self, holder: int, blocks: Sequence[int]) -> None:
        """Reference count of each went up by 1; some may have been idle."""

    def blocks_released(self, holder: int, blocks: Sequence[int]) -> None:
        """Reference count of each went down by 1; at zero a published block is idle."""

    def blocks_freed(self, blocks: Sequence[int]) -> None:
        """Nobody holds these and nothing is cached in them: back on the free list."""

    def block_pinned(self, block: int) -> None:
        """Reference count went up by 1 and no sequence is behind it."""

    def block_unpinned(self, block: int) -> None:
        """A pin's reference is gone."""

    def block_published(self, block: int, tokens: int) -> None:
        """The block's first `tokens` slots are now cached content and never written again."""

    def block_unpublished(self, block: int) -> None:
        """The cache no longer knows the block."""

    def block_evicted(self, block: int) -> None:
        """An idle block was given up for reuse; an allocation follows."""

    def block_copied(self, holder: int, source: int, target: int, tokens: int) -> None:
        """Copy on write was instructed: first `tokens` slots."""

    def prefix_hit(self, holder: int, queried_tokens: int, hit_tokens: int, tail_tokens: int) -> None:
        """Of `queried_tokens`, `hit_tokens` were found; `tail_tokens` of them in a block not shared whole."""


class NullObserver:
    """Hears nothing."""

    def blocks_allocated(self, holder: int, blocks: Sequence[int]) -> None: ...

    def blocks_shared(self, holder: int, blocks: Sequence[int]) -> None: ...

    def blocks_released(self, holder: int, blocks: Sequence[int]) -> None: ...

    def blocks_freed(self, blocks: Sequence[int]) -> None: ...

    def block_pinned(self, block: int) -> None: ...

    def block_unpinned(self, block: int) -> None: ...

    def block_published(self, block: int, tokens: int) -> None: ...

    def block_unpublished(self, block: int) -> None: ...

    def block_evicted(self, block: int) -> None: ...

    def block_copied(self, holder: int, source: int, target: int, tokens: int) -> None: ...

    def prefix_hit(self, holder: int, queried_tokens: int, hit_tokens: int, tail_tokens: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Fact:
    """`name` is the observer's method; `holder` is NO_HOLDER where the fact has none."""

    name: str
    holder: int
    blocks: tuple[int, ...]
    tokens: tuple[int, ...] = ()


@dataclass(slots=True)
class RecordingObserver:
    """Keeps every fact in order; grows without bound, so for tests and short captures."""

    facts: list[Fact] = field(default_factory=list)

    def blocks_allocated(self, holder: int, blocks: Sequence[int]) -> None:
        self.facts.append(Fact("blocks_allocated", holder, tuple(blocks)))

    def blocks_shared(self, holder: int, blocks: Sequence[int]) -> None:
        self.facts.append(Fact("blocks_shared", holder, tuple(blocks)))

    def blocks_released(self, holder: int, blocks: Sequence[int]) -> None:
        self.facts.append(Fact("blocks_released", holder, tuple(blocks)))

    def blocks_freed(self, blocks: Sequence[int]) -> None:
        self.facts.append(Fact("blocks_freed", NO_HOLDER, tuple(blocks)))

    def block_pinned(self, block: int) -> None:
        self.facts.append(Fact("block_pinned", NO_HOLDER, (block,)))

    def block_unpinned(self, block: int) -> None:
        self.facts.append(Fact("block_unpinned", NO_HOLDER, (block,)))

    def block_published(self, block: int, tokens: int) -> None:
        self.facts.append(Fact("block_published", NO_HOLDER, (block,), (tokens,)))

    def block_unpublished(self, block: int) -> None:
        self.facts.append(Fact("block_unpublished", NO_HOLDER, (block,)))

    def block_evicted(self, block: int) -> None:
        self.facts.append(Fact("block_evicted", NO_HOLDER, (block,)))

    def block_copied(self, holder: int, source: int, target: int, tokens: int) -> None:
        self.facts.append(Fact("block_copied", holder, (source, target), (tokens,)))

    def prefix_hit(self, holder: int, queried_tokens: int, hit_tokens: int, tail_tokens: int) -> None:
        self.facts.append(Fact("prefix_hit", holder, (), (queried_tokens, hit_tokens, tail_tokens)))
