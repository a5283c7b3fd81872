"""Runs, devices, workloads, comparisons and task graphs as rich renderables, pure."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from client.plain_text import counted
from client.render_calibration import calibration_line
from contract.failures import FAILURES, FailureReason
from contract.rest import Comparison, DeviceView, RunView, WorkloadView
from contract.workload import AgentPlan, CompiledWorkload, largest_sequence_tokens
from measures.wording import apart, moved, short_ids, spread, title


def runs_table(runs: Sequence[RunView]) -> RenderableType:
    table = rows_table("run", "state", "jobs", "submitted")
    for run in runs:
        jobs = Counter(job.outcome or job.state for job in run.jobs)
        shown_jobs = ", ".join(f"{count} {state}" for state, count in jobs.items())
        # Two lines, so that the id has room enough to be copied in one piece.
        what = f"{run.run_id}\n{run.workload} on {run.model}"
        table.add_row(what, run.outcome or run.state, shown_jobs, moment(run.created_at))
    return table if runs else Text("no runs yet; `dynofarm submit` makes one")


def run_view(run: RunView) -> RenderableType:
    """A run with its jobs and their attempts."""
    head = Text(f"run {run.run_id}: {run.outcome or run.state}, {run.workload} on {run.model}")
    table = rows_table("job", "state", "attempts", "waits for")
    for job in run.jobs:
        tries = "\n".join(
            f"{try_.number} {try_.reason or try_.state} {try_.attempt_id}" for try_ in job.attempts
        )
        name = f"{job.job_id} {job.variant}".strip()
        table.add_row(name, job.outcome or job.state, tries, job.waiting_reason)
    return Group(head, table, Text(f"dashboard: {run.report_url}", overflow="fold"))


def devices_table(devices: Sequence[DeviceView]) -> RenderableType:
    table = rows_table("device", "kind", "state", "device model", "OS", "language models", "why")
    short = short_ids(device.device_id for device in devices)
    for device in devices:
        table.add_row(
            short[device.device_id],
            f"{device.kind}, emulated" if device.virtual else device.kind,
            _standing(device),
            device.device_model,
            f"{device.os_name} {device.os_version}",
            ", ".join(_marked_models(device)),
            "; ".join(map(reason_text, device.reasons)),
        )
    return table if devices else Text("no devices yet; `dynofarm agent` on a machine adds it")


def _standing(device: DeviceView) -> str:
    """Its state, and what a person has decided beyond it."""
    if device.then is not None:
        return f"{device.state}, then {device.then}"
    if device.reserved_until is not None:
        return f"{device.state} until {moment(device.reserved_until)}"
    return device.state


def reason_text(reason: str) -> str:
    """A word of the registry with what to do about it; anything else is a sentence already."""
    try:
        return f"{reason}: {FAILURES[FailureReason(reason)].advice}"
    except ValueError:
        return reason


def _marked_models(device: DeviceView) -> list[str]:
    calibrated = {each.model for each in device.calibrations}
    return [f"{name} (calibrated)" if name in calibrated else name for name in device.models]


def device_view(device: DeviceView) -> RenderableType:
    """Everything that the farm knows of a device."""
    memory = "unknown" if device.memory_bytes is None else f"{device.memory_bytes / 1e9:.1f} GB"
    rows = {
        "device": device.device_id,
        "kind": f"{device.kind}, emulated" if device.virtual else device.kind,
        "state": f"{_standing(device)}, since {moment(device.state_since)}",
        "why": "\n".join(map(reason_text, device.reasons)) or "–",
        "model": device.device_model,
        "OS": f"{device.os_name} {device.os_version} {device.os_build}".strip(),
        "memory": memory,
        "language models": ", ".join(device.models) or "none",
        "not usable": "\n".join(f"{each.file}: {each.problem}" for each in device.model_problems) or "–",
        "calibrated": "\n".join(map(calibration_line, device.calibrations)) or "–",
        "labels": ", ".join(f"{key}={value}" for key, value in device.labels.items()) or "–",
        "agent": device.device_agent_id,
        "attempt": device.attempt_id or "–",
        "last seen": moment(device.last_seen_at),
    }
    table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def workloads_table(workloads: Sequence[WorkloadView]) -> RenderableType:
    """One row per workload, with its parameters and their defaults."""
    table = rows_table("workload", "title", "parameters")
    for workload in workloads:
        knobs = ", ".join(f"{knob.name}={knob.default}" for knob in workload.parameters)
        table.add_row(workload.name, workload.title, knobs)
    return table


def workload_view(workload: WorkloadView) -> RenderableType:
    """A workload and its parameters."""
    head = Text(f"{workload.name}, version {workload.version}: {workload.title}", style="bold")
    table = rows_table("parameter", "kind", "default", "from", "to", "meaning")
    for knob in workload.parameters:
        low = "–" if knob.minimum is None else f"{knob.minimum:g}"
        high = "–" if knob.maximum is None else f"{knob.maximum:g}"
        table.add_row(knob.name, knob.kind, str(knob.default), low, high, knob.description)
    return Group(head, Text(workload.description), table)


def graphs_view(graphs: Sequence[CompiledWorkload]) -> RenderableType:
    """Each cell of a sweep: its agents, their calls, and what each call waits for."""
    return Group(*(_graph(graph) for graph in graphs))


def _graph(graph: CompiledWorkload) -> RenderableType:
    calls = sum(len(plan.calls) for plan in graph.agents)
    head = Text(f"{graph.name} {graph.variant}".strip(), style="bold")
    size = Text(
        f"{counted(len(graph.agents), 'agent')}, {counted(calls, 'call')}, longest sequence at least "
        f"{largest_sequence_tokens(graph)} tokens\n{graph.digest}",
        overflow="fold",
    )
    table = rows_table("call", "prompt parts", "writes at most", "before it")
    for plan in graph.agents:
        for index in range(len(plan.calls)):
            table.add_row(*_call_row(plan, index))
    return Group(head, size, table)


def _call_row(plan: AgentPlan, index: int) -> tuple[str, str, str, str]:
    call = plan.calls[index]
    parts = [
        part.segment_id if part.kind == "segment" else f"output of {part.agent}/{part.call}"
        for part in call.parts
    ]
    before = [f"{ref.agent}/{ref.call}" for ref in call.after]
    if call.tool_wait is not None:
        before.append(f"tool {call.tool_wait.tool}, {call.tool_wait.wait_s:g} s")
    return f"{plan.agent}/{index}", ", ".join(parts), f"{call.max_output_tokens} tokens", ", ".join(before)


def comparison_view(comparison: Comparison) -> RenderableType:
    """Two runs side by side, with what was not the same."""
    head = Text(f"{comparison.arm}: {comparison.run_id} against {comparison.baseline_run_id}", style="bold")
    table = rows_table("median (range)", "baseline", "run", "change", "over trials")
    for name, (baseline, run) in comparison.metrics.items():
        noise = apart(comparison, name)
        cells = (spread(name, baseline), spread(name, run), moved(name, baseline, run), noise)
        table.add_row(title(name), *cells)
    differs = [Text(f"not the same: {each}", style="yellow") for each in comparison.differs]
    return Group(head, table, *differs, Text(comparison.note))


def moment(time: datetime) -> str:
    """A time in UTC, to the minute: 2026-01-31 17:05Z."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")


def rows_table(*heads: str) -> Table:
    """A table whose cells are folded where they are too long."""
    table = Table(show_edge=False, pad_edge=False, header_style="bold", padding=(0, 1))
    for head in heads:
        # Folded, never cut: an id must stay whole enough to be typed.
        table.add_column(head, overflow="fold")
    return table
