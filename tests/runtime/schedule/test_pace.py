"""Decodes keep their pace while a long prompt arrives: the scheduler on simulated machines."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.kv.block_pool import BlockPool
from runtime.kv.prefix_cache import PrefixCache
from runtime.schedule.config import SchedulerConfig
from runtime.schedule.pace import MEASURE_AGAIN_STEPS, MIN_TOKENS, PrefillPace
from runtime.schedule.scheduler import Scheduler
from runtime.schedule.sequence import CallSpec, Sequence, Status
from tests.runtime.schedule.shadow_engine import Ask, ShadowEngine

MS = 1_000_000


@dataclass
class Machine:
    """What steps take, in ms: a decode, its rows, a prefill's fixed cost, its tokens and their context."""

    decode: float = 20.0
    row: float = 2.0
    prefill: float = 4.0
    token: float = 0.4
    token_and_context: float = 0.0001
    noise: Callable[[], float] = lambda: 1.0

    def step_ns(self, decodes: int, tokens: int, context: int) -> int:
        ms = (self.decode + self.row * decodes) * bool(decodes)
        if tokens:
            ms += self.prefill + tokens * (self.token + self.token_and_context * context)
            ms += 0.0 if decodes else self.decode
        return round(ms * self.noise() * MS)


@dataclass
class Simulation:
    """A scheduler on `machine`; a chunk may be as large as the idle one."""

    machine: Machine = field(default_factory=Machine)
    chunk_tokens: int = 512
    now_ns: int = 0
    token_at_ns: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = SchedulerConfig(
            max_batch=16, prefill_tokens=self.chunk_tokens, idle_prefill_tokens=self.chunk_tokens
        )
        self.scheduler = Scheduler(PrefixCache(BlockPool(2000, 32)), config)

    def submit(self, number: int, prompt_tokens: int, output_tokens: int) -> Sequence:
        prompt = tuple(range(100_000 * number, 100_000 * number + prompt_tokens))
        self.token_at_ns[number] = []
        return self.scheduler.submit(CallSpec(number, f"agent{number}", 0, prompt, output_tokens))

    def step(self) -> int:
        """Prompt tokens of the step."""
        batch = self.scheduler.step()
        context = max((row.start for row in batch.prefill), default=0)
        took_ns = self.machine.step_ns(len(batch.decode), batch.prefill_tokens, context)
        self.now_ns += took_ns
        sampled = {row.sequence: 7 for row in batch.rows if row.wants_logits}
        for number in sampled:
            self.token_at_ns[number].append(self.now_ns)
        self.scheduler.commit(batch, sampled)
        self.scheduler.observe(batch, took_ns)
        return batch.prefill_tokens

    def decoding(self, agents: int) -> list[Sequence]:
        """So many agents that have decoded for a while."""
        made = [self.submit(number, 50, 1000) for number in range(agents)]
        while any(agent.output_tokens < 10 for agent in made):
            self.step()
        return made

    def gaps_ns(self, number: int) -> list[int]:
        times = self.token_at_ns[number]
        return [after - before for before, after in pairwise(times)]

    def until_decoding(self, sequence: Sequence, limit_steps: int = 2000) -> Iterator[int]:
        for _ in range(limit_steps):
            if sequence.status is Status.DECODE:
                return
            yield self.step()
        raise AssertionError(f"the prompt is not computed after {limit_steps} steps")


def stretch_of_a_long_prompt(machine: Machine, agents: int) -> tuple[float, float]:
    """(worst gap / median gap without prefill, time to the prompt's end / the same on an idle machine)."""
    simulation = Simulation(machine)
    simulation.decoding(agents)
    before_ns = median(simulation.gaps_ns(0)[-8:])
    start_ns, seen = simulation.now_ns, len(simulation.gaps_ns(0))
    long_prompt = simulation.submit(99, 2000, 1)
    for _ in simulation.until_decoding(long_prompt):
        if long_prompt.status is Status.FINISHED:
            break
    idle = Simulation(machine)
    alone = idle.submit(99, 2000, 1)
    while alone.status is not Status.FINISHED:
        idle.step()
    slower = (simulation.now_ns - start_ns) / idle.now_ns
    return max(simulation.gaps_ns(0)[seen:]) / before_ns, slower


@pytest.mark.parametrize("agents", [1, 4])
def test_a_long_prompt_at_most_doubles_the_gap_between_a_decode_s_tokens(agents: int) -> None:
    worst, slower = stretch_of_a_long_prompt(Machine(), agents)
    assert worst <= 2.3
    assert slower <= 4.0


MACHINES = st.builds(
    lambda decode, row, prefill_share, tokens_per_decode, context_growth: Machine(
        decode,
        row,
        prefill_share * decode,
        decode / tokens_per_decode,
        context_growth * decode / tokens_per_decode / 2000,
    ),
    decode=st.floats(1.0, 60.0),
    row=st.floats(0.0, 2.0),
    prefill_share=st.floats(0.0, 0.8),
    tokens_per_decode=st.floats(40.0, 2000.0),
    context_growth=st.floats(0.0, 2.0),
)


@settings(max_examples=40)
@given(machine=MACHINES, agents=st.integers(1, 8))
def test_on_any_machine_the_worst_gap_stays_below_the_bound_and_the_prompt_ends(
    machine: Machine, agents: int
) -> None:
    worst, slower = stretch_of_a_long_prompt(machine, agents)
    assert worst <= 4.0
    assert slower <= 12.0


@pytest.mark.parametrize("seed", range(4))
def test_noise_of_a_busy_machine_changes_the_typical_gap_little(seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine(noise=lambda: chance.uniform(0.9, 1.3) * (4.0 if chance.random() < 0.03 else 1.0))
    simulation = Simulation(machine)
    simulation.decoding(2)
    before_ns = median(simulation.gaps_ns(0)[-8:])
    seen = len(simulation.gaps_ns(0))
    long_prompt = simulation.submit(99, 2000, 5)
    chunks = [tokens for tokens in simulation.until_decoding(long_prompt) if tokens]
    assert 1.2 <= median(simulation.gaps_ns(0)[seen:]) / before_ns <= 2.6
    assert len(chunks) <= 2000 / MIN_TOKENS


def test_a_chunk_is_as_large_as_makes_it_pay_where_its_fixed_cost_alone_is_beyond_the_bound() -> None:
    """A device whose decode is a captured graph and whose prefill is not: small chunks cost the same."""
    simulation = Simulation(Machine(decode=3.0, row=0.0, prefill=20.0, token=0.02, token_and_context=0.0))
    simulation.decoding(1)
    chunks = list(simulation.until_decoding(simulation.submit(99, 2000, 5)))
    assert max(chunks) >= 400
    assert len([tokens for tokens in chunks if tokens]) <= 16


def test_the_first_step_beside_decodes_is_measured_without_prefill_and_so_is_one_later() -> None:
    pace = PrefillPace(SchedulerConfig(prefill_tokens=256))
    pace.observe(0, 500, 100 * MS)
    assert pace.tokens_beside(2) == 0
    pace.observe(2, 0, 20 * MS)
    for _ in range(MEASURE_AGAIN_STEPS):
        tokens = pace.tokens_beside(2)
        assert tokens >= MIN_TOKENS
        pace.observe(2, tokens, 20 * MS + tokens * MS // 5)
    assert pace.tokens_beside(2) == 0
    assert pace.tokens_beside(3) == 0, "another batch has another duration"


def test_without_observations_the_configured_chunk_holds() -> None:
    assert PrefillPace(SchedulerConfig(prefill_tokens=7)).tokens_beside(3) == 7


def test_a_slow_first_step_does_not_excuse_slow_ones() -> None:
    """The first decode may build kernels; one step with prefill shows that it was not a measure."""
    pace = PrefillPace(SchedulerConfig(prefill_tokens=512))
    pace.observe(0, 500, 100 * MS)
    pace.observe(1, 0, 3000 * MS)
    pace.observe(1, pace.tokens_beside(1), 120 * MS)
    pace.observe(1, pace.tokens_beside(1), 120 * MS)
    assert pace.tokens_beside(1) <= 600


def test_a_configured_chunk_below_the_least_is_never_exceeded() -> None:
    pace = PrefillPace(SchedulerConfig(prefill_tokens=3))
    pace.observe(1, 0, 10 * MS)
    assert pace.tokens_beside(1) == 3
    pace.observe(1, 3, 1000 * MS)
    assert pace.tokens_beside(1) == 3


def test_behind_a_first_token_the_own_parts_of_all_who_waited_are_computed_at_once() -> None:
    """Nobody has a pace to lose yet, and the last agent's first token is what they wait for."""
    engine = ShadowEngine(128, 4, SchedulerConfig(prefill_tokens=2, idle_prefill_tokens=64))
    prefix = list(range(1000, 1042))
    for number in range(4):
        engine.submit(Ask([*prefix, *range(10 * number, 10 * number + 9)], 8))
    engine.step()
    assert [len(row.tokens) for row in engine.step().rows] == [1, 9, 9, 9]
