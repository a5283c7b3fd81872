"""Answers of a farm as its REST surface would give them: devices, runs, live views, reports, comparisons."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from contract.events.lifecycle import BudgetRow
from contract.jobs import BuildRef
from contract.rest import (
    ArmReport,
    AttemptView,
    Comparison,
    DeviceReportView,
    DeviceSelector,
    DeviceView,
    GateView,
    JobView,
    LiveView,
    MetricVerdict,
    PairView,
    Point,
    RunReport,
    RunView,
    Series,
    Spread,
)
from contract.states import (
    AttemptState,
    DeviceState,
    GateExit,
    JobOutcome,
    JobState,
    RunOutcome,
    RunState,
    TargetKind,
)

START = datetime(2026, 3, 4, 9, 30, tzinfo=UTC)
AGENTS = ("agent-1", "agent-2", "agent-3", "agent-4", "agent-5")
AGENT_ID = f"agt_{'0' * 26}"
METRICS = {
    "wall_s": (18.4, 6.9),
    "ttft_ms": (2100.0, 640.0),
    "agent_ttft_ms": (7400.0, 1150.0),
    "itl_ms": (41.2, 58.7),
    "output_tokens_per_s": (9.8, 26.1),
    "decode_tokens_per_s": (24.3, 17.2),
    "peak_footprint_mb": (812.0, 771.0),
    "kv_hit_rate_tokens": (0.0, 0.71),
    "kv_hit_rate_requests": (0.0, 0.93),
    "prompt_tokens_computed": (9120.0, 2645.0),
    "preemptions": (0.0, 0.0),
    "failed_calls": (0.0, 0.0),
}


def identifier(prefix: str, number: int) -> str:
    """An id of the contract, such as run_00…07."""
    return f"{prefix}_{number:026d}"


def spread(median: float, n: int = 6) -> Spread:
    """About 4 % to either side."""
    return Spread(median=median, min=median * 0.97, max=median * 1.04, n=n)


def device(device_id: str = "bench-host", **changed: Any) -> DeviceView:
    """A ready host."""
    fields: dict[str, Any] = {
        "device_agent_id": AGENT_ID,
        "kind": TargetKind.HOST,
        "state": DeviceState.READY,
        "reasons": [],
        "device_model": "x86_64 (2 cores)",
        "os_name": "Linux",
        "os_version": "6.1",
        "os_build": "",
        "memory_bytes": 8_240_000_000,
        "virtual": False,
        "models": ["smollm2-135m-instruct"],
        "labels": {},
        "fence": 7,
        "attempt_id": None,
        "last_seen_at": START,
        "state_since": START - timedelta(minutes=4),
    }
    return DeviceView(device_id=device_id, **{**fields, **changed})


def attempt(number: int, **changed: Any) -> AttemptView:
    """A running attempt of job `number` on bench-host."""
    fields: dict[str, Any] = {
        "attempt_id": identifier("att", number),
        "job_id": identifier("job", number),
        "number": 1,
        "state": AttemptState.RUNNING,
        "reason": None,
        "detail": "",
        "device_id": "bench-host",
        "device_agent_id": AGENT_ID,
        "trials_done": 5,
        "trials_total": 14,
        "next_seq": {"control": 900},
        "created_at": START,
        "ended_at": None,
    }
    return AttemptView(**{**fields, **changed})


def job(number: int, **changed: Any) -> JobView:
    """The only job of run `number`, running."""
    fields: dict[str, Any] = {
        "job_id": identifier("job", number),
        "run_id": identifier("run", number),
        "state": JobState.RUNNING,
        "outcome": None,
        "selector": DeviceSelector(),
        "variant": "",
        "waiting_reason": "",
        "attempts": [attempt(number)],
    }
    return JobView(**{**fields, **changed})


def live_run(number: int = 1, **changed: Any) -> RunView:
    """A run whose job runs."""
    run_id = identifier("run", number)
    fields: dict[str, Any] = {
        "run_id": run_id,
        "state": RunState.ACTIVE,
        "outcome": None,
        "workload": "shared-prefix",
        "workload_digest": f"sha256:{'a' * 64}",
        "model": "smollm2-135m-instruct",
        "build": BuildRef(commit="4f1c2ab"),
        "baseline": "serial",
        "candidate": "paged",
        "labels": {},
        "created_at": START,
        "completed_at": None,
        "jobs": [job(number)],
        "report_url": f"http://farm.test/dashboard/runs/{run_id}",
    }
    return RunView(**{**fields, **changed})


def queued_run(number: int = 1) -> RunView:
    """A run that waits for a device."""
    waiting = job(number, state=JobState.QUEUED, attempts=[], waiting_reason="bench-host is leased")
    return live_run(number, jobs=[waiting])


def done_run(number: int = 1, outcome: RunOutcome = RunOutcome.PASSED) -> RunView:
    """A completed run."""
    ended = attempt(
        number, state=AttemptState.SUCCEEDED, trials_done=14, ended_at=START + timedelta(minutes=3)
    )
    done = job(number, state=JobState.DONE, outcome=JobOutcome.SUCCEEDED, attempts=[ended])
    return live_run(
        number,
        state=RunState.COMPLETED,
        outcome=outcome,
        completed_at=START + timedelta(minutes=3),
        jobs=[done],
    )


def points(values: list[float]) -> list[Point]:
    """One a second."""
    return [Point(t_s=float(second), value=value) for second, value in enumerate(values)]


def live_view(number: int = 1, **changed: Any) -> LiveView:
    """Sixty seconds in: serial trials are slow, paged ones quick."""
    rate = [24.0 + 9.0 * math.sin(second / 3.0) + (second % 7) for second in range(60)]
    footprint = [430.0 + 260.0 * (1 - math.exp(-second / 9.0)) + 8.0 * (second % 5) for second in range(60)]
    used = [float(18 + (second * 3) % 40) for second in range(60)]
    cached = [float(min(30, second // 2)) for second in range(60)]
    fields: dict[str, Any] = {
        "attempt_id": identifier("att", number),
        "state": "running",
        "trial": 6,
        "trials_done": 5,
        "trials_total": 14,
        "series": [
            _series("output_tokens_per_s", "tokens/s", rate),
            _series("footprint_mb", "MB", footprint),
            _series("limit_mb", "MB", [1024.0] * 60),
            _series("kv_blocks_used", "blocks", used),
            _series("kv_blocks_cached", "blocks", cached),
        ],
        "agent_ttft_ms": {
            "serial": {agent: 900.0 + 2900.0 * i for i, agent in enumerate(AGENTS)},
            "paged": {agent: 950.0 + 110.0 * i for i, agent in enumerate(AGENTS)},
        },
        "sample_texts": ["agent-1, call 0: The depot opens at seven and the first lorry leaves at eight."],
    }
    return LiveView(run_id=identifier("run", number), **{**fields, **changed})


def nothing_live(number: int = 1) -> LiveView:
    """Before the first attempt."""
    return live_view(
        number, attempt_id=None, state="active", trial=None, trials_done=0, series=[], agent_ttft_ms={},
        sample_texts=[],
    )  # fmt: skip


def _series(name: str, unit: str, values: list[float]) -> Series:
    return Series(name=name, unit=unit, label=name.replace("_", " "), points=points(values))


def arm_report(arm: str, side: int) -> ArmReport:
    """side 0: the values of a serial arm, 1: those of a paged one."""
    waits = [(900.0 + 2900.0 * i, 950.0 + 110.0 * i)[side] for i in range(len(AGENTS))]
    return ArmReport(
        arm=arm,
        mode="paged" if side else "serial",
        trials=6,
        trials_failed=0,
        metrics={name: spread(values[side]) for name, values in METRICS.items()},
        agent_ttft_ms={agent: spread(wait) for agent, wait in zip(AGENTS, waits, strict=True)},
        budget=[
            BudgetRow(name="weights", size_bytes=538_000_000, note="float32, measured"),
            BudgetRow(name="KV pool", size_bytes=94_000_000, note="64 blocks of 32 tokens"),
            BudgetRow(name="reserve", size_bytes=205_000_000, note="20 %"),
        ],
    )


def verdict(metric: str = "wall_s", **changed: Any) -> MetricVerdict:
    """A clear improvement."""
    fields: dict[str, Any] = {
        "verdict": "improved",
        "change_percent": -62.4,
        "interval_percent": (-63.9, -60.8),
        "statistic": -0.978,
        "p_value": 0.03125,
        "pairs": 6,
        "pairs_dropped": 0,
        "mde_percent": 2.6,
        "floor_percent": 2.0,
        "reason": "",
    }
    return MetricVerdict(metric=metric, **{**fields, **changed})


def device_report(number: int = 1, **changed: Any) -> DeviceReportView:
    """Six pairs on a host, the paged arm in well under half the time."""
    walls = [(18.4 + 0.3 * (pair % 3), 6.9 + 0.1 * (pair % 2)) for pair in range(6)]
    fields: dict[str, Any] = {
        "variant": "",
        "device_id": "bench-host",
        "device_model": "x86_64 (2 cores)",
        "os_version": "6.1",
        "kind": TargetKind.HOST,
        "virtual": False,
        "conditions": {
            "device_model": "x86_64 (2 cores)", "os_version": "6.1", "runtime_version": "0.1.0",
            "model_name": "tiny", "model_digest": "sha256:0",
            "os_name": "Linux", "cpu": "an x86 processor", "cores": 2, "memory_bytes": 8_240_000_000,
            "runtime_name": "dynofarm-runtime", "dtype": "float32", "threads": 2, "tier": "aten",
            "thermal_state": "unknown", "screen_on": None, "extra": {"governor": "performance"},
        },
        "arms": {"serial": arm_report("serial", 0), "paged": arm_report("paged", 1)},
        "pairs": [
            PairView(pair=i, wall_s={"serial": serial, "paged": paged})
            for i, (serial, paged) in enumerate(walls, 1)
        ],
        "wall_reduction_percent": 62.5,
        "speedup": 2.67,
        "verdicts": [
            verdict(),
            verdict("ttft_ms", change_percent=-69.5, interval_percent=(-74.0, -61.0)),
            verdict(
                "peak_footprint_mb", verdict="inconclusive", change_percent=1.4,
                interval_percent=(-2.9, 5.1), p_value=0.41, reason="too few pairs for an effect this small",
            ),
        ],
        "reading": [
            "Wall time 18.4 s to 6.9 s: 62.5 % less time, 2.67 times as fast.",
            "Scheduling works: less wall time, and no agent's first token is later "
            "(wall time 18.4 to 6.9 s, -62.5 %).",
        ],
        "failures": [],
        "sample_texts": [
            f"{agent}, call {call}: The depot opens at seven, and I would send the first lorry at eight."
            for agent in AGENTS[:3]
            for call in range(2)
        ],
    }  # fmt: skip
    return DeviceReportView(job_id=identifier("job", number), **{**fields, **changed})


PASSED = GateView(
    verdict="pass", exit_code=GateExit.PASS, reason="no metric regressed on any device", metrics=[verdict()]
)


def run_report(number: int = 1, **changed: Any) -> RunReport:
    """The report of done_run(number)."""
    run_id = identifier("run", number)
    fields: dict[str, Any] = {
        "workload": "shared-prefix",
        "model": "smollm2-135m-instruct",
        "state": RunState.COMPLETED,
        "outcome": RunOutcome.PASSED,
        "baseline": "serial",
        "candidate": "paged",
        "devices": [device_report(number)],
        "gate": PASSED,
        "report_url": f"http://farm.test/dashboard/runs/{run_id}",
    }
    return RunReport(run_id=run_id, **{**fields, **changed})


def comparison(run: int = 1, baseline: int = 2, **changed: Any) -> Comparison:
    """The paged arm of two runs; the run is a little quicker."""
    metrics = {name: (spread(values[1]), spread(values[1] * 0.91)) for name, values in METRICS.items()}
    fields: dict[str, Any] = {
        "arm": "paged",
        "differs": [],
        "metrics": metrics,
        "change_percent": {name: -9.0 for name, (before, _) in metrics.items() if before.median},
        "beyond_noise": dict.fromkeys(metrics, True),
        "note": "Medians on x86_64 (2 cores). Not measured in pairs, so this is not a verdict.",
    }
    fields |= changed
    return Comparison(run_id=identifier("run", run), baseline_run_id=identifier("run", baseline), **fields)
