"""Contamination check: a shadow of what each block slot really holds, compared with what it should.

A token's KV depends on every token before it, so a slot remembers not only token and position but the lineage
of the row that wrote it, read through that row's own block table: right token, wrong history is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from contract.failures import FailureReason
from runtime.errors import ContaminationError
from runtime.kv.block_table import CopyBlock

_ROOT_LINEAGE = 0
_LINEAGE_BITS = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class SlotContent:
    """Whose KV a slot holds: `token` at `position`; `lineage` stands for all tokens up to and with it."""

    token: int
    position: int
    lineage: int


class ForeignHistoryError(
    ContaminationError, kind="contamination-history", reason=FailureReason.CONTAMINATION
):
    """The slot holds the right token at the right position, computed after another history."""

    def __init__(self, sequence_id: str, position: int, token: int) -> None:
        super().__init__(sequence_id, position, token, token)
        self.args = (
            f"sequence {sequence_id}, position {position}: token {token} was computed in another context",
        )


def lineage_after(lineage: int, token: int) -> int:
    """Lineage one token further (64-bit mix; equal histories agree on every machine)."""
    mixed = (lineage ^ (token + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9 & _LINEAGE_BITS
    return (mixed ^ (mixed >> 29)) * 0x94D049BB133111EB & _LINEAGE_BITS


class BlockShadow:
    """Mirror of the pool's storage, `block_tokens` slots a block; the engine tells it each copy and write."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._slots: dict[int, SlotContent] = {}

    def copy(self, copy: CopyBlock) -> None:
        """The engine copied slots; slots that hold nothing are copied as nothing."""
        source, target = copy.source * self._block_tokens, copy.target * self._block_tokens
        for slot in range(copy.tokens):
            self._slots.pop(target + slot, None)
            if source + slot in self._slots:
                self._slots[target + slot] = self._slots[source + slot]

    def write(self, blocks: Sequence[int], start: int, tokens: Sequence[int]) -> None:
        """The engine wrote `tokens` at positions from `start` through block table `blocks`."""
        before = self.read(blocks, start - 1) if start else None
        lineage = before.lineage if before else _ROOT_LINEAGE
        for position, token in enumerate(tokens, start):
            lineage = lineage_after(lineage, token)
            self._slots[self._slot(blocks, position)] = SlotContent(token, position, lineage)

    def read(self, blocks: Sequence[int], position: int) -> SlotContent | None:
        """What attention reads for `position` through `blocks`; None where nothing was ever written."""
        return self._slots.get(self._slot(blocks, position))

    def verify(self, sequence: int, blocks: Sequence[int], tokens: Sequence[int]) -> None:
        """ContaminationError at the first position where `blocks` do not hold the computed `tokens`."""
        lineage = _ROOT_LINEAGE
        for position, token in enumerate(tokens):
            lineage = lineage_after(lineage, token)
            found = self.read(blocks, position)
            if found is None or (found.token, found.position) != (token, position):
                raise ContaminationError(str(sequence), position, token, found.token if found else None)
            if found.lineage != lineage:
                raise ForeignHistoryError(str(sequence), position, token)

    def _slot(self, blocks: Sequence[int], position: int) -> int:
        return blocks[position // self._block_tokens] * self._block_tokens + position % self._block_tokens
