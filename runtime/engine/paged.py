"""The paged engine: the scheduler decides, the model computes, what happened is reported as facts."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from runtime.engine.generator import (
    Admitted,
    CallBroke,
    CallDone,
    CallKey,
    CallRequest,
    Fact,
    FinishReason,
    KVState,
    Preempted,
    Resumed,
    StepRan,
    TokenMade,
    make_sampler,
    output_before_stop,
)
from runtime.errors import (
    ContaminationError,
    ContextOverflowError,
    NonFiniteLogitsError,
    PoolTooSmallError,
    RuntimeFault,
)
from runtime.kv.block_pool import BlockPool
from runtime.kv.contamination import BlockShadow
from runtime.kv.observer import KVObserver
from runtime.kv.prefix_cache import PrefixCache
from runtime.model.draw import draw
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.llama import LlamaModel
from runtime.model.paged_kv import PagedKV
from runtime.model.sampler import SequenceSampler
from runtime.schedule.batch import Batch
from runtime.schedule.config import SchedulerConfig
from runtime.schedule.scheduler import Scheduler
from runtime.schedule.sequence import CallSpec, Sequence


@dataclass(frozen=True, slots=True)
class PagedSetup:
    """Sizes of one paged engine. contamination_check: each step verifies what the blocks hold."""

    pool_blocks: int
    block_tokens: int
    scheduler: SchedulerConfig
    contamination_check: bool = False


class CallObserver(KVObserver, Protocol):
    """Hears what the pool does, and which call each of the pool's holders is."""

    def name_holder(self, holder: int, key: CallKey) -> None:
        """From now on facts about `holder` are facts about this call."""
        ...


class PagedEngine:
    """Continuous batching over one block pool, with a prefix cache."""

    def __init__(self, model: LlamaModel, setup: PagedSetup, trace: CallObserver) -> None:
        self._model = model
        self._trace = trace
        self._kv = PagedKV(model.config, setup.pool_blocks, setup.block_tokens, model.placement)
        self._pool = BlockPool(setup.pool_blocks, setup.block_tokens, trace)
        self._scheduler = Scheduler(PrefixCache(self._pool), setup.scheduler)
        self._shadow = BlockShadow(setup.block_tokens) if setup.contamination_check else None
        self._live: dict[int, Sequence] = {}
        self._samplers: dict[int, SequenceSampler] = {}
        self._next_id = 0

    @property
    def has_work(self) -> bool:
        """True while any call is not at its end."""
        return self._scheduler.has_work

    def check(self, request: CallRequest) -> None:
        """ContextOverflowError or PoolTooSmallError when the call fits neither now nor later."""
        longest = len(request.prompt) + request.max_output_tokens - 1
        if longest > self._model.config.context_tokens:
            raise ContextOverflowError(longest, self._model.config.context_tokens)
        needed = self._pool.blocks_for(len(request.prompt))
        if needed > self._pool.capacity:
            raise PoolTooSmallError(needed, self._pool.capacity, "the prompt alone needs more than the pool")

    def submit(self, request: CallRequest) -> None:
        """Queues the call in the scheduler."""
        sequence_id = self._next_id
        self._next_id += 1
        self._samplers[sequence_id] = make_sampler(request)
        self._trace.name_holder(sequence_id, request.key)
        self._live[sequence_id] = self._scheduler.submit(
            CallSpec(
                sequence=sequence_id,
                agent=request.key.agent,
                call=request.key.call,
                prompt=request.prompt,
                max_output_tokens=request.max_output_tokens,
                stop_tokens=request.stop_tokens,
                priority=request.priority,
            )
        )

    def step(self) -> list[Fact]:
        """Computes the scheduler's next batch; a sequence that goes wrong fails alone."""
        batch = self._scheduler.step()
        facts = self._planned(batch)
        if not batch.rows:
            return facts
        started_ns = time.monotonic_ns()
        sampled, broken = self._compute(batch)
        for sequence_id, error in broken.items():
            self._scheduler.fail(sequence_id, error)
        finished = self._scheduler.commit(batch, sampled)
        now_ns = time.monotonic_ns()
        self._scheduler.observe(batch, now_ns - started_ns)
        members = [(self._key(row.sequence), len(row.tokens)) for row in batch.rows]
        decodes = len(batch.decode)
        facts.append(
            StepRan(
                now_ns, batch.step, tuple(members[:decodes]), tuple(members[decodes:]), now_ns - started_ns
            )
        )
        for sequence_id, token in sampled.items():
            if sequence_id not in broken:
                facts += self._token_fact(sequence_id, token, now_ns)
        facts += [self._end(sequence, now_ns) for sequence in finished]
        facts += [self._break(sequence_id, error, now_ns) for sequence_id, error in broken.items()]
        return facts

    def kv_state(self) -> KVState:
        """The pool and the queue at this moment."""
        counts = self._pool.counts()
        return KVState(
            blocks_total=counts.capacity,
            blocks_used=counts.referenced,
            blocks_cached=counts.idle,
            blocks_free=counts.free,
            sequences_running=len(self._scheduler.running),
            sequences_waiting=len(self._scheduler.waiting),
        )

    def cancel(self) -> list[Fact]:
        """Ends every call with what it has."""
        now_ns = time.monotonic_ns()
        return [
            self._end(self._scheduler.cancel(sequence_id), now_ns, "cancelled")
            for sequence_id in list(self._live)
        ]

    def close(self) -> None:
        """Frees the pool's tensors."""
        self._kv.free()

    def _planned(self, batch: Batch) -> list[Fact]:
        now_ns = time.monotonic_ns()
        facts: list[Fact] = [
            Preempted(self._key(out.sequence), now_ns, out.dropped_tokens) for out in batch.preempted
        ]
        for admission in batch.admitted:
            key = self._key(admission.sequence)
            if admission.resumed:
                facts.append(Resumed(key, now_ns, admission.missing_tokens))
            else:
                facts.append(Admitted(key, now_ns, admission.cached_tokens))
        return facts + [self._break(failure.sequence, failure.error, now_ns) for failure in batch.failed]

    def _compute(self, batch: Batch) -> tuple[dict[int, int], dict[int, RuntimeFault]]:
        """A token for each row that wants one, and the sequences whose computation went wrong."""
        self._kv.copy_slots((copy.source, copy.target, copy.tokens) for copy in batch.copies)
        spans = tuple(Span(row.tokens, row.start, int(row.wants_logits), row.blocks) for row in batch.rows)
        logits = self._model.forward(ForwardBatch(spans), self._kv)
        wanting = [row.sequence for row in batch.rows if row.wants_logits]
        sampled, broken = draw(logits, {sequence: self._samplers[sequence] for sequence in wanting})
        broken = {**self._broken_prompts(batch), **broken}
        if self._shadow is not None:
            broken = {**self._contaminated(batch, self._shadow), **broken}
        return sampled, broken

    def _broken_prompts(self, batch: Batch) -> dict[int, RuntimeFault]:
        """Prompts whose chunk is not a number somewhere: found before any of it is published.

        One such token spoils also those before it in its chunk (a hidden weight of 0 times NaN is NaN), and
        these may be the prefix of others.
        """
        finite = self._kv.are_finite([row.slots for row in batch.prefill])
        return {
            row.sequence: NonFiniteLogitsError((self._samplers[row.sequence].sequence_id,))
            for row, is_finite in zip(batch.prefill, finite, strict=True)
            if not is_finite
        }

    def _contaminated(self, batch: Batch, shadow: BlockShadow) -> Mapping[int, RuntimeFault]:
        for copy in batch.copies:
            shadow.copy(copy)
        for row in batch.rows:
            shadow.write(row.blocks, row.start, row.tokens)
        found: dict[int, RuntimeFault] = {}
        for row in batch.rows:
            try:
                shadow.verify(row.sequence, row.blocks, self._live[row.sequence].tokens[: row.stop])
            except ContaminationError as error:
                found[row.sequence] = error
        return found

    def _token_fact(self, sequence_id: int, token: int, now_ns: int) -> list[Fact]:
        sequence = self._live[sequence_id]
        if token in sequence.spec.stop_tokens:
            return []
        return [TokenMade(self._key(sequence_id), now_ns, sequence.output_tokens - 1, token)]

    def _end(self, sequence: Sequence, now_ns: int, reason: FinishReason | None = None) -> CallDone:
        stopped = bool(sequence.output) and sequence.output[-1] in sequence.spec.stop_tokens
        done = CallDone(
            key=self._key(sequence.id),
            t_ns=now_ns,
            finish_reason=reason or ("stop" if stopped else "length"),
            output=output_before_stop(sequence.output, sequence.spec.stop_tokens),
            prompt_tokens=len(sequence.spec.prompt),
            cached_tokens=sequence.cached_tokens,
            computed_tokens=sequence.computed_prompt_tokens,
        )
        self._forget(sequence.id)
        return done

    def _break(self, sequence_id: int, error: RuntimeFault, now_ns: int) -> CallBroke:
        broke = CallBroke(self._key(sequence_id), now_ns, error)
        self._forget(sequence_id)
        return broke

    def _forget(self, sequence_id: int) -> None:
        del self._live[sequence_id], self._samplers[sequence_id]

    def _key(self, sequence_id: int) -> CallKey:
        spec = self._live[sequence_id].spec
        return CallKey(spec.agent, spec.call)
