"""The gate of a run: the worst of its jobs, as one word and one exit code."""

from typing import Any

import pytest

from contract.failures import FailureReason
from contract.rest import GateRequest
from contract.states import GateExit, JobOutcome, RunOutcome
from measures.statistics.effect import Direction
from measures.verdict.gate import JobStanding, gate_view, run_outcome
from measures.verdict.judge import Verdict, judge
from measures.verdict.pairs import Pair


def _verdict(ratio: float, pairs: int = 8) -> Verdict:
    measured = [Pair(str(n), 100.0 + n % 2, (100.0 + n % 2) * ratio) for n in range(pairs)]
    return judge(measured, Direction.LOWER, 2.0, 0.05)


BETTER, WORSE, SAME = _verdict(0.5), _verdict(1.5), _verdict(1.0)
UNCLEAR, NOTHING = _verdict(1.5, pairs=2), _verdict(1.0, pairs=0)


def _job(verdict: Verdict | None = None, **changed: Any) -> JobStanding:
    fields: dict[str, Any] = {"place": "host-1", "outcome": JobOutcome.SUCCEEDED}
    if verdict is not None:
        fields["verdicts"] = {"wall_s": verdict}
    return JobStanding(**(fields | changed))


DONE = {outcome: _job(outcome=outcome) for outcome in JobOutcome}
TOO_LONG = _job(outcome=JobOutcome.FAILED, reason=FailureReason.CONTEXT_OVERFLOW)

CASES: dict[str, tuple[list[JobStanding], str, GateExit, RunOutcome]] = {
    "better": ([_job(BETTER)], "pass", GateExit.PASS, RunOutcome.PASSED),
    "same": ([_job(SAME)], "pass", GateExit.PASS, RunOutcome.PASSED),
    "worse": ([_job(WORSE)], "regression", GateExit.REGRESSION, RunOutcome.REGRESSED),
    "unclear": ([_job(UNCLEAR)], "inconclusive", GateExit.INCONCLUSIVE, RunOutcome.INCONCLUSIVE),
    "no pairs": ([_job(NOTHING)], "infrastructure", GateExit.INFRASTRUCTURE, RunOutcome.INFRA_ERROR),
    "one device worse": (
        [_job(BETTER), _job(WORSE)],
        "regression",
        GateExit.REGRESSION,
        RunOutcome.REGRESSED,
    ),
    "worse and broken": (
        [_job(WORSE), DONE[JobOutcome.INFRA_FAILED]],
        "regression",
        GateExit.REGRESSION,
        RunOutcome.REGRESSED,
    ),
    "better and broken": (
        [_job(BETTER), DONE[JobOutcome.INFRA_FAILED]],
        "infrastructure",
        GateExit.INFRASTRUCTURE,
        RunOutcome.INFRA_ERROR,
    ),
    "failed": ([DONE[JobOutcome.FAILED]], "infrastructure", GateExit.INFRASTRUCTURE, RunOutcome.FAILED),
    "timed out": ([DONE[JobOutcome.TIMED_OUT]], "infrastructure", GateExit.INFRASTRUCTURE, RunOutcome.FAILED),
    "asked for too much": ([TOO_LONG], "usage", GateExit.USAGE, RunOutcome.FAILED),
    "asked for too much, and the lab broke": (
        [TOO_LONG, DONE[JobOutcome.INFRA_FAILED]],
        "infrastructure",
        GateExit.INFRASTRUCTURE,
        RunOutcome.FAILED,
    ),
    "the runtime broke": (
        [_job(outcome=JobOutcome.FAILED, reason=FailureReason.RUNTIME_EXIT)],
        "infrastructure",
        GateExit.INFRASTRUCTURE,
        RunOutcome.FAILED,
    ),
    "expired": ([DONE[JobOutcome.EXPIRED]], "no_capacity", GateExit.NO_CAPACITY, RunOutcome.EXPIRED),
    "cancelled": (
        [_job(BETTER), DONE[JobOutcome.CANCELLED]],
        "cancelled",
        GateExit.CANCELLED,
        RunOutcome.CANCELLED,
    ),
    "one arm": ([_job()], "pass", GateExit.PASS, RunOutcome.PASSED),
    "one arm, a trial failed": (
        [_job(trials_failed=1)],
        "infrastructure",
        GateExit.INFRASTRUCTURE,
        RunOutcome.INFRA_ERROR,
    ),
}


@pytest.mark.parametrize(("jobs", "word", "code", "outcome"), CASES.values(), ids=CASES.keys())
def test_the_worst_job_decides_whatever_the_order(
    jobs: list[JobStanding], word: str, code: GateExit, outcome: RunOutcome
) -> None:
    for order in (jobs, jobs[::-1]):
        view = gate_view(order, GateRequest())
        assert (view.verdict, view.exit_code) == (word, code)
        assert run_outcome(order) is outcome


def test_a_run_may_let_an_inconclusive_gate_pass_and_the_word_stays() -> None:
    view = gate_view([_job(UNCLEAR)], GateRequest(inconclusive="pass"))
    assert (view.verdict, view.exit_code) == ("inconclusive", GateExit.PASS)


def test_while_a_job_goes_on_the_gate_is_open_and_never_passes() -> None:
    view = gate_view([_job(BETTER), _job(outcome=None)], GateRequest(inconclusive="pass"))
    assert (view.verdict, view.exit_code) == ("inconclusive", GateExit.INCONCLUSIVE)
    assert "1 of 2 jobs are not done" in view.reason


def test_nothing_is_claimed_for_the_fleet() -> None:
    view = gate_view([_job(BETTER), _job(SAME, place="host-2")], GateRequest())
    assert "no claim is made for the fleet" in view.reason
    assert [metric.reason.split(":")[0] for metric in view.metrics] == ["host-1", "host-2"]


def test_the_reason_names_what_broke_and_where() -> None:
    job = _job(outcome=JobOutcome.INFRA_FAILED, reason=FailureReason.DEVICE_DISCONNECTED)
    assert gate_view([job], GateRequest()).reason == "not measured: host-1 infra_failed (device_disconnected)"


def test_a_run_that_asked_for_too_much_is_told_what_to_ask_for_instead() -> None:
    reason = gate_view([TOO_LONG], GateRequest()).reason
    assert reason == (
        "host-1 failed (context_overflow); shorten the prompt or choose a model with a longer context"
    )
