"""Which runs of blocks several decoding sequences share: a plan in plain numbers, no tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

MIN_SAVED_TOKENS: Final = 64
"""A run is read once for all only if that saves as many token reads: an extra attention call per layer costs
about as much as reading some dozens of tokens."""


@dataclass(frozen=True, slots=True)
class SharedRun:
    """Blocks that these rows all hold at the same place, all of them full."""

    rows: tuple[int, ...]
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CascadePlan:
    """Every key of every row exactly once: in the runs it shares, or from its own first block on."""

    runs: tuple[SharedRun, ...]
    own_from_block: tuple[int, ...]


def plan_cascade(
    block_tables: Sequence[Sequence[int]],
    context_tokens: Sequence[int],
    block_tokens: int,
    min_saved_tokens: int = MIN_SAVED_TOKENS,
) -> CascadePlan:
    """Find shared leading blocks, nested sharing included (all share the system prompt, two share a turn).

    The block of a row's last token is never shared: it is being written in this step.
    """
    own_from = [0] * len(block_tables)
    full = [
        tuple(table[: (tokens - 1) // block_tokens])
        for table, tokens in zip(block_tables, context_tokens, strict=True)
    ]
    runs: list[SharedRun] = []
    pending = [(tuple(range(len(full))), 0)]
    while pending:
        rows, depth = pending.pop()
        for members in _sharing_next_block(full, rows, depth):
            end = _common_depth([full[row] for row in members], depth)
            start = own_from[members[0]]
            if (len(members) - 1) * (end - start) * block_tokens >= min_saved_tokens:
                runs.append(SharedRun(members, full[members[0]][start:end]))
                for row in members:
                    own_from[row] = end
            pending.append((members, end))
    return CascadePlan(tuple(runs), tuple(own_from))


def _sharing_next_block(
    tables: Sequence[tuple[int, ...]], rows: tuple[int, ...], depth: int
) -> Iterator[tuple[int, ...]]:
    deeper = sorted((tables[row][depth], row) for row in rows if len(tables[row]) > depth)
    for _, members in groupby(deeper, key=lambda entry: entry[0]):
        group = tuple(row for _, row in members)
        if len(group) > 1:
            yield group


def _common_depth(tables: Sequence[tuple[int, ...]], depth: int) -> int:
    shortest = min(len(table) for table in tables)
    while depth < shortest and len({table[depth] for table in tables}) == 1:
        depth += 1
    return depth
