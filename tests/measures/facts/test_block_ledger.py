"""The pool's accounting is rebuilt from block events; an impossible trace is refused."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.events import EVENT_ADAPTER, Event, KvSampled
from measures.facts.attempt import ImpossibleEventsError
from measures.facts.block_ledger import BlockLedger, PeakReader


def _event(kind: str, at_ns: int = 0, agent: str = "a1", **fields: Any) -> Event:
    who = {} if kind == "block_evicted" else {"agent": agent, "call": 0}
    return EVENT_ADAPTER.validate_python(
        {"type": kind, "seq": 1, "t_mono_ns": at_ns, "trial": 1, **who, **fields}
    )


def _sample(at_ns: int, used: int) -> KvSampled:
    event = EVENT_ADAPTER.validate_python(
        {"type": "kv_sampled", "seq": 1, "t_mono_ns": at_ns, "trial": 1}
        | dict.fromkeys(
            ("blocks_total", "blocks_cached", "blocks_free", "sequences_running", "sequences_waiting"), 0
        )
        | {"blocks_used": used}
    )
    assert isinstance(event, KvSampled)
    return event


def test_a_shared_block_is_used_until_its_last_holder_lets_go() -> None:
    ledger = BlockLedger()
    ledger.apply(_event("blocks_allocated", blocks=[1, 2]))
    ledger.apply(_event("blocks_shared", agent="a2", blocks=[1]))
    assert (ledger.used, ledger.ref_count(1)) == (2, 2)
    ledger.apply(_event("blocks_released", blocks=[1, 2]))
    assert (ledger.used, ledger.ref_count(1)) == (1, 1)
    ledger.apply(_event("blocks_released", agent="a2", blocks=[1]))
    ledger.apply(_event("block_evicted", block=1))
    assert ledger.used == 0


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([("blocks_allocated", {"blocks": [1]}), ("blocks_allocated", {"blocks": [1]})], "while it was held"),
        (
            [("blocks_allocated", {"blocks": [1]}), ("block_evicted", {"block": 1})],
            "evicted while it was held",
        ),
        ([("blocks_released", {"blocks": [1]})], "does not hold it"),
        (
            [("blocks_allocated", {"blocks": [1]}), ("blocks_released", {"agent": "a2", "blocks": [1]})],
            "released by agent a2",
        ),
    ],
)
def test_a_trace_that_cannot_be_is_refused(events: list[tuple[str, dict[str, Any]]], message: str) -> None:
    ledger = BlockLedger()
    *before, last = [_event(kind, **fields) for kind, fields in events]
    for event in before:
        ledger.apply(event)
    with pytest.raises(ImpossibleEventsError, match=message):
        ledger.apply(last)


TRACE = [
    _event("blocks_allocated", 10, blocks=[1]),
    _event("blocks_allocated", 20, blocks=[2, 3]),
    _event("blocks_released", 30, blocks=[1, 2, 3]),
]


@pytest.mark.parametrize(
    ("samples", "peak"),
    [
        ({}, 3),
        ({5: 0, 10: 1, 40: 0}, 3),
        ({5: 0, 10: 1, 25: 3, 30: 0}, 3),
        ({25: 4}, None),
        ({40: 1}, None),
    ],
)
def test_the_peak_is_that_of_the_trace_if_it_fits_every_sample(
    samples: dict[int, int], peak: int | None
) -> None:
    reader = PeakReader([_sample(at_ns, used) for at_ns, used in samples.items()])
    for event in TRACE:
        reader.apply(event)
    assert reader.result() == peak


def test_a_trace_that_lost_events_has_no_peak() -> None:
    reader = PeakReader([])
    for event in TRACE[1:]:
        reader.apply(event)
    assert reader.result() is None


@given(st.lists(st.tuples(st.sampled_from(["share", "release"]), st.integers(0, 3), st.integers(0, 5))))
def test_the_ledger_agrees_with_a_plain_count(steps: list[tuple[str, int, int]]) -> None:
    ledger, count = BlockLedger(), Counter[tuple[str, int]]()
    for action, agent_number, block in steps:
        agent = f"a{agent_number}"
        if action == "share":
            ledger.apply(_event("blocks_shared", agent=agent, blocks=[block]))
            count[agent, block] += 1
        elif count[agent, block]:
            ledger.apply(_event("blocks_released", agent=agent, blocks=[block]))
            count[agent, block] -= 1
    for block in range(6):
        assert ledger.ref_count(block) == sum(n for (_, held), n in count.items() if held == block)
    assert ledger.used == len({held for (_, held), n in count.items() if n})
