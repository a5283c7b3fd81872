"""What one step of the model computes; instructions for the engine, in the order in which they hold."""

from dataclasses import dataclass

from runtime.errors import RuntimeFault
from runtime.kv.block_table import CopyBlock


@dataclass(frozen=True, slots=True)
class Row:
    """Compute `tokens` at positions from `start`, writing KV to `slots` and attending over `blocks`.

    slots: one per token, block * block_tokens + slot. blocks: the whole table, these tokens' blocks included.
    wants_logits: logits of the last token are needed, of no other.
    """

    sequence: int
    start: int
    tokens: tuple[int, ...]
    blocks: tuple[int, ...]
    slots: tuple[int, ...]
    wants_logits: bool

    @property
    def stop(self) -> int:
        """Tokens that attention sees from the last row: history and these."""
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Admission:
    """A sequence entered the batch with `cached_tokens` found; `missing_tokens` are to be computed.

    resumed: it had been preempted before.
    """

    sequence: int
    cached_tokens: int
    missing_tokens: int
    resumed: bool


@dataclass(frozen=True, slots=True)
class Preemption:
    """A sequence gave its blocks back; `dropped_tokens` of its KV were held by nobody else."""

    sequence: int
    dropped_tokens: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A sequence ended in this step before anything was computed for it."""

    sequence: int
    error: RuntimeFault


@dataclass(frozen=True, slots=True)
class Batch:
    """Make `copies` first, then write and attend for every row; commit samples for the rows that want logits.

    A batch without rows needs no commit.
    """

    step: int
    decode: tuple[Row, ...]
    prefill: tuple[Row, ...]
    copies: tuple[CopyBlock, ...]
    admitted: tuple[Admission, ...]
    preempted: tuple[Preemption, ...]
    failed: tuple[Failure, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """Decode rows, then prefill rows."""
        return self.decode + self.prefill

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens computed in this step."""
        return sum(len(row.tokens) for row in self.prefill)
