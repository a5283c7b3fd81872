import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.failures import FailureReason
from contract.workload import (
    AgentPlan,
    Call,
    CallRef,
    CompiledWorkload,
    OutputPart,
    Segment,
    SegmentPart,
    ToolWait,
    call_dependencies,
)
from runtime.engine.generator import CallKey
from runtime.measured.graph import (
    EndAgent,
    FinishToolWait,
    GraphProgress,
    RetryCall,
    StartCall,
    StartRound,
    StartToolWait,
    prompt_parts,
)
from tests.fakes.attempt_specs import workload

S = SegmentPart(segment_id="s")
SEGMENTS = [Segment(segment_id="s", text="x")]


def call(*parts: Any, **more: Any) -> Call:
    return Call(parts=list(parts) or [S], max_output_tokens=1, **more)


def plan(name: str, *calls: Call, **more: Any) -> AgentPlan:
    return AgentPlan(agent=name, calls=list(calls), **more)


def graph(*agents: AgentPlan, **more: Any) -> CompiledWorkload:
    return workload(list(agents), SEGMENTS, **more)


def started(decisions: Sequence[object]) -> list[CallKey]:
    return [decision.key for decision in decisions if isinstance(decision, StartCall)]


def output_of(agent: str, index: int) -> OutputPart:
    return OutputPart(agent=agent, call=index)


def test_independent_agents_start_at_once_and_nothing_starts_twice() -> None:
    progress = GraphProgress(graph(plan("a", call()), plan("b", call())), 0)
    assert started(progress.decide(0)) == [("a", 0), ("b", 0)]
    assert progress.decide(1) == []


def test_a_chain_starts_each_agent_when_the_one_before_it_has_finished() -> None:
    progress = GraphProgress(
        graph(
            plan("planner", call()),
            plan("executor", call(S, output_of("planner", 0))),
            plan("summariser", call(output_of("executor", 0))),
        ),
        0,
    )
    order = []
    for name in ("planner", "executor", "summariser"):
        order += started(progress.decide(0))
        progress.call_finished(CallKey(name, 0))
    assert order == [("planner", 0), ("executor", 0), ("summariser", 0)]
    assert progress.decide(0) == [EndAgent("summariser", "completed", 0, None)]
    assert progress.is_done


def test_a_fan_in_waits_for_all_and_after_counts_like_an_output() -> None:
    progress = GraphProgress(
        graph(
            plan("a", call()),
            plan("b", call()),
            plan("join", call(S, output_of("a", 0), after=[CallRef(agent="b", call=0)])),
        ),
        0,
    )
    progress.decide(0)
    progress.call_finished(CallKey("a", 0))
    assert started(progress.decide(0)) == []
    assert progress.gives_way("join")
    progress.call_finished(CallKey("b", 0))
    assert started(progress.decide(0)) == [("join", 0)]


def test_a_tool_works_between_two_calls_and_its_end_has_a_deadline() -> None:
    wait = ToolWait(tool="probe", wait_s=0.5)
    progress = GraphProgress(graph(plan("a", call(), call(tool_wait=wait))), 0)
    progress.decide(0)
    progress.call_finished(CallKey("a", 0))
    assert progress.decide(100) == [StartToolWait(CallKey("a", 1), "probe")]
    assert progress.next_deadline_ns() == 500_000_100
    assert not progress.gives_way("a")
    assert progress.decide(500_000_099) == []
    finished, start = progress.decide(500_000_100)
    assert finished == FinishToolWait(CallKey("a", 1), "probe")
    assert isinstance(start, StartCall)
    assert progress.next_deadline_ns() is None


def test_the_prompt_is_the_whole_conversation_so_far() -> None:
    agent = plan("a", call(S), call(S, S), call(S))
    assert list(prompt_parts(agent, 2)) == [S, output_of("a", 0), S, S, output_of("a", 1), S]


def test_trimming_keeps_the_first_call_s_parts_and_the_last_rounds() -> None:
    first, second, third, fourth = (SegmentPart(segment_id=name) for name in ("p", "q", "r", "s"))
    agent = plan("a", call(first), call(second), call(third), call(fourth), keep_last_rounds=1)
    assert list(prompt_parts(agent, 1)) == [first, output_of("a", 0), second]
    assert list(prompt_parts(agent, 2)) == [first, second, output_of("a", 1), third]
    assert list(prompt_parts(agent, 3)) == [first, third, output_of("a", 2), fourth]


def test_a_fault_of_the_runtime_is_tried_again_as_often_as_the_plan_says() -> None:
    progress = GraphProgress(graph(plan("a", call(), retries=2)), 0)
    progress.decide(0)
    for retry in (1, 2):
        progress.call_failed(CallKey("a", 0), FailureReason.NON_FINITE_LOGITS)
        again, start = progress.decide(0)
        assert again == RetryCall(CallKey("a", 0), retry, FailureReason.NON_FINITE_LOGITS)
        assert isinstance(start, StartCall)
    progress.call_failed(CallKey("a", 0), FailureReason.NON_FINITE_LOGITS)
    assert progress.decide(0) == [EndAgent("a", "failed", 2, FailureReason.NON_FINITE_LOGITS)]


def test_a_retry_that_works_leaves_no_failure_behind() -> None:
    progress = GraphProgress(graph(plan("a", call(), retries=1)), 0)
    progress.decide(0)
    progress.call_failed(CallKey("a", 0), FailureReason.CONTAMINATION)
    progress.decide(0)
    progress.call_finished(CallKey("a", 0))
    assert progress.decide(0) == [EndAgent("a", "completed", 1, None)]
    assert progress.failure is None


def test_a_fault_of_the_job_is_not_tried_again() -> None:
    progress = GraphProgress(graph(plan("a", call(), retries=2)), 0)
    progress.decide(0)
    progress.call_failed(CallKey("a", 0), FailureReason.CONTEXT_OVERFLOW)
    assert progress.decide(0) == [EndAgent("a", "failed", 0, FailureReason.CONTEXT_OVERFLOW)]


def test_who_needs_a_failed_agent_s_output_fails_with_its_reason_and_the_others_go_on() -> None:
    progress = GraphProgress(
        graph(
            plan("a", call(), call()),
            plan("needs", call(output_of("a", 1))),
            plan("needs_too", call(output_of("needs", 0))),
            plan("alone", call()),
        ),
        0,
    )
    progress.decide(0)
    progress.call_failed(CallKey("a", 0), FailureReason.CONTEXT_OVERFLOW)
    ended = [decision for decision in progress.decide(0) if isinstance(decision, EndAgent)]
    assert {decision.agent for decision in ended} == {"a", "needs", "needs_too"}
    assert {decision.reason for decision in ended} == {FailureReason.CONTEXT_OVERFLOW}
    progress.call_finished(CallKey("alone", 0))
    progress.decide(0)
    assert progress.is_done
    assert progress.failure is FailureReason.CONTEXT_OVERFLOW


def test_cancelling_ends_every_agent_that_has_not_ended() -> None:
    progress = GraphProgress(graph(plan("a", call()), plan("b", call())), 0)
    progress.decide(0)
    progress.call_finished(CallKey("a", 0))
    progress.decide(0)
    assert progress.cancel() == [EndAgent("b", "cancelled", 0, None)]
    assert progress.is_done


def test_a_soak_repeats_the_whole_graph_until_its_time_is_over() -> None:
    progress = GraphProgress(graph(plan("a", call()), plan("b", call(), call()), repeat_for_s=1.0), 0)
    progress.decide(0)
    progress.call_finished(CallKey("a", 0))
    assert progress.decide(0) == []
    progress.call_finished(CallKey("b", 0))
    progress.decide(0)
    progress.call_finished(CallKey("b", 1))
    round_two = progress.decide(900_000_000)
    assert round_two[0] == StartRound(2)
    assert started(round_two) == [("a", 0), ("b", 0)]
    for key in (("a", 0), ("b", 0), ("b", 1)):
        progress.call_finished(CallKey(*key))
        ended = progress.decide(1_000_000_000)
    assert ended == [EndAgent("a", "completed", 0, None), EndAgent("b", "completed", 0, None)]


def test_an_agent_that_failed_stays_out_of_the_next_rounds() -> None:
    progress = GraphProgress(graph(plan("a", call()), plan("b", call()), repeat_for_s=1.0), 0)
    progress.decide(0)
    progress.call_failed(CallKey("a", 0), FailureReason.CONTEXT_OVERFLOW)
    progress.call_finished(CallKey("b", 0))
    assert started(progress.decide(1)) == [("b", 0)]


def test_the_end_of_a_call_that_does_not_run_is_an_error() -> None:
    progress = GraphProgress(graph(plan("a", call())), 0)
    with pytest.raises(ValueError, match="is not running"):
        progress.call_finished(CallKey("a", 0))


@st.composite
def random_graphs(draw: st.DrawFn) -> CompiledWorkload:
    """Up to four agents of up to four calls; a call may need any call of an agent named earlier."""
    agents: list[AgentPlan] = []
    for number in range(draw(st.integers(1, 4))):
        calls = []
        for _ in range(draw(st.integers(1, 4))):
            earlier = [(plan.agent, index) for plan in agents for index in range(len(plan.calls))]
            needed = draw(st.lists(st.sampled_from(earlier), max_size=3)) if earlier else []
            wait = draw(st.sampled_from([None, 0.0, 0.3]))
            calls.append(
                call(
                    S,
                    *(output_of(*key) for key in needed),
                    tool_wait=None if wait is None else ToolWait(tool="t", wait_s=wait),
                )
            )
        agents.append(plan(f"a{number}", *calls))
    return graph(*agents)


@given(random_graphs(), st.integers(0, 2**32))
def test_every_call_runs_once_and_after_all_that_it_needs_in_any_order_of_ends(
    work: CompiledWorkload, seed: int
) -> None:
    order = random.Random(seed)
    progress = GraphProgress(work, 0)
    plans = {agent.agent: agent for agent in work.agents}
    running: list[CallKey] = []
    finished: set[tuple[str, int]] = set()
    now_ns = 0
    while not progress.is_done:
        for key in started(progress.decide(now_ns)):
            assert key not in finished
            assert call_dependencies(plans[key.agent], key.call) <= finished
            running.append(key)
        if running:
            key = running.pop(order.randrange(len(running)))
            finished.add(key)
            progress.call_finished(key)
        elif not progress.is_done:
            deadline_ns = progress.next_deadline_ns()
            assert deadline_ns is not None
            now_ns = max(now_ns + 1, deadline_ns)
    assert finished == {(agent.agent, index) for agent in work.agents for index in range(len(agent.calls))}
