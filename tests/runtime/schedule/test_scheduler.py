"""The scheduler, one behaviour at a time; the model is the shadow of the blocks."""

import pytest

from runtime.errors import NonFiniteLogitsError, PoolTooSmallError
from runtime.schedule.config import SchedulerConfig
from runtime.schedule.errors import MissingSampleError, StepOrderError, UnknownSequenceError
from runtime.schedule.sequence import Sequence, Status
from tests.runtime.schedule.shadow_engine import Ask, ShadowEngine

FREE_WATERMARKS = {"high_watermark_blocks": 0, "low_watermark_blocks": 0}


def engine_of(capacity: int = 64, **config: int) -> ShadowEngine:
    return ShadowEngine(capacity, 4, SchedulerConfig(**config))


def done(engine: ShadowEngine, *sequences: Sequence) -> None:
    """Runs to the end and compares every output with the run alone."""
    engine.run()
    for sequence in sequences:
        assert sequence.status is Status.FINISHED
        engine.check_output(sequence)
    assert engine.pool.counts().referenced == 0


def test_one_call_generates_what_it_generates_alone() -> None:
    engine = engine_of()
    sequence = engine.submit(Ask(range(10), max_output_tokens=9))
    done(engine, sequence)
    assert len(sequence.output) == 9


def test_a_stop_token_ends_the_call_and_is_its_last_output() -> None:
    engine = engine_of()
    free = engine.submit(Ask(range(10), max_output_tokens=20))
    done(engine, free)
    other = ShadowEngine(64, 4)
    stopping = other.submit(Ask(range(10), 20, stop_tokens=frozenset({free.output[2]})))
    done(other, stopping)
    first = free.output.index(free.output[2])
    assert stopping.output == free.output[: first + 1]


def test_all_decodes_of_a_step_are_in_one_batch_before_any_prefill() -> None:
    engine = engine_of(prefill_tokens=4)
    engine.submit(Ask(range(8), 20))
    engine.submit(Ask(range(50, 58), 20))
    engine.step()
    engine.step()
    engine.submit(Ask(range(100, 120)))
    batch = engine.step()
    assert [len(row.tokens) for row in batch.rows] == [1, 1, 4]
    assert len(batch.decode) == 2


def test_several_waiting_prompts_are_prefilled_in_one_batch() -> None:
    engine = engine_of(idle_prefill_tokens=20)
    for start in (0, 100, 200):
        engine.submit(Ask(range(start, start + 8)))
    assert [len(row.tokens) for row in engine.step().prefill] == [8, 8, 4]


def test_a_long_prompt_never_delays_a_decode_beyond_the_chunk() -> None:
    engine = engine_of(prefill_tokens=5)
    decoding = engine.submit(Ask(range(4), 30))
    engine.step()
    engine.step()
    long_prompt = engine.submit(Ask(range(100, 200)))
    while long_prompt.status is not Status.DECODE:
        batch = engine.step()
        assert batch.prefill_tokens <= 5
        assert [row.sequence for row in batch.decode] == [decoding.id]
    assert len(engine.batches) == 2 + 20


def test_logits_are_asked_for_the_last_prompt_token_only() -> None:
    engine = engine_of(idle_prefill_tokens=4)
    engine.submit(Ask(range(10)))
    assert [engine.step().rows[0].wants_logits for _ in range(3)] == [False, False, True]


def test_no_more_sequences_run_than_the_batch_limit() -> None:
    engine = engine_of(max_batch=2)
    for start in range(0, 500, 100):
        engine.submit(Ask(range(start, start + 4), 12))
    engine.step()
    assert len(engine.scheduler.running) == 2
    engine.step()
    assert len(engine.scheduler.running) == 2


def test_agents_that_arrive_together_compute_their_common_prefix_once() -> None:
    engine = engine_of(capacity=128)
    prefix = list(range(1000, 1042))
    agents = [engine.submit(Ask([*prefix, 10 * n, 10 * n + 1, 10 * n + 2])) for n in range(5)]
    engine.step()
    assert [agent.status for agent in agents] == [Status.DECODE] + [Status.PENDING_PREFIX] * 4
    batch = engine.step()
    assert [len(row.tokens) for row in batch.prefill] == [3] * 4
    done(engine, *agents)
    assert sum(agent.computed_prompt_tokens for agent in agents) == 42 + 5 * 3
    assert [agent.cached_tokens for agent in agents] == [0, 42, 42, 42, 42]


def test_identical_prompts_compute_one_token_each_but_the_leader() -> None:
    engine = engine_of()
    agents = [engine.submit(Ask(range(18))) for _ in range(3)]
    done(engine, *agents)
    assert [agent.computed_prompt_tokens for agent in agents] == [18, 1, 1]


def test_followers_join_as_soon_as_their_part_of_the_leaders_prompt_is_ready() -> None:
    engine = engine_of(idle_prefill_tokens=8, prefill_tokens=8)
    leader = engine.submit(Ask(range(40)))
    engine.step()
    follower = engine.submit(Ask([*range(12), 99], priority=1))
    engine.step()
    assert follower.status is Status.PENDING_PREFIX
    engine.step()
    assert (leader.status, follower.status) == (Status.PREFILL, Status.DECODE)
    assert follower.cached_tokens == 12
    done(engine, leader, follower)


def test_a_common_beginning_too_short_to_wait_for_is_computed_by_both() -> None:
    engine = engine_of(follow_tokens=3)
    pair = [engine.submit(Ask([1, 2, 10 * n, 5])) for n in (1, 2)]
    assert len(engine.step().prefill) == 2
    done(engine, *pair)


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_when_the_leader_leaves_a_follower_is_promoted(end: str) -> None:
    engine = engine_of(idle_prefill_tokens=8)
    leader = engine.submit(Ask(range(30)))
    engine.step()
    followers = [engine.submit(Ask([*range(24), 90 + n], priority=1)) for n in range(2)]
    engine.step()
    assert all(follower.status is Status.PENDING_PREFIX for follower in followers)
    if end == "cancel":
        engine.scheduler.cancel(leader.id)
    else:
        engine.scheduler.fail(leader.id, NonFiniteLogitsError(("0",)))
    engine.step()
    assert [follower.status for follower in followers] == [Status.PREFILL, Status.PENDING_PREFIX]
    done(engine, *followers)


def test_a_follower_lends_its_priority_to_its_leader() -> None:
    engine = engine_of(idle_prefill_tokens=4)
    leader = engine.submit(Ask(range(20)))
    engine.step()
    between = engine.submit(Ask(range(100, 120), priority=5))
    engine.submit(Ask([*range(20), 7], priority=9))
    for _ in range(3):
        engine.step()
    assert (leader.computed_tokens, between.computed_tokens) == (12, 4)


def test_a_high_priority_prompt_goes_before_a_long_one_that_runs() -> None:
    engine = engine_of(idle_prefill_tokens=8)
    engine.submit(Ask(range(80)))
    engine.step()
    urgent = engine.submit(Ask(range(100, 106), priority=1))
    assert [(row.sequence, len(row.tokens)) for row in engine.step().prefill] == [(urgent.id, 6), (0, 2)]


def test_the_next_call_after_a_tool_finds_all_that_was_computed() -> None:
    engine = engine_of()
    first = engine.submit(Ask(range(10), 7))
    done(engine, first)
    second = engine.submit(Ask([*first.tokens, 70, 71, 72]))
    done(engine, second)
    assert second.cached_tokens == len(first.tokens) - 1
    assert second.computed_prompt_tokens == 1 + 3


def test_calls_of_one_agent_over_many_tool_rounds_never_compute_a_token_twice() -> None:
    engine = engine_of()
    tokens: list[int] = list(range(13))
    computed = 0
    for round_number in range(6):
        call = engine.submit(Ask([*tokens, 50 + round_number], 3))
        done(engine, call)
        computed += call.computed_prompt_tokens
        tokens = call.tokens
    assert engine.scheduler.counters.computed_tokens == len(tokens) - 1
    assert computed < len(tokens)


def test_short_memory_preempts_the_lowest_priority_newest_first_and_it_resumes_exactly() -> None:
    engine = engine_of(capacity=9, **FREE_WATERMARKS)
    high = engine.submit(Ask(range(8), 16, priority=1))
    older = engine.submit(Ask(range(100, 104), 14))
    newer = engine.submit(Ask(range(200, 204), 14))
    done(engine, high, older, newer)
    assert (high.preemptions, newer.preemptions >= older.preemptions) == (0, True)
    assert newer.preemptions > 0
    preempted = [p.sequence for batch in engine.batches for p in batch.preempted]
    assert preempted[0] == newer.id


def test_what_a_preempted_sequence_finds_again_is_no_hit_of_the_cache() -> None:
    engine = engine_of(capacity=9, **FREE_WATERMARKS)
    strangers = [engine.submit(Ask(range(100 * n, 100 * n + 6), 14)) for n in (1, 2, 3)]
    done(engine, *strangers)
    assert sum(stranger.preemptions for stranger in strangers) > 0
    assert [stranger.cached_tokens for stranger in strangers] == [0, 0, 0]
    assert engine.scheduler.counters.hit_tokens == 0


def test_a_sequence_that_outgrows_the_pool_alone_fails_and_the_others_finish() -> None:
    engine = engine_of(capacity=6)
    greedy = engine.submit(Ask(range(8), 40, priority=3))
    modest = [engine.submit(Ask(range(100 * n, 100 * n + 6), 4)) for n in (1, 2)]
    done(engine, *modest)
    assert greedy.status is Status.FAILED
    assert isinstance(greedy.error, PoolTooSmallError)
    assert (greedy.error.needed_blocks, greedy.error.have_blocks) == (7, 6)
    engine.check_output(greedy)


def test_a_prompt_larger_than_the_pool_fails_by_name_and_is_reported_in_the_batch() -> None:
    engine = engine_of(capacity=2)
    sequence = engine.submit(Ask(range(9)))
    batch = engine.step()
    assert (batch.rows, [failure.sequence for failure in batch.failed]) == ((), [sequence.id])
    assert isinstance(sequence.error, PoolTooSmallError)
    assert not engine.scheduler.has_work


def test_a_prompt_that_fills_the_pool_exactly_is_computed() -> None:
    engine = engine_of(capacity=2)
    done(engine, engine.submit(Ask(range(8), max_output_tokens=1)))


def test_nobody_is_admitted_below_the_high_watermark_while_others_run() -> None:
    engine = engine_of(capacity=8, high_watermark_blocks=3, low_watermark_blocks=0)
    engine.submit(Ask(range(12), 4))
    second = engine.submit(Ask(range(100, 112), 4))
    engine.step()
    assert second.status is Status.WAITING
    done(engine, second)


def test_prompts_that_are_still_growing_count_with_their_whole_length_at_admission() -> None:
    engine = engine_of(capacity=6, idle_prefill_tokens=8, **FREE_WATERMARKS)
    growing = engine.submit(Ask(range(16), 1))
    engine.step()
    urgent = engine.submit(Ask(range(100, 116), 1, priority=1))
    assert [row.sequence for row in engine.step().rows] == [growing.id]
    done(engine, growing, urgent)
    assert growing.preemptions == 0


def test_growth_below_the_low_watermark_preempts_the_lowest_though_blocks_are_left() -> None:
    engine = engine_of(capacity=6, high_watermark_blocks=2, low_watermark_blocks=2)
    high, low = engine.submit(Ask(range(8), 8, priority=1)), engine.submit(Ask(range(100, 106), 8))
    engine.step()
    batch = engine.step()
    assert [preemption.sequence for preemption in batch.preempted] == [low.id]
    done(engine, high, low)


def test_a_prompt_that_finds_no_room_waits_for_decodes_that_are_planned_and_preempts_later_ones() -> None:
    engine = engine_of(capacity=6, prefill_tokens=1, **FREE_WATERMARKS)
    low = engine.submit(Ask(range(4), 18))
    engine.step()
    engine.step()
    high = engine.submit(Ask(range(100, 116), 1, priority=1))
    done(engine, high, low)
    assert (high.preemptions, low.preemptions) == (0, 1)
    stalled = [batch for batch in engine.batches if batch.decode and not batch.prefill]
    assert stalled, "the prompt never had to wait: this test tests nothing"


def test_a_high_priority_call_is_admitted_before_older_ones() -> None:
    engine = engine_of(max_batch=1)
    low = engine.submit(Ask(range(4)))
    high = engine.submit(Ask(range(100, 104), priority=1))
    engine.step()
    assert (low.status, high.status) == (Status.WAITING, Status.DECODE)


def test_a_low_priority_call_is_served_within_a_bound_under_endless_higher_ones() -> None:
    engine = engine_of(max_batch=1, aging_steps=3)
    low = engine.submit(Ask(range(4), 2))
    for number in range(200):
        engine.submit(Ask([1000 + number, 1], 2, priority=4))
        engine.step()
        if low.status is Status.FINISHED:
            break
    assert low.status is Status.FINISHED
    assert low.waited_steps <= 3 * 4 * 3


def test_a_cancelled_call_gives_its_blocks_back_at_once_and_its_row_is_passed_over() -> None:
    engine = engine_of()
    kept, gone = engine.submit(Ask(range(8))), engine.submit(Ask(range(100, 108)))
    batch = engine.scheduler.step()
    engine.scheduler.cancel(gone.id)
    assert engine.pool.counts().referenced == 2
    sampled = engine.compute(batch)
    engine.scheduler.commit(batch, sampled)
    done(engine, kept)
    assert (gone.status, gone.output) == (Status.CANCELLED, [])


def test_a_failed_computation_leaves_nothing_of_its_own_in_the_cache() -> None:
    engine = engine_of()
    sequence = engine.submit(Ask(range(10)))
    engine.step()
    engine.scheduler.fail(sequence.id, NonFiniteLogitsError(("0",)))
    assert engine.cache.match([*range(10), 99]).matched_tokens == 0
    assert isinstance(sequence.error, NonFiniteLogitsError)


def test_a_step_before_the_commit_and_a_foreign_commit_are_refused() -> None:
    engine = engine_of()
    engine.submit(Ask(range(4)))
    batch = engine.scheduler.step()
    with pytest.raises(StepOrderError):
        engine.scheduler.step()
    engine.scheduler.commit(batch, engine.compute(batch))
    with pytest.raises(StepOrderError):
        engine.scheduler.commit(batch, {0: 1})


def test_a_missing_sample_is_refused_and_nothing_is_committed() -> None:
    engine = engine_of()
    sequence = engine.submit(Ask(range(4)))
    batch = engine.scheduler.step()
    with pytest.raises(MissingSampleError):
        engine.scheduler.commit(batch, {})
    assert sequence.computed_tokens == 0
    engine.scheduler.commit(batch, engine.compute(batch))


def test_an_id_in_use_and_an_unknown_id_are_refused() -> None:
    engine = engine_of()
    sequence = engine.submit(Ask(range(4)))
    with pytest.raises(UnknownSequenceError):
        engine.scheduler.submit(sequence.spec)
    with pytest.raises(UnknownSequenceError):
        engine.scheduler.cancel(77)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch": 0},
        {"prefill_tokens": 0},
        {"aging_steps": 0},
        {"low_watermark_blocks": 9},
        {"follow_tokens": 0},
    ],
)
def test_limits_that_contradict_each_other_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"."):
        SchedulerConfig(**wrong)


def test_what_was_found_for_a_waiting_prompt_is_looked_up_again_once_it_is_evicted() -> None:
    engine = engine_of(capacity=12, **FREE_WATERMARKS)
    cached = engine.submit(Ask(range(8), 1))
    done(engine, cached)
    small = engine.submit(Ask(range(100, 102), 2 + 1))
    engine.step()
    others = engine.pool.allocate(6)
    waiting = engine.submit(Ask(range(24), 2))
    engine.step()
    assert waiting.status is Status.WAITING, "there is no room for it"
    # Somebody else needs memory: what it would have found is gone, and nothing new is cached meanwhile.
    engine.pool.release(engine.pool.allocate(engine.pool.available))
    engine.pool.release(others)
    done(engine, small, waiting)
    assert waiting.cached_tokens == 0
