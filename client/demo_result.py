"""The demo's result as one JSON object: built from the run's report and the audit of its events."""

from client.errors import InfrastructureError
from client.event_audit import EventAudit
from contract.model import ContractModel
from contract.rest import ArmReport, DeviceReportView, MetricVerdict, RunReport, Spread
from contract.states import GateExit, TargetKind


class DemoTarget(ContractModel):
    """What it ran on. virtual: an emulated device, so nothing was measured on a phone."""

    kind: TargetKind
    device_id: str
    device_model: str
    os_version: str
    virtual: bool


class DemoArm(ContractModel):
    """One arm; each figure over its measured trials. Rates are ratios from 0 to 1."""

    wall_s: Spread
    ttft_ms: Spread
    itl_ms: Spread
    output_tokens_per_s: Spread
    peak_footprint_mb: Spread
    kv_hit_rate_tokens: Spread
    kv_hit_rate_requests: Spread


class DemoArms(ContractModel):
    """Both sides of the comparison."""

    serial: DemoArm
    paged: DemoArm


class DemoBudgetRow(ContractModel):
    """One line of an arm's memory budget table."""

    arm: str
    name: str
    size_bytes: int
    note: str


class DemoGate(ContractModel):
    """The run's verdict. statistic: Hodges-Lehmann estimate of log(paged / serial) of the wall time."""

    verdict: str
    exit_code: GateExit
    statistic: float | None
    p_value: float | None
    pairs: int


class DemoResult(ContractModel):
    """What `dynofarm demo --json` writes as the last line of standard output."""

    run_id: str
    target: DemoTarget
    """The device whose figures stand here."""
    targets: list[DemoTarget]
    """Every device of the run."""
    model: str
    arms: DemoArms
    wall_reduction_percent: float
    speedup: float
    events_lost: int
    events_duplicated: int
    memory_budget: list[DemoBudgetRow]
    reading: str
    gate: DemoGate
    sample_text: str
    report_url: str


def demo_result(report: RunReport, audit: EventAudit) -> DemoResult:
    """The result; InfrastructureError that names what was not measured."""
    device = _measured_device(report)
    if device.wall_reduction_percent is None or device.speedup is None:
        raise _incomplete(report, "both arms' wall time")
    wall = next((verdict for verdict in device.verdicts if verdict.metric == "wall_s"), None)
    return DemoResult(
        run_id=report.run_id,
        target=_target(device),
        targets=[_target(each) for each in report.devices],
        model=report.model,
        arms=DemoArms(serial=_arm(report, device, "serial"), paged=_arm(report, device, "paged")),
        wall_reduction_percent=device.wall_reduction_percent,
        speedup=device.speedup,
        events_lost=audit.lost,
        events_duplicated=audit.duplicated,
        memory_budget=[
            DemoBudgetRow(arm=arm.arm, name=row.name, size_bytes=row.size_bytes, note=row.note)
            for arm in device.arms.values()
            for row in arm.budget
        ],
        reading=" ".join(device.reading),
        gate=_gate(report, wall),
        sample_text="\n".join(device.sample_texts),
        report_url=report.report_url,
    )


def _target(device: DeviceReportView) -> DemoTarget:
    return DemoTarget(
        kind=device.kind,
        device_id=device.device_id,
        device_model=device.device_model,
        os_version=device.os_version,
        virtual=device.virtual,
    )


def _measured_device(report: RunReport) -> DeviceReportView:
    if not report.devices:
        raise _incomplete(report, "any device")
    return report.devices[0]


def _arm(report: RunReport, device: DeviceReportView, name: str) -> DemoArm:
    arm: ArmReport | None = device.arms.get(name)
    if arm is None:
        raise _incomplete(report, f"the arm {name}")
    missing = [metric for metric in DemoArm.model_fields if metric not in arm.metrics]
    if missing:
        raise _incomplete(report, f"{', '.join(missing)} of the arm {name}")
    return DemoArm.model_validate({metric: arm.metrics[metric] for metric in DemoArm.model_fields})


def _gate(report: RunReport, wall: MetricVerdict | None) -> DemoGate:
    return DemoGate(
        verdict=report.gate.verdict,
        exit_code=report.gate.exit_code,
        statistic=wall.statistic if wall is not None else None,
        p_value=wall.p_value if wall is not None else None,
        pairs=wall.pairs if wall is not None else 0,
    )


def _incomplete(report: RunReport, what: str) -> InfrastructureError:
    failures = [failure for device in report.devices for failure in device.failures]
    why = "; ".join(failures) or report.gate.reason
    return InfrastructureError(
        "run-incomplete", f"run {report.run_id} ended without {what}: {why}", "the log of the farm tells more"
    )
