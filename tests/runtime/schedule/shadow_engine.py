"""An engine whose model is the shadow: the next token depends on all tokens read through the blocks.

A wrong block, a missed copy or a stale slot therefore changes the output, as it would with tensors.
"""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from runtime.kv.block_pool import BlockPool
from runtime.kv.contamination import BlockShadow, lineage_after
from runtime.kv.observer import RecordingObserver
from runtime.kv.prefix_cache import PrefixCache
from runtime.schedule.batch import Batch, Row
from runtime.schedule.config import SchedulerConfig
from runtime.schedule.scheduler import Scheduler
from runtime.schedule.sequence import RUNNING, CallSpec, Sequence, Status
from tests.runtime.kv.ledger import Ledger


@dataclass
class Draws:
    """A seeded sampler: what it draws depends on how often it was asked, as a random generator's does."""

    seed: int
    vocabulary: int
    count: int = 0

    def draw(self, lineage: int) -> int:
        self.count += 1
        return lineage_after(lineage ^ self.seed, self.count) % self.vocabulary


def alone(spec: CallSpec, sampler: Draws) -> list[int]:
    """What `spec` generates with nobody else there and no cache."""
    lineage = 0
    for token in spec.prompt:
        lineage = lineage_after(lineage, token)
    output: list[int] = []
    while len(output) < spec.max_output_tokens and not (output and output[-1] in spec.stop_tokens):
        output.append(sampler.draw(lineage))
        lineage = lineage_after(lineage, output[-1])
    return output


@dataclass
class Ask:
    """A call as the tests describe it."""

    prompt: Tokens[int]
    max_output_tokens: int = 4
    priority: int = 0
    stop_tokens: frozenset[int] = frozenset()


@dataclass
class ShadowEngine:
    """Scheduler, pool and shadow; every step is checked while it runs."""

    capacity: int = 64
    block_tokens: int = 4
    config: SchedulerConfig = field(default_factory=SchedulerConfig)
    vocabulary: int = 5

    def __post_init__(self) -> None:
        self.observer = RecordingObserver()
        self.pool = BlockPool(self.capacity, self.block_tokens, self.observer)
        self.cache = PrefixCache(self.pool)
        self.scheduler = Scheduler(self.cache, self.config)
        self.shadow = BlockShadow(self.block_tokens)
        self.ledger = Ledger(self.capacity)
        self.calls: dict[int, Sequence] = {}
        self.batches: list[Batch] = []

    def submit(self, ask: Ask) -> Sequence:
        number = len(self.calls)
        spec = CallSpec(
            sequence=number,
            agent=f"agent-{number}",
            call=0,
            prompt=tuple(ask.prompt),
            max_output_tokens=ask.max_output_tokens,
            stop_tokens=ask.stop_tokens,
            priority=ask.priority,
            sampling=Draws(number % 3, self.vocabulary),
        )
        self.calls[number] = self.scheduler.submit(spec)
        return self.calls[number]

    def step(self) -> Batch:
        batch = self.scheduler.step()
        self.scheduler.commit(batch, self.compute(batch))
        self.verify()
        return batch

    def run(self, limit_steps: int = 2000) -> None:
        """Until nothing is left; an AssertionError when that takes more than `limit_steps`."""
        for _ in range(limit_steps):
            if not self.scheduler.has_work:
                return
            batch = self.step()
            assert batch.rows or batch.failed or batch.preempted, "a step without progress"
        raise AssertionError(f"{limit_steps} steps were not enough: {self.scheduler.waiting}")

    def compute(self, batch: Batch) -> dict[int, int]:
        """Copies, then all writes, then samples; asserts that no row disturbs another."""
        self.batches.append(batch)
        gone = {preemption.sequence for preemption in batch.preempted}
        assert gone.isdisjoint(row.sequence for row in batch.rows), "a planned row lost its blocks"
        for copy in batch.copies:
            assert self.tables_holding(copy.target) <= 1
            self.shadow.copy(copy)
        written = [slot for row in batch.rows for slot in row.slots]
        assert len(set(written)) == len(written), "two rows write the same slot"
        for row in batch.rows:
            if self.calls[row.sequence].status in RUNNING:
                self._check_row(row, set(written) - set(row.slots))
        for row in batch.rows:
            self.shadow.write(row.blocks, row.start, row.tokens)
        return {row.sequence: self._sample(row) for row in batch.rows if row.wants_logits}

    def tables_holding(self, block: int) -> int:
        return sum(sequence.table.blocks.count(block) for sequence in self.scheduler.running)

    def _check_row(self, row: Row, written_by_others: set[int]) -> None:
        size = self.block_tokens
        for offset, slot in enumerate(row.slots):
            position = row.start + offset
            assert slot == row.blocks[position // size] * size + position % size
            assert self.tables_holding(slot // size) == 1, "a write to a block that others hold"
            assert slot % size >= self.pool.published_tokens(slot // size), "a write to published content"
        history = {row.blocks[p // size] * size + p % size for p in range(row.start)}
        assert not history & written_by_others, "a row reads what another writes in the same step"

    def _sample(self, row: Row) -> int:
        content = self.shadow.read(row.blocks, row.stop - 1)
        sampler = self.calls[row.sequence].spec.sampling
        assert content is not None
        assert isinstance(sampler, Draws)
        return sampler.draw(content.lineage)

    def verify(self) -> None:
        """Between steps: blocks hold their sequence's tokens, and the facts rebuild the accounting."""
        for sequence in self.scheduler.running:
            assert sequence.table.length_tokens == sequence.computed_tokens
            computed = sequence.tokens[: sequence.computed_tokens]
            self.shadow.verify(sequence.id, sequence.table.blocks, computed)
        self.ledger.replay(self.observer)
        self.ledger.agree_with(self.pool)
        assert self.pool.counts().peak_referenced <= self.capacity

    def check_output(self, sequence: Sequence) -> None:
        """A finished call generated what it generates alone; an unfinished one a prefix of that."""
        sampler = sequence.spec.sampling
        assert isinstance(sampler, Draws)
        expected = alone(sequence.spec, Draws(sampler.seed, sampler.vocabulary))
        assert sequence.output == expected[: len(sequence.output)]
        if sequence.status is Status.FINISHED:
            assert len(sequence.output) == len(expected)
            assert sampler.count == len(sequence.output), "a sample was drawn twice"
