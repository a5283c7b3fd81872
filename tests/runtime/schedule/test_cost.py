"""What a decode costs the scheduler does not depend on how much context there is."""

import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from runtime.kv.block_pool import BlockPool
from runtime.kv.prefix_cache import PrefixCache
from runtime.kv.prefix_node import hash_block
from runtime.schedule.config import SchedulerConfig
from runtime.schedule.scheduler import Scheduler
from runtime.schedule.sequence import CallSpec

SHORT_TOKENS, LONG_TOKENS = 96, 12_288
STEPS = 64
"""Two blocks a sequence: every step at which a block fills is among them."""


def decoding(context_tokens: int, agents: int = 4, capacity: int = 4000) -> Scheduler:
    """So many agents that have computed their prompts and share nothing."""
    config = SchedulerConfig(idle_prefill_tokens=1_000_000, prefill_tokens=1_000_000)
    scheduler = Scheduler(PrefixCache(BlockPool(capacity, 32)), config)
    for number in range(agents):
        prompt = tuple(range(number * 10**6, number * 10**6 + context_tokens))
        scheduler.submit(CallSpec(number, f"agent{number}", 0, prompt, 100_000))
    decode(scheduler, 2)
    assert len(scheduler.running) == agents
    return scheduler


def decode(scheduler: Scheduler, steps: int) -> None:
    for _ in range(steps):
        batch = scheduler.step()
        scheduler.commit(batch, {row.sequence: 5 for row in batch.rows if row.wants_logits})
        scheduler.observe(batch, 1_000_000)


def lines_of_ours(action: Callable[[], None]) -> int:
    """Lines of runtime/kv and runtime/schedule that `action` executes."""
    executed = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal executed
        if "/runtime/kv/" not in frame.f_code.co_filename and "/schedule/" not in frame.f_code.co_filename:
            return None
        executed += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return executed


def test_a_decode_executes_as_many_lines_whatever_the_context() -> None:
    schedulers = [decoding(tokens) for tokens in (SHORT_TOKENS, LONG_TOKENS)]
    counts = [lines_of_ours(partial(decode, scheduler, STEPS)) for scheduler in schedulers]
    assert counts[0] == counts[1] > STEPS


def test_a_decode_takes_about_as_long_whatever_the_context() -> None:
    """Copies of lists are not lines; the margin is wide: growth with the context would be a factor of 128."""
    taken_s = {}
    for tokens in (SHORT_TOKENS, LONG_TOKENS):
        scheduler = decoding(tokens)
        tries = []
        for _ in range(5):
            start_s = time.perf_counter()
            decode(scheduler, STEPS)
            tries.append(time.perf_counter() - start_s)
        taken_s[tokens] = min(tries)
    assert taken_s[LONG_TOKENS] <= 6 * taken_s[SHORT_TOKENS]


@pytest.mark.parametrize("prompt_tokens", [2000, 8000])
def test_who_waits_for_memory_is_not_looked_up_again_while_the_cache_stands_still(prompt_tokens: int) -> None:
    hashed = 0

    def counting(parent: bytes, tokens: tuple[int, ...]) -> bytes:
        nonlocal hashed
        hashed += 1
        return hash_block(parent, tokens)

    pool = BlockPool(8000 // 32 + 8, 32)
    scheduler = Scheduler(PrefixCache(pool, block_hash=counting), SchedulerConfig())
    scheduler.submit(CallSpec(0, "agent0", 0, tuple(range(320)), 1000))
    decode(scheduler, 3)
    waiting = tuple(range(prompt_tokens))
    pool.allocate(pool.available - 10)
    scheduler.submit(CallSpec(1, "agent1", 0, waiting, 4))
    decode(scheduler, 1)
    assert scheduler.waiting, "there is no room for it"
    hashed = 0
    decode(scheduler, STEPS)
    # Its prefix is looked up when a block of the other fills, and not in every step: 11 blocks match.
    assert hashed <= 4 * (11 + 2)
