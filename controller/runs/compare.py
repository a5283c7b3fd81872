"""Two runs compared on one device each: what stands against it is refused unless asked for."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from contract.rest import Comparison, DeviceReportView
from controller.db.runs import RunRepository
from controller.errors import BadRequestError
from controller.runs.errors import NotComparableError
from controller.runs.reports import run_report
from measures.verdict.run_difference import RunSide, compare, obstacles


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """What to compare. device_model and variant choose among several results of a run."""

    run_id: str
    baseline_run_id: str
    arm: str
    force: bool = False
    device_model: str | None = None
    variant: str | None = None


def compare_runs(session: Session, request: ComparisonRequest) -> Comparison:
    """Both runs' medians of one arm. NotComparableError, RunNotFoundError, BadRequestError for a choice that
    fits no result or more than one."""
    run = _side(session, request, request.run_id)
    baseline = _side(session, request, request.baseline_run_id)
    against = obstacles(baseline, run)
    if against and not request.force:
        raise NotComparableError(tuple(against))
    return compare(baseline, run, request.arm)


def _side(session: Session, request: ComparisonRequest, run_id: str) -> RunSide:
    row = RunRepository(session).get(run_id)
    reports = run_report(session, run_id, "").devices
    report = _chosen(reports, request, run_id)
    if request.arm not in report.arms:
        known = ", ".join(report.arms)
        raise BadRequestError("", f"arm: run {run_id} has no arm {request.arm!r}; it has {known}")
    workload = row.request["workload"]
    asked = {"name": workload.get("name") or workload.get("source_name"), **workload["params"]}
    return RunSide(run_id, row.workload_digest, report, asked)


def _chosen(reports: list[DeviceReportView], request: ComparisonRequest, run_id: str) -> DeviceReportView:
    fitting = [
        report
        for report in reports
        if request.device_model in (None, report.device_model) and request.variant in (None, report.variant)
    ]
    if len(fitting) == 1:
        return fitting[0]
    there = "; ".join(f"device_model={found.device_model}, variant={found.variant}" for found in reports)
    problem = "has no such result" if not fitting else f"has {len(fitting)} results, which are not mixed"
    choice = f"choose with device_model and variant: {there or 'none'}"
    raise BadRequestError("", f"run {run_id} {problem}; {choice}")
