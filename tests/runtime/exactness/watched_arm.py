"""The real arm (scheduler, pool, cache, model, contamination check); every forward and event is watched."""

from collections import Counter
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torch import Tensor

from contract.workload import Sampling
from runtime.engine.contiguous import ContiguousEngine
from runtime.engine.generator import CallBroke, CallDone, CallKey, CallRequest, Fact
from runtime.engine.paged import PagedEngine, PagedSetup
from runtime.kv.observer import NO_HOLDER
from runtime.measured.trace import TraceObserver
from runtime.model.forward_batch import ForwardBatch
from runtime.model.llama import LlamaModel
from runtime.model.paged_kv import PagedKV
from runtime.schedule.config import SchedulerConfig
from runtime.schedule.sequence import Sequence
from tests.fakes.tiny_model import CONTEXT_TOKENS
from tests.runtime.exactness.event_ledger import EventLedger
from tests.runtime.exactness.small_models import small_model

PRESSURE = CallKey("pressure", 0)


class WatchedModel:
    """The model; before each forward: no row writes where it may not, none reads what is written now."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        self.arm: WatchedArm | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, batch: ForwardBatch, kv: PagedKV) -> Tensor:
        assert self.arm is not None
        pool, size = self.arm.pool, self.arm.pool.block_tokens
        tables = Counter(block for s in self.arm.scheduler.running for block in s.table.blocks)
        written: list[tuple[int, int]] = []
        for span in batch.spans:
            for position in range(span.start_tokens, span.context_tokens):
                block, slot = span.block_table[position // size], position % size
                # A pin besides is a copy's source: its first slots are copied before anything is written.
                assert tables[block] == 1, "a write to a block that others hold"
                assert slot >= pool.published_tokens(block), "a write to published content"
                written.append((block, slot))
        assert len(set(written)) == len(written), "two rows write one slot"
        for span in batch.spans:
            history = {(span.block_table[p // size], p % size) for p in range(span.start_tokens)}
            assert not history & set(written), "a row reads what is written in the same step"
        return self._model.forward(batch, kv)


@dataclass
class Arrangement:
    """Sizes of the arm under test."""

    family: str = "llama"
    tier: str = "aten"
    blocks: int = 60
    block_tokens: int = 16
    config: SchedulerConfig = field(default_factory=SchedulerConfig)


class WatchedArm:
    """Calls in, facts out; after every step `check` holds all invariants that can be seen from here."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.family, self.tier = arrangement.family, arrangement.tier
        self.config = arrangement.config
        model = WatchedModel(small_model(arrangement.family, arrangement.tier))
        self.ledger = EventLedger()
        trace = TraceObserver(self.ledger, 1)
        trace.name_holder(NO_HOLDER, PRESSURE)
        setup = PagedSetup(
            arrangement.blocks, arrangement.block_tokens, arrangement.config, contamination_check=True
        )
        self.arm = PagedEngine(model, setup, trace)
        self.scheduler, self.pool = self.arm._scheduler, self.arm._pool
        model.arm = self
        self.requests: dict[CallKey, CallRequest] = {}
        self.ended: dict[CallKey, CallDone | CallBroke] = {}
        self.facts: list[Fact] = []

    def submit(self, prompt: Tokens[int], output_tokens: int, **more: Any) -> CallKey:
        """The next agent's call; ContextOverflowError or PoolTooSmallError where it can never fit."""
        key = CallKey(f"agent{len(self.requests)}", 0)
        values: dict[str, Any] = {"stop_tokens": frozenset(), "sampling": Sampling(), "priority": 5} | more
        request = CallRequest(key, tuple(prompt), output_tokens, **values)
        self.arm.check(request)
        self.requests[key] = request
        self.arm.submit(request)
        return key

    def step(self) -> list[Fact]:
        facts = self.arm.step()
        self._keep(facts)
        self.check()
        return facts

    def run(self, limit_steps: int = 2000) -> None:
        """Until every call has ended; an AssertionError when that takes too long."""
        for _ in range(limit_steps):
            if not self.arm.has_work:
                return
            assert self.step(), "a step in which nothing happened"
        raise AssertionError(f"{limit_steps} steps were not enough: {self.scheduler.waiting}")

    def cancel(self, sequence: Sequence) -> None:
        """Ends one call, as a scheduler is asked to; arms offer only the end of all."""
        ended = self.scheduler.cancel(sequence.id)
        self._keep([self.arm._end(ended, 0, "cancelled")])
        self.check()

    def take_memory(self) -> None:
        """Others need memory for a moment: whatever is only cached goes."""
        self.pool.release(self.pool.allocate(self.pool.available))
        self.check()

    def _keep(self, facts: list[Fact]) -> None:
        self.facts += facts
        self.ended |= {fact.key: fact for fact in facts if isinstance(fact, CallDone | CallBroke)}

    def of(self, kind: type) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    # --- invariants

    def check(self) -> None:
        """Every invariant between two steps; tests/runtime/exactness/test_calls.py says which."""
        counts = self.pool.counts()
        assert counts.free + counts.idle + counts.referenced == counts.capacity
        assert counts.peak_referenced <= counts.capacity
        tables = {sequence.id: sequence.table.blocks for sequence in self.scheduler.running}
        holders = Counter(block for blocks in tables.values() for block in blocks)
        assert all(self.pool.ref_count(block) == holders[block] for block in range(counts.capacity))
        self._check_shared_blocks_agree()
        self._check_events(holders)
        counters = self.scheduler.counters
        submitted = counters.submitted_prompt_tokens - counters.hit_tokens + counters.recomputed_tokens
        made = sum(sequence.output_tokens for sequence in self._sequences())
        assert counters.computed_tokens <= submitted + made + self._ended_outputs()

    def _check_shared_blocks_agree(self) -> None:
        size = self.pool.block_tokens
        content: dict[int, tuple[int, ...]] = {}
        for sequence in self.scheduler.running:
            for index, block in enumerate(sequence.table.blocks):
                history = tuple(sequence.tokens[: min((index + 1) * size, sequence.computed_tokens)])
                other = content.setdefault(block, history)
                common = min(len(other), len(history))
                assert other[:common] == history[:common], "two holders of a block disagree on its tokens"

    def _check_events(self, holders: Counter[int]) -> None:
        assert +self.ledger.refs == +holders
        assert self.ledger.used == self.arm.kv_state().blocks_used
        for sequence in self.scheduler.running:
            key = (sequence.spec.agent, sequence.spec.call)
            assert self.ledger.blocks_of(key) == sorted(sequence.table.blocks)

    def _sequences(self) -> tuple[Sequence, ...]:
        return (*self.scheduler.running, *self.scheduler.waiting)

    def _ended_outputs(self) -> int:
        """Tokens that ended calls had made; one that broke had at most its budget."""
        return sum(
            len(end.output) + 1 if isinstance(end, CallDone) else self.requests[key].max_output_tokens
            for key, end in self.ended.items()
        )

    def check_output(self, key: CallKey) -> None:
        """The call's tokens are its agent's alone in the serial arm; a cut call has their beginning."""
        end, request = self.ended[key], self.requests[key]
        expected = alone(small_model(self.family, self.tier), request.prompt, request.max_output_tokens)
        stops = [index for index, token in enumerate(expected) if token in request.stop_tokens]
        expected = expected[: stops[0]] if stops else expected
        assert isinstance(end, CallDone)
        if end.finish_reason == "cancelled":
            assert end.output == expected[: len(end.output)]
        else:
            assert end.output == expected

    def check_empty(self) -> None:
        """Nobody holds anything, and all of the pool can be had again."""
        counts = self.pool.counts()
        assert (counts.referenced, counts.pinned) == (0, 0)
        self.take_memory()
        assert self.pool.counts().free == counts.capacity
        assert len(self.scheduler._cache) == 0


@cache
def alone(model: LlamaModel, prompt: tuple[int, ...], output_tokens: int) -> tuple[int, ...]:
    """What the serial arm generates: one agent, contiguous cache, nothing shared; () where logits break."""
    arm = ContiguousEngine(model, CONTEXT_TOKENS, 64)
    arm.submit(CallRequest(CallKey("a", 0), prompt, output_tokens, frozenset(), Sampling(), 5))
    facts: list[Fact] = []
    while arm.has_work:
        facts += arm.step()
    arm.close()
    return next((fact.output for fact in facts if isinstance(fact, CallDone)), ())
