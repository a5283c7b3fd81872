"""Continuous batching over the block pool: who computes what in the next step.

The pool accounts, the cache matches, the scheduler decides, the engine acts:
    while scheduler.has_work: batch = step(); the engine computes it; commit(batch, sampled)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runtime.errors import PoolTooSmallError, RuntimeFault
from runtime.kv.block_table import BlockTable, CopyList, is_takeover
from runtime.kv.prefix_cache import PrefixCache, PrefixMatch
from runtime.kv.prefix_node import NodeState
from runtime.schedule.batch import Admission, Batch, Failure, Preemption, Row
from runtime.schedule.config import SchedulerConfig, SchedulerCounters
from runtime.schedule.errors import MissingSampleError, StepOrderError, UnknownSequenceError
from runtime.schedule.pace import PrefillPace
from runtime.schedule.sequence import RUNNING, CallSpec, Cause, Sequence, Status


@dataclass(slots=True)
class _Plan:
    decode: list[Row] = field(default_factory=list)
    prefill: list[Row] = field(default_factory=list)
    admitted: list[Admission] = field(default_factory=list)
    preempted: list[Preemption] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    planned: set[int] = field(default_factory=set)


class Scheduler:
    """Sequences in, batches out. `step` and `commit` alternate; everything else may be called in between."""

    def __init__(self, cache: PrefixCache, config: SchedulerConfig) -> None:
        self.config = config
        self._max_batch = config.max_batch
        self.counters = SchedulerCounters()
        self._cache = cache
        self._pool = cache.pool
        self._copies = CopyList(cache.pool)
        self._pace = PrefillPace(config)
        self._waiting: dict[int, Sequence] = {}
        self._running: dict[int, Sequence] = {}
        self._open: Batch | None = None
        self._step = 0
        self._arrivals = 0

    @property
    def has_work(self) -> bool:
        """True while any sequence is not at its end."""
        return bool(self._waiting or self._running)

    @property
    def running(self) -> tuple[Sequence, ...]:
        """Sequences that hold blocks."""
        return tuple(self._running.values())

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """Sequences that hold none: waiting, following a leader, preempted."""
        return tuple(self._waiting.values())

    def submit(self, spec: CallSpec) -> Sequence:
        """Queues a call; the returned state is live. UnknownSequenceError when its id is in use."""
        if spec.sequence in self._waiting or spec.sequence in self._running:
            raise UnknownSequenceError(spec.sequence, "the id is in use")
        sequence = Sequence(spec, self._arrivals, BlockTable(self._cache, self._copies, spec.sequence))
        self._arrivals += 1
        self._waiting[spec.sequence] = sequence
        self.counters.submitted_prompt_tokens += len(spec.prompt)
        return sequence

    def step(self) -> Batch:
        """Decides the next batch. StepOrderError before the last one was committed."""
        if self._open is not None:
            raise StepOrderError(self._step, "is not committed")
        self._step += 1
        plan = _Plan()
        self._lend_priorities()
        self._plan_decodes(plan)
        self._plan_prefills(plan, self._prefill_limit_tokens(plan))
        for sequence in (*self._waiting.values(), *self._running.values()):
            sequence.waited_steps += sequence.id not in plan.planned
        batch = Batch(
            step=self._step,
            decode=tuple(plan.decode),
            prefill=tuple(plan.prefill),
            copies=self._copies.waiting(),
            admitted=tuple(plan.admitted),
            preempted=tuple(plan.preempted),
            failed=tuple(plan.failed),
        )
        self._open = batch if batch.rows else None
        return batch

    def commit(self, batch: Batch, sampled: Mapping[int, int]) -> tuple[Sequence, ...]:
        """The engine computed `batch`; `sampled` has a token for each row with logits. Returns who is done.

        Rows of sequences that ended meanwhile are passed over. MissingSampleError and StepOrderError are
        raised before anything changes.
        """
        rows = [(row, self._running[row.sequence]) for row in self._close(batch) if self._is_live(row)]
        for row, _ in rows:
            if row.wants_logits and row.sequence not in sampled:
                raise MissingSampleError(row.sequence, batch.step)
        self._open = None
        self._copies.settle()
        done = []
        for row, sequence in rows:
            self._advance(sequence, row)
            if row.wants_logits:
                sequence.tokens.append(sampled[row.sequence])
                if sequence.is_complete:
                    done.append(sequence)
        for sequence in done:
            self._end(sequence, Cause.FINISHED)
        return tuple(done)

    def observe(self, batch: Batch, duration_ns: int) -> None:
        """The committed `batch` took so long: from then on prefill keeps to the pace of the decodes."""
        self._pace.observe(len(batch.decode), batch.prefill_tokens, duration_ns)

    def cancel(self, sequence: int) -> Sequence:
        """Ends a sequence at once, whatever its state; who followed it looks for another leader."""
        return self._end(self._live(sequence), Cause.CANCELLED)

    def fail(self, sequence: int, error: RuntimeFault) -> Sequence:
        """Ends a sequence whose computation went wrong; what only it holds is not kept in the cache."""
        failed = self._live(sequence)
        failed.error = error
        failed.table.discard()
        failed.computed_tokens = 0
        return self._end(failed, Cause.FAILED)

    def _lend_priorities(self) -> None:
        """A leader is as urgent as whoever waits for it, while they wait: nobody between holds it up."""
        for sequence in self._running.values():
            sequence.urged_priority = None
        for sequence in self._waiting.values():
            node = sequence.follows
            leader = self._running.get(node.leader) if node and node.state is NodeState.PENDING else None
            if leader is not None:
                priority = sequence.priority(self.config.aging_steps)
                leader.urged_priority = max(leader.urged_priority or priority, priority)

    def _plan_decodes(self, plan: _Plan) -> None:
        for sequence in self._by_precedence(self._running.values()):
            if sequence.status is Status.DECODE and self._grant(sequence, 1, plan):
                plan.decode.append(self._row(sequence, 1, plan))

    def _prefill_limit_tokens(self, plan: _Plan) -> int:
        """The whole chunk while nobody has a pace to lose: a first token alone, or a fan-out behind it."""
        if all(self._running[row.sequence].output_tokens == 1 for row in plan.decode):
            return self.config.idle_prefill_tokens
        return self._pace.tokens_beside(len(plan.decode))

    def _plan_prefills(self, plan: _Plan, limit_tokens: int) -> None:
        """Running and waiting prompts share the step's tokens in one order; none overtakes for memory."""
        blocked = False
        for sequence in self._by_precedence((*self._running.values(), *self._waiting.values())):
            if not limit_tokens:
                return
            wanted = min(limit_tokens, sequence.uncomputed_tokens)
            if sequence.status is Status.PREFILL:
                tokens = self._grant(sequence, wanted, plan)
            elif sequence.id in self._waiting:
                blocked = blocked or bool(plan.preempted) or len(self._running) >= self._max_batch
                match = None if blocked else self._look_up(sequence)
                if match is None:
                    continue
                blocked = not self._admit(sequence, match, plan)
                tokens = min(limit_tokens, sequence.uncomputed_tokens) if sequence.id in self._running else 0
            else:
                continue
            if tokens:
                plan.prefill.append(self._row(sequence, tokens, plan))
                limit_tokens -= tokens

    def _admit(self, sequence: Sequence, match: PrefixMatch, plan: _Plan) -> bool:
        """False when the sequence must wait for memory. One that nobody's leaving could help fails."""
        affordable = self._affordable(sequence, match)
        if affordable is not None:
            self._join(sequence, affordable, plan)
        elif self._running:
            return False
        else:
            self._fail_for_memory(sequence, len(sequence.tokens), plan)
        return True

    def _look_up(self, sequence: Sequence) -> PrefixMatch | None:
        """What is cached of the prompt; None while a leader computes more of it, worth waiting for."""
        if sequence.follows is not None:
            if sequence.follows.state is NodeState.PENDING:
                return None
            sequence.follows = None
            sequence.move(Cause.LEADER_DONE)
        # One that waits for memory is looked up in every step: only what changed may cost time.
        if sequence.matched is None or sequence.matched[0] != self._cache.changes:
            sequence.matched = self._cache.changes, self._cache.match(sequence.tokens)
        match = sequence.matched[1]
        worth_tokens = min(self.config.follow_tokens, self._pool.block_tokens)
        if match.pending is None or match.pending_tokens < worth_tokens:
            return match
        sequence.follows, sequence.matched = match.pending, None
        sequence.move(Cause.FOLLOWED)
        return None

    def _affordable(self, sequence: Sequence, match: PrefixMatch) -> PrefixMatch | None:
        """What to join so that all its tokens fit; None when they do not fit now."""
        if self._fits(sequence, match):
            return match
        match = match.without_tail()
        return match if self._fits(sequence, match) else None

    def _fits(self, sequence: Sequence, match: PrefixMatch) -> bool:
        pool = self._pool
        woken = sum(pool.ref_count(block) == 0 for block in match.blocks)
        needed = pool.blocks_for(len(sequence.tokens)) - len(match.blocks)
        if match.tail:
            woken += pool.ref_count(match.tail.source) == 0
            needed -= is_takeover(pool, match.tail)
        promised = sum(
            max(0, pool.blocks_for(len(other.tokens)) - len(other.table.blocks))
            for other in self._running.values()
        )
        keep = self.config.high_watermark_blocks if self._running else 0
        return pool.available - woken - needed - promised >= keep

    def _join(self, sequence: Sequence, match: PrefixMatch, plan: _Plan) -> None:
        del self._waiting[sequence.id]
        self._running[sequence.id] = sequence
        sequence.move(Cause.ADMITTED)
        sequence.matched = None
        sequence.table.join(match)
        sequence.computed_tokens = match.matched_tokens
        resumed = sequence.admitted_before
        if resumed:
            self.counters.recomputed_tokens += sequence.uncomputed_tokens
        else:
            sequence.admitted_before = True
            sequence.cached_tokens = match.matched_tokens
            self.counters.hit_tokens += match.matched_tokens
            tail_tokens = match.tail.tokens if match.tail else 0
            self._pool.observer.prefix_hit(
                sequence.id, len(sequence.tokens), match.matched_tokens, tail_tokens
            )
        known = len(match.nodes) * self._pool.block_tokens
        self._cache.reserve(sequence.id, sequence.table.last_node, sequence.tokens[known:])
        plan.admitted.append(
            Admission(sequence.id, match.matched_tokens, sequence.uncomputed_tokens, resumed)
        )

    def _grant(self, sequence: Sequence, wanted_tokens: int, plan: _Plan) -> int:
        """Tokens that `sequence` may append now, after preempting whom it must; 0 stalls it for this step.

        The first in precedence is never stalled for good: in the end it is alone and has the whole pool.
        """
        while True:
            alone = len(self._running) == 1
            keep = 0 if alone else self.config.low_watermark_blocks
            granted = sequence.table.appendable(wanted_tokens, max(0, self._pool.available - keep))
            if granted:
                return granted
            victim = self._victim_below(sequence, plan)
            if victim is not None:
                self._preempt(victim, plan)
            elif alone:
                self._fail_for_memory(sequence, sequence.table.length_tokens + 1, plan)
                return 0
            else:
                return 0

    def _victim_below(self, sequence: Sequence, plan: _Plan) -> Sequence | None:
        below = [
            other
            for other in self._running.values()
            if other.id not in plan.planned and self._precedence(other) > self._precedence(sequence)
        ]
        return max(below, key=self._precedence, default=None)

    def _preempt(self, sequence: Sequence, plan: _Plan) -> None:
        size = self._pool.block_tokens
        dropped = sum(
            min(size, sequence.computed_tokens - index * size)
            for index, block in enumerate(
                sequence.table.blocks[: self._pool.blocks_for(sequence.computed_tokens)]
            )
            if self._pool.ref_count(block) == 1
        )
        self._give_back(sequence)
        sequence.move(Cause.PREEMPTED)
        sequence.preemptions += 1
        self.counters.preemptions += 1
        self._waiting[sequence.id] = sequence
        plan.preempted.append(Preemption(sequence.id, dropped))

    def _fail_for_memory(self, sequence: Sequence, tokens: int, plan: _Plan) -> None:
        have = self._pool.capacity - self._pool.pinned_blocks
        sequence.error = PoolTooSmallError(needed_blocks=self._pool.blocks_for(tokens), have_blocks=have)
        self._end(sequence, Cause.FAILED)
        plan.failed.append(Failure(sequence.id, sequence.error))

    def _row(self, sequence: Sequence, tokens: int, plan: _Plan) -> Row:
        start = sequence.computed_tokens
        slots = sequence.table.append(tokens)
        plan.planned.add(sequence.id)
        return Row(
            sequence=sequence.id,
            start=start,
            tokens=tuple(sequence.tokens[start : start + tokens]),
            blocks=tuple(sequence.table.blocks),
            slots=tuple(slots),
            wants_logits=start + tokens == len(sequence.tokens),
        )

    def _advance(self, sequence: Sequence, row: Row) -> None:
        sequence.computed_tokens = row.stop
        sequence.computed_prompt_tokens += max(0, min(row.stop, len(sequence.spec.prompt)) - row.start)
        self.counters.computed_tokens += len(row.tokens)
        if sequence.status is Status.PREFILL and row.wants_logits:
            sequence.table.publish_tail(sequence.tokens)
            self._cache.abandon(sequence.id)
            sequence.move(Cause.PROMPT_COMPUTED)
        elif row.stop // self._pool.block_tokens > sequence.table.published_blocks:
            sequence.table.publish(sequence.tokens[: row.stop])

    def _end(self, sequence: Sequence, cause: Cause) -> Sequence:
        self._give_back(sequence)
        sequence.move(cause)
        if cause is Cause.FINISHED:
            self.counters.finished += 1
        elif cause is Cause.FAILED:
            self.counters.failed += 1
        else:
            self.counters.cancelled += 1
        return sequence

    def _give_back(self, sequence: Sequence) -> None:
        """Blocks go back; what is computed stays cached, unless a batch in flight has yet to copy it."""
        in_flight = self._open is not None and any(row.sequence == sequence.id for row in self._open.rows)
        if not in_flight and sequence.status in RUNNING:
            sequence.table.publish_tail(sequence.tokens[: sequence.computed_tokens])
        sequence.table.release()
        sequence.computed_tokens = 0
        sequence.follows = sequence.urged_priority = None
        self._cache.abandon(sequence.id)
        self._waiting.pop(sequence.id, None)
        self._running.pop(sequence.id, None)

    def _by_precedence(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        return sorted(sequences, key=self._precedence)

    def _precedence(self, sequence: Sequence) -> tuple[int, int]:
        return -sequence.priority(self.config.aging_steps), sequence.arrival

    def _is_live(self, row: Row) -> bool:
        return row.sequence in self._running

    def _live(self, sequence: int) -> Sequence:
        found = self._running.get(sequence) or self._waiting.get(sequence)
        if found is None:
            raise UnknownSequenceError(sequence, "no live sequence has this id")
        return found

    def _close(self, batch: Batch) -> tuple[Row, ...]:
        """The batch's rows; StepOrderError unless it is the one in flight."""
        if batch.rows and batch is not self._open:
            raise StepOrderError(batch.step, "is not the batch in flight")
        return batch.rows
