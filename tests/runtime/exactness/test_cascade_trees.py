"""Whatever the sharing looks like, what several agents have in common is computed once, and changes no token.

A tree of prompts: all share A, some share A+B, others A+C, and so on; parts end within blocks and at ends.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.failures import FailureReason
from runtime.engine.generator import Admitted, CallBroke, CallDone, CallKey, StepRan
from runtime.schedule.config import SchedulerConfig
from runtime.schedule.sequence import RUNNING
from tests.runtime.exactness.small_models import FAMILIES, POISON_ID, tiers
from tests.runtime.exactness.watched_arm import Arrangement, WatchedArm

# Every part has tokens of its own, so that prompts share what their names share and nothing else.
PARTS = {name: [32 * n + (3 * i) % 31 for i in range(48)] for n, name in enumerate("ABCDEFG")}
TREES = {
    "all share A": ["A", "A", "A"],
    "two share A+B, three A+C": ["AB", "AB", "AC", "AC", "AC"],
    "a chain": ["A", "AB", "ABC", "ABCD"],
    "nested twice": ["ABD", "ABD", "ABE", "ABE", "ACF", "ACF", "G"],
    "nothing in common": ["A", "B", "C"],
    "one common and one alone": ["AB", "AC", "D"],
}


def wide(**limits: int) -> SchedulerConfig:
    """Nobody waits for a place, and a common run of one token is worth waiting for."""
    values = {"max_batch": 16, "prefill_tokens": 16, "idle_prefill_tokens": 64, "follow_tokens": 1}
    return SchedulerConfig(**values | limits)


def prompts(tree: Sequence[str], part_tokens: int) -> list[list[int]]:
    """One a leaf: its parts, then a token that is its own."""
    return [
        [*(token for name in leaf for token in PARTS[name][:part_tokens]), 240 + number]
        for number, leaf in enumerate(tree)
    ]


def distinct_tokens(all_prompts: Sequence[Sequence[int]]) -> int:
    """Tokens of the tree: what somebody has to compute at least."""
    return len({tuple(prompt[: end + 1]) for prompt in all_prompts for end in range(len(prompt))})


def computed_tokens(arm: WatchedArm) -> int:
    return sum(end.computed_tokens for end in arm.ended.values() if isinstance(end, CallDone))


@pytest.mark.parametrize("part_tokens", [16, 21, 48])
@pytest.mark.parametrize("tier", tiers())
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_each_part_of_a_tree_is_computed_once_when_all_arrive_together(
    tree: list[str], tier: str, part_tokens: int
) -> None:
    arm = WatchedArm(Arrangement(tier=tier, blocks=120, config=wide()))
    all_prompts = prompts(tree, part_tokens)
    keys = [arm.submit(prompt, 6) for prompt in all_prompts]
    arm.run()
    assert computed_tokens(arm) == distinct_tokens(all_prompts)
    for key in keys:
        arm.check_output(key)
    arm.check_empty()


@settings(max_examples=25)
@given(
    kernels=st.tuples(st.sampled_from(sorted(FAMILIES)), st.sampled_from(tiers())),
    tree=st.lists(st.text("ABC", min_size=1, max_size=3), min_size=2, max_size=6),
    sizes=st.tuples(st.integers(1, 12), st.integers(2, 7)),
    chunk_tokens=st.integers(1, 16),
    max_batch=st.integers(1, 6),
)
def test_any_tree_is_computed_once_whatever_the_chunks_and_the_batch(
    kernels: tuple[str, str], tree: list[str], sizes: tuple[int, int], chunk_tokens: int, max_batch: int
) -> None:
    part_tokens, block_tokens = sizes
    config = wide(max_batch=max_batch, prefill_tokens=chunk_tokens, idle_prefill_tokens=chunk_tokens)
    arm = WatchedArm(Arrangement(*kernels, 300, block_tokens, config))
    all_prompts = prompts(tree, part_tokens)
    keys = [arm.submit(prompt, 3) for prompt in all_prompts]
    arm.run()
    assert computed_tokens(arm) == distinct_tokens(all_prompts)
    for key in keys:
        arm.check_output(key)


def test_the_own_parts_of_all_who_waited_are_one_ragged_batch() -> None:
    """What they share goes first, without anybody asking; then every own part in the same step."""
    arm = WatchedArm(Arrangement(blocks=120, config=wide()))
    shared = PARTS["A"]
    keys = [arm.submit([*shared, *PARTS[name][: 3 + n]], 4) for n, name in enumerate("BCDE")]
    arm.run()
    prefills = [ran.prefill for ran in arm.of(StepRan) if ran.prefill]
    assert [[tokens for _, tokens in prefill] for prefill in prefills] == [[48 + 3], [4, 5, 6]]
    assert [fact.cached_tokens for fact in arm.of(Admitted)] == [0, 48, 48, 48]
    for key in keys:
        arm.check_output(key)


def test_who_arrives_while_the_prefix_is_computed_waits_for_the_rest_of_it() -> None:
    arm = WatchedArm(Arrangement(blocks=120, config=wide(idle_prefill_tokens=16)))
    first = arm.submit([*PARTS["A"], 1], 4)
    arm.step()
    later = [arm.submit([*PARTS["A"][:40], 2 + n], 4) for n in range(2)]
    arm.run()
    assert computed_tokens(arm) == 48 + 1 + 2
    for key in (first, *later):
        arm.check_output(key)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_when_the_leader_is_cancelled_a_follower_goes_on_where_it_stopped(steps: int) -> None:
    arm = WatchedArm(Arrangement(blocks=120, config=wide(idle_prefill_tokens=16)))
    leader = arm.submit([*PARTS["A"], *PARTS["B"], 1], 4)
    followers = [arm.submit([*PARTS["A"], *PARTS["B"], 2 + n], 4) for n in range(3)]
    for _ in range(steps):
        arm.step()
    live = (*arm.scheduler.running, *arm.scheduler.waiting)
    by_agent = {sequence.spec.agent: sequence for sequence in live}
    assert by_agent[leader.agent].computed_tokens == 16 * steps
    assert not {by_agent[key.agent].status for key in followers} & RUNNING
    arm.cancel(by_agent[leader.agent])
    arm.run()
    assert computed_tokens(arm) == 96 + 3, "what the leader had computed stays"
    for key in followers:
        arm.check_output(key)


def test_when_the_leader_fails_a_follower_takes_over_and_nothing_of_the_failed_is_reused() -> None:
    """It breaks in the chunk behind the common part, before anybody else holds that."""
    arm = WatchedArm(Arrangement(blocks=120, config=wide(idle_prefill_tokens=16)))
    leader = arm.submit([*PARTS["A"], POISON_ID, *PARTS["B"], 1], 4)
    followers = [arm.submit([*PARTS["A"], *PARTS["C"], 2 + n], 4) for n in range(3)]
    arm.run()
    broke = arm.ended[leader]
    assert isinstance(broke, CallBroke)
    assert broke.error.reason is FailureReason.NON_FINITE_LOGITS
    for key in followers:
        arm.check_output(key)
    # Of the leader's work nothing is left that anybody could find: A is computed once more, and only once.
    assert computed_tokens(arm) == 48 + 48 + 3
    again = arm.submit([*PARTS["A"], POISON_ID, *PARTS["B"], 9], 1)
    arm.run()
    admitted = {fact.key: fact.cached_tokens for fact in arm.of(Admitted)}
    assert admitted[again] == 48


@pytest.mark.parametrize("tier", tiers())
def test_what_a_leader_computed_in_the_chunk_in_which_it_broke_reaches_nobody(tier: str) -> None:
    """Attention multiplies what it hides by 0: NaN goes back to the tokens before it in its chunk."""
    arm = WatchedArm(Arrangement(tier=tier, blocks=120, config=wide(idle_prefill_tokens=64)))
    leader = arm.submit([*PARTS["A"], POISON_ID, *PARTS["B"]], 4)
    followers = [arm.submit([*PARTS["A"], 2 + n], 4) for n in range(3)]
    arm.run()
    assert isinstance(arm.ended[leader], CallBroke)
    for key in followers:
        arm.check_output(key)
    assert computed_tokens(arm) == 48 + 3
    arm.check_empty()


def test_with_a_preempted_leader_the_rest_is_computed_once_more_at_most() -> None:
    """A pool too short for all: whoever is thrown out computes again only what nobody kept."""
    config = wide(idle_prefill_tokens=16, high_watermark_blocks=0, low_watermark_blocks=0)
    arm = WatchedArm(Arrangement(blocks=9, config=config))
    keys = [arm.submit([*PARTS["A"], 200 + n], 30, priority=n) for n in range(4)]
    arm.run()
    assert sum(sequence_preemptions(arm, key) for key in keys) > 0
    for key in keys:
        arm.check_output(key)
    arm.check_empty()


def sequence_preemptions(arm: WatchedArm, key: CallKey) -> int:
    return sum(type(fact).__name__ == "Preempted" and fact.key == key for fact in arm.facts)
