"""Whole attempts in this process: what the events say, and that the arms agree."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest

from contract.events import (
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    CallFinished,
    Event,
    KvSampled,
    Stream,
    TokenEmitted,
)
from contract.failures import FailureReason
from contract.jobs import EngineOptions
from contract.runtime_link import RuntimeExit
from contract.workload import AgentPlan, Call, OutputPart, Segment, SegmentPart
from runtime.engine.compute import chosen_dtype
from runtime.host.machine import this_machine
from runtime.measured.emit import stream_of
from runtime.tiers.native.library import Kinds, why_not_here
from tests.fakes.attempt_specs import attempt_spec, shared_prefix, workload
from tests.fakes.tiny_model import POISON
from tests.runtime.measured.conftest import Run, last_word, of_type


def tokens_by_arm(events: Sequence[Event]) -> dict[str, dict[tuple[str, int], list[int]]]:
    arm_of = {event.trial: event.arm for event in of_type(events, "trial_started")}
    made: dict[str, dict[tuple[str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if isinstance(event, TokenEmitted):
            made[arm_of[event.trial]][event.agent, event.call].append(event.token_id)
    return made


def agent_status(events: Sequence[Event]) -> dict[str, tuple[str, FailureReason | None]]:
    return {event.agent: (event.status, event.reason) for event in of_type(events, "agent_finished")}


def test_all_arms_generate_the_same_and_every_stream_is_whole(run: Run) -> None:
    spec = attempt_spec(shared_prefix(), ["serial", "serial_cached", "paged"], contamination_check=True)
    exit_code, events = run(spec)
    assert exit_code == RuntimeExit.COMPLETED
    assert last_word(events).status == "completed"
    streams = defaultdict(list)
    for event in events:
        streams[stream_of(event)].append(event)
    for stream in (Stream.CONTROL, Stream.SAMPLES, Stream.LOG):
        assert streams[stream][0].type == "stream_opened"
        assert [event.seq for event in streams[stream]] == list(range(1, len(streams[stream]) + 1))
    made = tokens_by_arm(events)
    assert made["serial"] == made["serial-cached"] == made["paged"]
    assert sum(map(len, made["serial"].values())) == 3 * 3 * 8
    kinds = Counter(event.type for event in events)
    assert kinds["call_arrived"] == kinds["call_admitted"] == kinds["call_finished"] == 27
    assert kinds["tool_wait_started"] == kinds["tool_wait_finished"] == 18
    assert kinds["memory_budgeted"] == 3
    assert [event.stage for event in of_type(events, "runtime_stage")] == [
        *("tokenizer", "weights", "pipelines", "ready")
    ]


def test_the_arms_differ_in_what_they_compute_and_in_nothing_else(run: Run) -> None:
    _, events = run(attempt_spec(shared_prefix(), ["serial", "serial_cached", "paged"]))
    finished = [event for event in events if isinstance(event, CallFinished)]
    by_trial: dict[int, list[CallFinished]] = defaultdict(list)
    for event in finished:
        assert event.cached_tokens + event.computed_tokens == event.prompt_tokens
        by_trial[event.trial].append(event)
    serial, cached, paged = (by_trial[trial] for trial in (1, 2, 3))
    assert sum(event.cached_tokens for event in serial) == 0
    assert [(event.agent, event.call) for event in serial] == [
        (f"agent{agent}", call) for agent in range(3) for call in range(3)
    ]
    computed = [sum(event.computed_tokens for event in trial) for trial in (serial, cached, paged)]
    # The shared 100 tokens and every conversation so far are computed once: 124 + 2 * 24 + 6 * ~21.
    assert computed[0] > 3 * computed[1]
    assert computed[2] <= computed[1] + 32
    assert {event.text for event in serial} == {event.text for event in paged}


def test_accounting_rebuilt_from_the_trace_equals_the_samples(run: Run) -> None:
    _, events = run(attempt_spec(shared_prefix(agents=5, output_tokens=20), ["paged"]))
    references: Counter[int] = Counter()
    compared = 0
    for event in events:
        if isinstance(event, BlocksAllocated | BlocksShared):
            references.update(event.blocks)
        elif isinstance(event, BlocksReleased):
            references.subtract(event.blocks)
        elif isinstance(event, KvSampled):
            assert event.blocks_used == sum(count > 0 for count in references.values())
            assert min(references.values(), default=0) >= 0
            assert event.blocks_used + event.blocks_cached + event.blocks_free == event.blocks_total
            compared += 1
    assert compared >= 2
    assert not +references


def test_a_chain_hands_outputs_on_and_trimming_shortens_prompts(run: Run) -> None:
    segments = [
        Segment(segment_id="s", text="start ", tokens=40),
        Segment(segment_id="t", text="go ", tokens=10),
    ]
    s, t = SegmentPart(segment_id="s"), SegmentPart(segment_id="t")
    options = {"max_output_tokens": 5, "ignore_end": True}
    planner = AgentPlan(agent="planner", calls=[Call(parts=[s], **options)])
    executor = AgentPlan(
        agent="executor",
        calls=[
            Call(parts=[s, OutputPart(agent="planner", call=0)], **options),
            *[Call(parts=[t], **options)] * 3,
        ],
        keep_last_rounds=1,
    )
    _, events = run(attempt_spec(workload([executor, planner], segments)))
    prompts = [
        event.prompt_tokens
        for event in of_type(events, "call_arrived")
        if event.trial == 2 and event.agent == "executor"
    ]
    assert prompts == [45, 45 + 5 + 10, 45 + 15 + 10, 45 + 15 + 10]
    made = tokens_by_arm(events)
    assert made["serial"] == made["paged"]


def test_a_soak_repeats_the_graph_and_its_calls_use_their_numbers_again(run: Run) -> None:
    # A round takes some milliseconds; a busy machine may need much longer.
    graph = shared_prefix(agents=2, system_tokens=16, calls=1, output_tokens=1)
    graph = graph.model_copy(update={"repeat_for_s": 1.5})
    exit_code, events = run(attempt_spec(graph, ["paged"]))
    assert exit_code == RuntimeExit.COMPLETED
    finished = Counter((event.agent, event.call) for event in of_type(events, "call_finished"))
    assert finished["agent0", 0] == finished["agent1", 0] > 1
    assert len(of_type(events, "agent_finished")) == 2


def test_conditions_say_what_was_measured(run: Run) -> None:
    _, events = run(attempt_spec(shared_prefix(agents=1, calls=1)))
    (event,) = of_type(events, "conditions_recorded")
    conditions = event.conditions
    tier = "native" if why_not_here(Kinds("float32", "float32")) is None else "aten"
    assert (conditions.dtype, conditions.threads, conditions.tier) == ("float32", 1, tier)
    assert conditions.model_digest.startswith("sha256:")
    assert set(conditions.arms) == {"serial", "paged"}


def test_arms_of_different_precision_run_in_one_attempt(run: Run) -> None:
    spec = attempt_spec(shared_prefix(agents=2, calls=1), ["serial", "paged"], pairs=2)
    serial, paged = spec.arms
    low = paged.model_copy(update={"engine": paged.engine.model_copy(update={"dtype": "bfloat16"})})
    exit_code, events = run(spec.model_copy(update={"arms": [serial, low]}))
    assert exit_code == RuntimeExit.COMPLETED
    (conditions,) = of_type(events, "conditions_recorded")
    assert {name: arm.dtype for name, arm in conditions.conditions.arms.items()} == {
        "serial": "float32",
        "paged": "bfloat16",
    }
    blocks = {event.arm: event.block_size_bytes for event in of_type(events, "memory_budgeted")}
    assert blocks["serial"] == 2 * blocks["paged"]
    # Start-up is told once, however often a precision is loaded again between trials.
    assert len(of_type(events, "runtime_stage")) == 4


@pytest.mark.parametrize(
    ("asked", "has_bf16", "chosen"),
    [
        ("auto", False, "float32"),
        ("auto", True, "bfloat16"),
        ("float32", True, "float32"),
        ("bfloat16", False, "bfloat16"),
    ],
)
def test_auto_is_low_precision_only_where_the_processor_has_it(
    asked: str, has_bf16: bool, chosen: str
) -> None:
    machine = replace(this_machine(), has_bf16=has_bf16)
    assert chosen_dtype(EngineOptions(dtype=asked), "cpu", machine) == chosen


def test_every_trial_has_its_own_memory_samples(run: Run) -> None:
    _, events = run(attempt_spec(shared_prefix(), pairs=2))
    assert {event.trial for event in of_type(events, "memory_sampled")} == {None, 1, 2, 3, 4}


def test_a_prompt_beyond_the_context_fails_its_agent_and_no_other(run: Run) -> None:
    graph = shared_prefix(agents=2)
    long = Segment(segment_id="long", text="x", tokens=600)
    plan = AgentPlan(
        agent="talker", calls=[Call(parts=[SegmentPart(segment_id="long")], max_output_tokens=4)], retries=2
    )
    exit_code, events = run(
        attempt_spec(workload([plan, *graph.agents], [long, *graph.segments]), ["paged", "serial"])
    )
    assert exit_code == RuntimeExit.FAILED
    (failed,) = of_type(events, "call_failed")
    assert (failed.agent, failed.reason) == ("talker", FailureReason.CONTEXT_OVERFLOW)
    assert "512" in failed.detail
    assert agent_status(events) == {
        "talker": ("failed", FailureReason.CONTEXT_OVERFLOW),
        "agent0": ("completed", None),
        "agent1": ("completed", None),
    }
    # The job is at fault, so the second trial would fail like the first: it is not run.
    (trial,) = of_type(events, "trial_finished")
    assert (trial.status, trial.reason) == ("failed", FailureReason.CONTEXT_OVERFLOW)
    assert last_word(events).reason is FailureReason.CONTEXT_OVERFLOW
    # The last word says it all: which agent, how much too long, for which context.
    assert "trial 1, agent talker, call 0: context-overflow" in last_word(events).detail
    assert failed.detail in last_word(events).detail


def test_broken_logits_are_tried_again_and_then_fail_their_agent_alone(run: Run) -> None:
    graph = shared_prefix(agents=2, calls=1)
    poison = Segment(segment_id="poison", text=f"{POISON} what is this?")
    parts = [SegmentPart(segment_id="system"), SegmentPart(segment_id="poison")]
    plan = AgentPlan(agent="ill", calls=[Call(parts=parts, max_output_tokens=4)], retries=2)
    exit_code, events = run(
        attempt_spec(workload([*graph.agents, plan], [poison, *graph.segments]), ["serial", "paged"])
    )
    assert exit_code == RuntimeExit.FAILED
    assert len(of_type(events, "trial_finished")) == 2
    assert [event.retry for event in of_type(events, "agent_retried")] == [1, 2, 1, 2]
    assert len(of_type(events, "call_failed")) == 6
    assert agent_status(events)["ill"] == ("failed", FailureReason.NON_FINITE_LOGITS)
    assert agent_status(events)["agent1"] == ("completed", None)
    assert last_word(events).reason is FailureReason.NON_FINITE_LOGITS
    made = tokens_by_arm(events)
    assert made["serial"] == made["paged"]


def test_a_pool_smaller_than_one_sequence_is_refused_before_any_trial(run: Run) -> None:
    exit_code, events = run(attempt_spec(shared_prefix(), ["paged"], kv_pool_tokens=64))
    assert exit_code == RuntimeExit.FAILED
    assert not of_type(events, "trial_started")
    finished = last_word(events)
    assert finished.reason is FailureReason.BUDGET_TOO_SMALL
    assert "KV blocks are needed" in finished.detail


def test_a_memory_limit_below_the_process_is_an_impossible_budget(run: Run) -> None:
    exit_code, events = run(attempt_spec(shared_prefix(), ["paged"], memory_limit_bytes=2 << 20))
    assert (exit_code, last_word(events).reason) == (RuntimeExit.FAILED, FailureReason.BUDGET_TOO_SMALL)
