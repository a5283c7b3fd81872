"""From stored events to a job's result: computed when asked for, kept once no event can follow."""

from typing import Any

import pytest
import zstandard
from sqlalchemy import delete, func, select, update

from contract.agent_api import Lease
from contract.events import Stream
from contract.failures import FAILURES, FailureReason
from contract.rest import GateView, RunReport, RunView
from contract.states import GateExit, RunOutcome, RunState
from controller.db.events import SampleRepository
from controller.db.models import AttemptSummaryRow, EventBatchRow, JobRow, SampleRow
from controller.db.runs import RunRepository
from controller.protocol.sweep import sweep
from controller.runs.reports import conclude_if_due
from controller.runs.results import summarise
from tests.fakes.farm import Farm, host_report
from tests.fakes.session import Lab, told

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab(farm: Farm) -> Lab:
    return await Lab.of(farm)


async def _report(lab: Lab, run: RunView) -> RunReport:
    return RunReport.model_validate(await lab.get(f"/v1/runs/{run.run_id}/report"))


def _count(lab: Lab, row: type[Any]) -> int:
    with lab.farm.context.view() as work:
        return work.session.scalar(select(func.count()).select_from(row)) or 0


async def test_a_summary_keeps_every_sample_and_again_changes_nothing(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    await lab.carry_out(lease)
    kept = []
    for _ in range(2):
        summarise(lab.farm.context, lease.attempt_id)
        with lab.farm.context.view() as work:
            rows = SampleRepository(work.session).of([lease.attempt_id])
            kept.append([(row.trial, row.metric, row.agent, row.call, row.value) for row in rows])
    assert kept[0] == kept[1] != []
    walls = [sample for sample in kept[0] if sample[1] == "wall_s"]
    assert len(walls) == 14


async def test_every_kept_sample_has_the_conditions_of_its_trial_and_the_report_says_what_was_uneven(
    lab: Lab,
) -> None:
    run = await lab.submit()
    lease = await lab.claim()
    story = told(lease)
    story.add(Stream.DEVICE_AGENT, "thermal_sampled", state="serious", trial=4)
    story.add(
        Stream.DEVICE_AGENT, "battery_sampled", level_percent=61, charging=True, low_power_mode=False, trial=4
    )
    await lab.upload(lease, story)
    await lab.agent.finish(lease, {stream.value: len(story.events[stream]) for stream in Stream})
    summarise(lab.farm.context, lease.attempt_id)
    with lab.farm.context.view() as work:
        rows = SampleRepository(work.session).of([lease.attempt_id])
        found = {
            (row.trial == 4, row.thermal_state, row.battery_percent, row.charging, row.low_power_mode)
            for row in rows
        }
    assert found == {(True, "serious", 61.0, True, False), (False, "unknown", None, None, None)}
    (device,) = (await _report(lab, run)).devices
    assert device.reading[-1].startswith("Heat: trial 4 ran at thermal state serious")
    assert device.verdicts[0].pairs_dropped == 1


async def test_a_report_is_the_same_with_and_without_what_was_kept(lab: Lab) -> None:
    run = await lab.submit()
    lease = await lab.claim()
    await lab.carry_out(lease)
    summarise(lab.farm.context, lease.attempt_id)
    with_summary = await _report(lab, run)
    with lab.farm.context.unit_of_work() as work:
        work.session.execute(delete(SampleRow))
        work.session.execute(delete(AttemptSummaryRow))
    assert await _report(lab, run) == with_summary


async def test_what_was_kept_of_an_older_analysis_is_computed_again(lab: Lab) -> None:
    run = await lab.submit()
    lease = await lab.claim()
    await lab.carry_out(lease)
    fresh = await _report(lab, run)
    with lab.farm.context.unit_of_work() as work:
        stale = {"key": "0/succeeded/", "result": {"nothing": "of today"}}
        work.session.execute(update(AttemptSummaryRow).values(summary=stale))
    assert await _report(lab, run) == fresh


async def test_an_attempt_that_runs_is_not_kept(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    await lab.upload(lease, told(lease))
    summarise(lab.farm.context, lease.attempt_id)
    assert _count(lab, AttemptSummaryRow) == _count(lab, SampleRow) == 0


async def test_while_it_runs_the_report_has_the_finished_pairs(lab: Lab) -> None:
    run = await lab.submit()
    lease = await lab.claim()
    await lab.upload(lease, told(lease, lambda planned: {"skip": True} if (planned.pair or 0) > 3 else {}))
    report = await _report(lab, run)
    assert report.state is RunState.ACTIVE
    assert report.devices[0].arms["paged"].trials == 3
    assert report.devices[0].verdicts[0].pairs == 3
    assert report.gate.verdict == "inconclusive"
    assert not conclude_if_due(lab.farm.context, run.run_id)


async def test_events_that_contradict_each_other_give_a_failure_and_no_figure(lab: Lab) -> None:
    run = await lab.submit()
    lease = await lab.claim()
    story = told(lease)
    story.control("trial_started", trial=1, arm="serial", pair=None, warmup=True)
    await lab.upload(lease, story)
    await lab.agent.finish(lease, {stream.value: len(story.events[stream]) for stream in Stream})
    report = await _report(lab, run)
    (device,) = report.devices
    assert "events_invalid: trial 1 started twice" in device.failures[0]
    assert device.arms["paged"].metrics == {}
    assert (report.gate.exit_code, report.outcome) == (GateExit.INFRASTRUCTURE, RunOutcome.INFRA_ERROR)


async def test_a_run_that_cannot_be_judged_answers_and_keeps_no_other_run_from_its_verdict(lab: Lab) -> None:
    poisoned, sound = await lab.submit(), await lab.submit()
    with lab.farm.context.unit_of_work() as work:
        # Version 0.1 took a floor of 100 %.
        row = RunRepository(work.session).get(poisoned.run_id)
        row.request = {**row.request, "gate": {**row.request["gate"], "floor_percent": {"wall_s": 100}}}
    for _ in range(2):
        await lab.carry_out(await lab.claim())
    report = await _report(lab, poisoned)
    assert report.gate.exit_code is GateExit.INFRASTRUCTURE
    assert "floor_percent: 100 is not in [0, 100)" in report.gate.reason
    gate = await lab.get(f"/v1/runs/{poisoned.run_id}/gate")
    assert gate == report.gate.model_dump(mode="json")
    assert (await _report(lab, sound)).outcome is RunOutcome.PASSED


async def test_stored_lines_that_the_contract_no_longer_takes_give_a_report_that_says_so(lab: Lab) -> None:
    run = await lab.submit()
    lease = await lab.claim()
    await lab.carry_out(lease)
    line = b'{"seq":1,"t_mono_ns":1,"type":"of_another_version"}\n'
    with lab.farm.context.unit_of_work() as work:
        compressed = zstandard.ZstdCompressor().compress(line)
        work.session.execute(delete(AttemptSummaryRow))
        work.session.execute(
            update(EventBatchRow).values(lines_zstd=compressed, last_seq=EventBatchRow.first_seq)
        )
    report = await _report(lab, run)
    assert "events_invalid" in report.devices[0].failures[0]
    assert (await lab.get(f"/v1/runs/{run.run_id}/live"))["series"] == []


async def test_the_peak_of_the_pool_comes_from_its_block_events_once_the_attempt_has_ended(lab: Lab) -> None:
    run = await lab.submit(gate={"metrics": ["wall_s"]})
    lease = await lab.claim()
    story = told(lease)
    number = next(trial.trial for trial in lease.spec.trials if trial.arm == "paged" and not trial.warmup)
    owner = {"trial": number, "agent": "a1", "call": 0, "blocks": [1, 2, 3]}
    story.add(Stream.LOG, "blocks_allocated", **owner)
    story.add(Stream.LOG, "log_line", level="info", message='"blocks_allocated" is only a word here')
    story.add(Stream.LOG, "blocks_released", **owner)
    await lab.upload(lease, story)
    assert "kv_blocks_peak" not in (await _report(lab, run)).devices[0].arms["paged"].metrics
    await lab.agent.finish(lease, {stream.value: len(story.events[stream]) for stream in Stream})
    peak = (await _report(lab, run)).devices[0].arms["paged"].metrics["kv_blocks_peak"]
    assert (peak.median, peak.n) == (3.0, 1)


async def test_a_failed_attempt_is_reported_with_what_to_try(lab: Lab) -> None:
    run = await lab.submit()
    lease = await lab.claim()
    await lab.agent.renew(lease, "running")
    await lab.agent.finish(lease, {}, outcome="failed", reason="model_corrupt")
    report = await _report(lab, run)
    assert report.outcome is RunOutcome.FAILED
    assert FAILURES[FailureReason.MODEL_CORRUPT].advice in report.devices[0].failures[0]
    assert report.devices[0].arms["serial"].trials_failed == 6
    gate = GateView.model_validate(await lab.get(f"/v1/runs/{run.run_id}/gate"))
    assert gate.exit_code is GateExit.USAGE
    assert "model_corrupt" in gate.reason


async def _lose_first_attempt(lab: Lab) -> Lease:
    lease = await lab.claim()
    await lab.agent.renew(lease, "running")
    await lab.agent.finish(lease, {}, outcome="errored", reason="agent_bug")
    return lease


async def test_the_attempt_that_succeeded_speaks_for_its_job(farm: Farm) -> None:
    lab = await Lab.of(farm)
    await lab.agent.hello(host_report(), host_report("host-2"))
    run = await lab.submit()
    first = await _lose_first_attempt(lab)
    await lab.agent.hello(host_report(), host_report("host-2"))
    second = await lab.agent.claim("host-2")
    assert second is not None
    await lab.carry_out(second)
    report = await _report(lab, run)
    assert first.attempt_id != second.attempt_id
    assert [device.device_id for device in report.devices] == ["host-2"]
    assert report.outcome is RunOutcome.PASSED


async def test_two_devices_are_judged_one_by_one_and_the_worst_counts(farm: Farm) -> None:
    lab = await Lab.of(farm)
    await lab.agent.hello(host_report(), host_report("host-2"))
    run = await lab.submit(selectors=[{"device_id": "host-1"}, {"device_id": "host-2"}])
    for device_id, slower in (("host-1", False), ("host-2", True)):
        lease = await lab.agent.claim(device_id)
        assert lease is not None
        await lab.carry_out(
            lease,
            lambda planned, s=slower: {"finished_ms": 2000.0 if s and planned.arm == "paged" else 1000.0},
        )
    report = await _report(lab, run)
    assert (report.gate.verdict, report.outcome) == ("regression", RunOutcome.REGRESSED)
    assert "host-2: wall_s regressed" in report.gate.reason
    assert "no claim is made for the fleet" in report.gate.reason
    assert [device.device_id for device in report.devices] == ["host-1", "host-2"]


async def test_a_run_of_one_arm_passes_when_every_trial_completed(lab: Lab) -> None:
    run = await lab.submit(arms=[{"arm": "paged", "mode": "paged"}], baseline="paged", repetitions=2)
    lease = await lab.claim()
    assert [trial.arm for trial in lease.spec.trials] == ["paged"] * 3
    await lab.carry_out(lease)
    report = await _report(lab, run)
    assert (report.gate.exit_code, report.devices[0].verdicts) == (GateExit.PASS, [])


async def test_a_verdict_never_changes_once_the_run_is_completed(lab: Lab) -> None:
    run = await lab.submit()
    await lab.carry_out(await lab.claim())
    gate = await lab.get(f"/v1/runs/{run.run_id}/gate")
    with lab.farm.context.unit_of_work() as work:
        work.session.execute(update(JobRow).values(variant="changed later"))
    for _ in range(2):
        assert conclude_if_due(lab.farm.context, run.run_id)
        assert await lab.get(f"/v1/runs/{run.run_id}/gate") == gate


async def test_a_run_that_no_device_took_in_time_has_no_capacity(lab: Lab) -> None:
    run = await lab.submit(queue_deadline_s=0.001)
    with lab.farm.context.unit_of_work() as work:
        sweep(work)
    gate = GateView.model_validate(await lab.get(f"/v1/runs/{run.run_id}/gate"))
    assert gate.exit_code is GateExit.NO_CAPACITY
    report = await _report(lab, run)
    assert (report.outcome, report.devices) == (RunOutcome.EXPIRED, [])
