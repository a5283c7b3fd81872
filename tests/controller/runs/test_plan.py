"""Trials of a run: every arm in every pair, baseline and candidate side by side, warm-ups first."""

from hypothesis import given
from hypothesis import strategies as st

from contract.jobs import AttemptSpec, TrialSpec
from contract.rest import RunRequest
from controller.runs.plan import plan_run, resolve_arms

ARMS = ("serial", "paged", "serial_cached", "large")


def _request(arms: int, pairs: int, warmups: int, seed: int, design: str) -> RunRequest:
    return RunRequest.model_validate(
        {
            "workload": {"name": "single"},
            "model": "tiny",
            "arms": [{"arm": arm, "mode": "paged"} for arm in ARMS[:arms]],
            "baseline": "serial",
            "candidate": "paged" if arms > 1 else "serial",
            "repetitions": pairs,
            "warmups": warmups,
            "seed": seed,
            "design": design,
        }
    )


REQUESTS = st.builds(
    _request,
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(0, 3),
    st.integers(0, 2**63 - 1),
    st.sampled_from(["abba", "random"]),
)


def _of_pair(trials: list[TrialSpec], pair: int) -> list[TrialSpec]:
    return [trial for trial in trials if trial.pair == pair]


@given(REQUESTS)
def test_every_arm_runs_once_in_every_pair_and_as_often_as_asked_to_warm_up(request: RunRequest) -> None:
    trials = plan_run(request)
    arms = sorted(arm.arm for arm in request.arms)
    for pair in range(1, request.repetitions + 1):
        assert sorted(trial.arm for trial in _of_pair(trials, pair)) == arms
    warmups = [trial for trial in trials if trial.warmup]
    assert sorted(trial.arm for trial in warmups) == sorted(arms * request.warmups)
    assert trials[: len(warmups)] == warmups
    assert all(trial.pair is None for trial in warmups)


@given(REQUESTS)
def test_baseline_and_candidate_of_a_pair_are_neighbours(request: RunRequest) -> None:
    trials = plan_run(request)
    compared = {request.baseline, request.candidate}
    for pair in range(1, request.repetitions + 1):
        numbers = [trial.trial for trial in _of_pair(trials, pair) if trial.arm in compared]
        assert max(numbers) - min(numbers) == len(compared) - 1


@given(REQUESTS)
def test_the_plan_is_one_that_a_runtime_takes_and_the_same_every_time(request: RunRequest) -> None:
    trials = plan_run(request)
    assert plan_run(request) == trials
    assert [trial.trial for trial in trials] == list(range(1, len(trials) + 1))
    AttemptSpec.model_validate(
        {
            "attempt_id": "att_" + "0" * 26,
            "job_id": "job_" + "0" * 26,
            "run_id": "run_" + "0" * 26,
            "model": "tiny",
            "workload": WORKLOAD,
            "arms": resolve_arms(request),
            "trials": trials,
        }
    )


def test_abba_turns_the_order_from_pair_to_pair() -> None:
    trials = plan_run(_request(2, 6, 0, 3, "abba"))
    firsts = [_of_pair(trials, pair)[0].arm for pair in range(1, 7)]
    assert firsts[0::2] == [firsts[0]] * 3
    assert firsts[1::2] == [firsts[1]] * 3
    assert firsts[0] != firsts[1]


WORKLOAD = {
    "name": "x",
    "version": 1,
    "digest": "sha256:" + "0" * 64,
    "params": {},
    "segments": [{"segment_id": "s", "text": "x"}],
    "agents": [
        {
            "agent": "a1",
            "calls": [{"parts": [{"kind": "segment", "segment_id": "s"}], "max_output_tokens": 1}],
        }
    ],
}
