"""The scheduler under any interleaving of what callers, tools, memory and failures do to it."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.errors import NonFiniteLogitsError, PoolTooSmallError
from runtime.schedule.config import SchedulerConfig
from runtime.schedule.sequence import RUNNING, TERMINAL, Sequence, Status
from tests.runtime.schedule.shadow_engine import Ask, ShadowEngine

CHOICE = st.integers(0, 99)
# Beginnings that many prompts share, and ends that few do; outputs are of the same few tokens.
BEGINNINGS = st.sampled_from([[], [0, 1, 2], [0, 1, 2, 3, 4, 0, 1], [4] * 9, [0, 1, 2, 3, 1, 1, 1, 1, 1]])
ENDS = st.lists(st.integers(0, 4), min_size=1, max_size=6)
CONFIGS = st.builds(
    SchedulerConfig,
    max_batch=st.integers(1, 4),
    prefill_tokens=st.integers(1, 6),
    idle_prefill_tokens=st.integers(1, 16),
    high_watermark_blocks=st.integers(1, 3),
    low_watermark_blocks=st.integers(0, 1),
    aging_steps=st.integers(1, 8),
    follow_tokens=st.integers(1, 8),
)


class SchedulerOverAShadow(RuleBasedStateMachine):
    """Every step is checked by the engine; here is what callers see, and what is left in the end."""

    @initialize(config=CONFIGS, capacity=st.integers(3, 24), block_tokens=st.integers(2, 5))
    def start(self, config: SchedulerConfig, capacity: int, block_tokens: int) -> None:
        self.engine = ShadowEngine(capacity, block_tokens, config)
        self.scheduler = self.engine.scheduler
        self.pins: list[int] = []

    def _pick(self, choice: int) -> Sequence:
        live = (*self.scheduler.running, *self.scheduler.waiting)
        return live[choice % len(live)]

    def _live(self) -> bool:
        return hasattr(self, "scheduler") and self.scheduler.has_work

    @rule(beginning=BEGINNINGS, end=ENDS, priority=st.integers(0, 2), output=st.integers(1, 9))
    def submit(self, beginning: list[int], end: list[int], priority: int, output: int) -> None:
        if len(self.scheduler.waiting) < 6:
            self.engine.submit(Ask([*beginning, *end], output, priority, frozenset({4})))

    @rule(choice=CHOICE, result=ENDS, output=st.integers(1, 5))
    def continue_after_a_tool(self, choice: int, result: list[int], output: int) -> None:
        finished = [call for call in self.engine.calls.values() if call.status is Status.FINISHED]
        if finished and len(self.scheduler.waiting) < 6:
            before = finished[choice % len(finished)]
            self.engine.submit(Ask([*before.tokens[:40], *result], output, before.spec.priority))

    @rule(steps=st.integers(1, 4))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            had_work = self.scheduler.has_work
            decoding = {s.id for s in self.scheduler.running if s.status is Status.DECODE}
            roomy = self.engine.pool.available >= 8
            batch = self.engine.step()
            assert bool(batch.rows or batch.failed or batch.preempted) is had_work, "a step without progress"
            # Who had one token only has no pace yet.
            if any(self.engine.calls[row.sequence].output_tokens > 2 for row in batch.decode):
                assert batch.prefill_tokens <= self.engine.config.prefill_tokens
            if roomy:
                assert decoding <= {row.sequence for row in batch.decode}, "a decode was held up"

    @precondition(_live)
    @rule(choice=CHOICE)
    def cancel_in_flight(self, choice: int) -> None:
        batch = self.scheduler.step()
        if self.scheduler.has_work:
            self.scheduler.cancel(self._pick(choice).id)
        self.scheduler.commit(batch, self.engine.compute(batch))

    @precondition(_live)
    @rule(choice=CHOICE)
    def cancel(self, choice: int) -> None:
        self.scheduler.cancel(self._pick(choice).id)

    @precondition(_live)
    @rule(choice=CHOICE)
    def fail(self, choice: int) -> None:
        self.scheduler.fail(self._pick(choice).id, NonFiniteLogitsError(("x",)))

    @rule()
    def pressure(self) -> None:
        """All idle content goes."""
        self.engine.pool.release(self.engine.pool.allocate(self.engine.pool.available))

    @rule(choice=CHOICE)
    def pin_a_cached_block(self, choice: int) -> None:
        nodes = [node for node in self.engine.cache.nodes() if node.block >= 0]
        full = [node.block for node in nodes if len(node.tokens) == self.engine.block_tokens]
        if full and len(self.pins) < 2:
            self.pins.append(full[choice % len(full)])
            self.engine.pool.pin(self.pins[-1])

    @precondition(lambda self: self.pins)
    @rule()
    def unpin(self) -> None:
        self.engine.pool.unpin(self.pins.pop())

    @invariant()
    def references_are_running_tables_and_pins(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.engine.verify()
        held = Counter(block for s in self.scheduler.running for block in s.table.blocks)
        held.update(self.pins)
        pool = self.engine.pool
        assert all(pool.ref_count(block) == held[block] for block in range(pool.capacity))
        assert all(sequence.status in RUNNING for sequence in self.scheduler.running)
        assert all(not s.table.blocks and s.computed_tokens == 0 for s in self.scheduler.waiting)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.engine.run()
        for sequence in self.engine.calls.values():
            assert sequence.status in TERMINAL
            self.engine.check_output(sequence)
            if isinstance(sequence.error, PoolTooSmallError):
                assert sequence.error.needed_blocks > sequence.error.have_blocks
        for block in self.pins:
            self.engine.pool.unpin(block)
        assert self.engine.pool.counts().referenced == 0
        assert len(self.engine.pool.allocate(self.engine.capacity)) == self.engine.capacity
        assert not list(self.engine.cache.nodes())


TestSchedulerOverAShadow = SchedulerOverAShadow.TestCase
TestSchedulerOverAShadow.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


@dataclass
class Arrival:
    """A call and the step at which it is submitted."""

    at_step: int
    ask: Ask


def prompts_with_distinct_ends() -> st.SearchStrategy[list[list[int]]]:
    """Prompts that share beginnings, none the beginning of another: token 100 + n is the n-th's own last."""
    body = st.lists(st.integers(0, 1), min_size=0, max_size=12)
    bodies = st.lists(body, min_size=1, max_size=6)
    return bodies.map(lambda all_: [[*body, 100 + n] for n, body in enumerate(all_)])


@settings(max_examples=150)
@given(
    prompts=prompts_with_distinct_ends(),
    block_tokens=st.integers(2, 6),
    chunk_tokens=st.integers(1, 20),
    max_batch=st.integers(1, 6),
)
def test_each_distinct_prefix_is_computed_once_under_simultaneous_arrival(
    prompts: list[list[int]], block_tokens: int, chunk_tokens: int, max_batch: int
) -> None:
    config = SchedulerConfig(max_batch, chunk_tokens, chunk_tokens, 0, 0, follow_tokens=1)
    # Outputs stay out of the prompts' vocabulary, so that no output can stand in for a prompt.
    engine = ShadowEngine(200, block_tokens, config, vocabulary=1)
    engine.submit(Ask([7, 7, 7]))
    calls = [engine.submit(Ask([50, *prompt])) for prompt in prompts]
    engine.run()
    distinct = {tuple(prompt[: end + 1]) for prompt in prompts for end in range(len(prompt))}
    computed = sum(call.computed_prompt_tokens for call in calls)
    assert computed == len(distinct) + 1
    counters = engine.scheduler.counters
    assert computed + 3 == counters.submitted_prompt_tokens - counters.hit_tokens
    for call in calls:
        engine.check_output(call)


@settings(max_examples=80)
@given(
    arrivals=st.lists(
        st.builds(
            Arrival,
            st.integers(0, 20),
            st.builds(
                Ask,
                st.lists(st.integers(0, 2), min_size=1, max_size=12),
                st.integers(1, 8),
                st.integers(0, 3),
            ),
        ),
        min_size=1,
        max_size=10,
    ),
    capacity=st.integers(6, 30),
    config=CONFIGS,
)
def test_everyone_ends_within_a_bound_and_with_the_output_it_has_alone(
    arrivals: list[Arrival], capacity: int, config: SchedulerConfig
) -> None:
    engine = ShadowEngine(capacity, 4, config)
    calls = []
    for step in range(21):
        calls += [engine.submit(arrival.ask) for arrival in arrivals if arrival.at_step == step]
        engine.step()
    # Alone one after another: a prompt needs at most 12 steps (chunk 1) and 8 tokens of output at most 8.
    engine.run(limit_steps=4 * len(calls) * (12 + 8))
    for call in calls:
        assert call.status is Status.FINISHED
        engine.check_output(call)
