"""Agents on the real scheduler, pool, cache, model and kernels, under any interleaving of what may happen.

The invariants of the KV design, each asserted after every step (in WatchedArm.check unless said otherwise):
 1. free + referenced + cached = all blocks.
 2. A block's references are the tables that hold it; pins are gone between two steps.
 3. A block in two tables holds the same tokens for both, from the first on.
 4. A write goes only to a block with one reference, behind what is published (WatchedModel.forward).
 5. A block holds its holder's tokens at their positions (the contamination check, which ends the call).
 6. Eviction touches no block that is held (EventLedger).
 7. Nothing is freed twice, and the null block never (tests/runtime/kv/test_block_pool.py).
 8. When all is over nobody holds anything and the pool is whole (teardown).
 9. A prefix is computed once under simultaneous arrival (test_cascade_trees.py).
10. Tokens computed <= tokens submitted - hits, recomputation after a preemption aside.
11. Greedy tokens are those of the agent alone in the serial arm (teardown).
12. Everybody ends within a bound (teardown).
13. Beside decodes that have a pace at most the chunk is computed; no decode waits while memory lasts (step).
14. The pool never holds more than its budget.
15. A preempted call goes on with the same tokens (teardown: they are not told apart).
16. Another salt shares nothing (tests/runtime/kv/test_prefix_cache.py).
The accounting rebuilt from the block events alone equals the pool's own (EventLedger, after every step).
Forks and truncation, which no scheduler asks for, are in test_tables.py; steps that are lost or cancelled
while in flight need no model and are in tests/runtime/schedule/test_invariants.py.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contract.failures import FailureReason
from runtime.engine.generator import CallBroke, CallDone, StepRan
from runtime.errors import PoolTooSmallError
from runtime.schedule.config import SchedulerConfig
from runtime.schedule.pace import MIN_TOKENS
from runtime.schedule.sequence import Status
from tests.runtime.exactness.small_models import FAMILIES, POISON_ID, tiers
from tests.runtime.exactness.watched_arm import Arrangement, WatchedArm

CHOICE = st.integers(0, 99)
# Beginnings that many prompts share, to the token and in the middle of blocks, and ends that few do.
BEGINNINGS = st.sampled_from([[], [0, 1, 2], [0, 1, 2, 3, 4, 0, 1], [4] * 9, [0, 1, 2, 3, 1, 1, 1, 1, 1]])
ENDS = st.lists(st.integers(0, 4), min_size=1, max_size=6)
# Chunks of at most 4 tokens beside decodes: with these the scheduler's pace depends on no clock.
CONFIGS = st.builds(
    SchedulerConfig,
    max_batch=st.integers(1, 4),
    prefill_tokens=st.integers(1, MIN_TOKENS),
    idle_prefill_tokens=st.integers(1, 16),
    high_watermark_blocks=st.integers(1, 3),
    low_watermark_blocks=st.integers(0, 1),
    aging_steps=st.integers(1, 8),
    follow_tokens=st.integers(1, 8),
)


class AgentsOnAModel(RuleBasedStateMachine):
    """What callers see; the arm watches itself."""

    @initialize(
        kernels=st.tuples(st.sampled_from(sorted(FAMILIES)), st.sampled_from(tiers())),
        config=CONFIGS,
        blocks=st.integers(4, 20),
        block_tokens=st.integers(2, 8),
    )
    def start(
        self, kernels: tuple[str, str], config: SchedulerConfig, blocks: int, block_tokens: int
    ) -> None:
        self.arm = WatchedArm(Arrangement(*kernels, blocks, block_tokens, config))
        self.tokens = 0

    def _submit(self, prompt: list[int], output_tokens: int, priority: int, stop: frozenset[int]) -> None:
        if len(self.arm.scheduler.waiting) >= 5:
            return
        try:
            self.arm.submit(prompt, output_tokens, priority=priority, stop_tokens=stop)
        except PoolTooSmallError:
            assert len(prompt) > self.arm.pool.capacity * self.arm.pool.block_tokens
        else:
            self.tokens += len(prompt) + output_tokens

    def _live(self) -> bool:
        return hasattr(self, "arm") and self.arm.arm.has_work

    @rule(beginning=BEGINNINGS, end=ENDS, priority=st.integers(0, 2), output=st.integers(1, 8))
    def a_new_agent(self, beginning: list[int], end: list[int], priority: int, output: int) -> None:
        self._submit([*beginning, *end], output, priority, frozenset({7, 30}))

    @rule(choice=CHOICE, result=ENDS, output=st.integers(1, 5))
    def an_agent_comes_back_from_its_tool(self, choice: int, result: list[int], output: int) -> None:
        done = [key for key, end in self.arm.ended.items() if isinstance(end, CallDone) and end.output]
        if done:
            key = done[choice % len(done)]
            end = self.arm.ended[key]
            assert isinstance(end, CallDone)
            before = [*self.arm.requests[key].prompt, *end.output][:40]
            self._submit([*before, *result], output, self.arm.requests[key].priority, frozenset())

    @rule(beginning=BEGINNINGS, output=st.integers(1, 3))
    def an_agent_whose_logits_break(self, beginning: list[int], output: int) -> None:
        self._submit([*beginning, POISON_ID, 1], output, 1, frozenset())

    @rule(steps=st.sampled_from([1, 2, 4, 40]))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            if not self.arm.arm.has_work:
                return
            decoders = [s for s in self.arm.scheduler.running if s.status is Status.DECODE]
            decoding = {s.spec.agent for s in decoders}
            paced = {s.spec.agent for s in decoders if s.output_tokens > 1}
            is_roomy = self.arm.pool.available >= 8
            facts = self.arm.step()
            assert facts, "a step in which nothing happened"
            for ran in (fact for fact in facts if isinstance(fact, StepRan)):
                if paced & {key.agent for key, _ in ran.decode}:
                    beside = sum(tokens for _, tokens in ran.prefill)
                    assert beside <= self.arm.config.prefill_tokens
                if is_roomy:
                    assert decoding <= {key.agent for key, _ in ran.decode}, "a decode was held up"

    @precondition(_live)
    @rule(choice=CHOICE)
    def cancel(self, choice: int) -> None:
        live = (*self.arm.scheduler.running, *self.arm.scheduler.waiting)
        self.arm.cancel(live[choice % len(live)])

    @rule(beginning=BEGINNINGS, end=ENDS)
    def two_arrive_one_ends_and_memory_is_short(self, beginning: list[int], end: list[int]) -> None:
        """What is cached goes, and what was cached of it must not be found any more."""
        self._submit([*beginning, *end], 3, 0, frozenset())
        self.step(40)
        self.arm.take_memory()
        self._submit([*beginning, *end], 2, 0, frozenset())

    @rule()
    def memory_is_short_for_a_moment(self) -> None:
        self.arm.take_memory()

    @invariant()
    def all_is_accounted_for(self) -> None:
        if hasattr(self, "arm"):
            self.arm.check()

    def teardown(self) -> None:
        if not hasattr(self, "arm"):
            return
        # Alone one after the other, with chunks of one token, every token takes one step; preemptions and
        # aging may repeat some of them.
        self.arm.run(limit_steps=50 + 8 * self.tokens)
        assert set(self.arm.ended) == set(self.arm.requests)
        for key, end in self.arm.ended.items():
            if isinstance(end, CallDone):
                self.arm.check_output(key)
            elif POISON_ID in self.arm.requests[key].prompt:
                assert end.error.reason is FailureReason.NON_FINITE_LOGITS
            else:
                assert isinstance(end.error, PoolTooSmallError)
                assert end.error.needed_blocks > end.error.have_blocks
        assert not [end for end in self.arm.of(CallBroke) if end.error.reason is FailureReason.CONTAMINATION]
        self.arm.check_empty()


TestAgentsOnAModel = AgentsOnAModel.TestCase
TestAgentsOnAModel.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
