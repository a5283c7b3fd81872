"""A run's verdict as a Markdown comment for a pull request: effect, interval, pairs, what is detectable."""

import re
from typing import Final

from client.figures_as_text import (
    change,
    interval,
    less_time,
    number,
    operating_system,
    printable,
    spread,
    title,
)
from contract.rest import DeviceReportView, MetricVerdict, RunReport

# Names, reasons and texts come from files and devices: none of them may become markup or mention people.
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]()#+!|~])")
# A backslash does not keep a mention or a tag from being found in the rendered text.
_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\N{ZERO WIDTH SPACE}"})
_HEADINGS: Final = {
    "pass": "✅ no regression",
    "regression": "❌ regression",
    "inconclusive": "⚠️ inconclusive",
    "infrastructure": "⚠️ not measured",
    "cancelled": "⚠️ cancelled",
    "usage": "⚠️ the run cannot be measured as it was asked for",
    "no_capacity": "⚠️ no device took it",
}


def comment(report: RunReport, command: str) -> str:
    """The comment. command: what a person types to measure it again."""
    lines = [
        f"### dynofarm: {_HEADINGS[report.gate.verdict]}",
        "",
        f"{_plain(report.workload)} on {_plain(report.model)}, {_plain(report.candidate)} against "
        f"{_plain(report.baseline)}; exit code {int(report.gate.exit_code)}.",
        "",
        _plain(report.gate.reason),
    ]
    for device in report.devices:
        lines += ["", *_device(device, report)]
    lines += [
        "",
        f"[All figures]({_address(report.report_url)}). To measure it again:",
        "",
        "```",
        command,
        "```",
        "",
    ]
    return "\n".join(lines)


def _device(device: DeviceReportView, report: RunReport) -> list[str]:
    name = " ".join(
        part
        for part in (device.device_id, device.device_model, operating_system(device), device.variant)
        if part
    )
    lines = [f"**{_plain(name)}**"]
    if device.virtual:
        lines += ["", "_An emulated device: nothing here was measured on a phone._"]
    if device.wall_reduction_percent is not None and device.speedup is not None:
        lines += ["", less_time(device.wall_reduction_percent, device.speedup) + "."]
    if device.verdicts:
        lines += ["", *_table(device, report)]
    if device.failures:
        lines += ["", *(f"- {_plain(failure)}" for failure in device.failures)]
    return lines


def _table(device: DeviceReportView, report: RunReport) -> list[str]:
    baseline, candidate = _plain(report.baseline), _plain(report.candidate)
    return [
        f"| metric | verdict | effect | interval | p | pairs | detectable | {baseline} | {candidate} |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
        *(_row(verdict, device, report) for verdict in device.verdicts),
    ]


def _row(verdict: MetricVerdict, device: DeviceReportView, report: RunReport) -> str:
    values = []
    for name in (report.baseline, report.candidate):
        arm = device.arms.get(name)
        values.append(spread(verdict.metric, arm.metrics.get(verdict.metric) if arm else None))
    dropped = f" ({verdict.pairs_dropped} dropped)" if verdict.pairs_dropped else ""
    cells = [
        _plain(title(verdict.metric)),
        verdict.verdict.replace("_", " "),
        change(verdict.change_percent),
        interval(verdict.interval_percent, verdict.interval_confidence),
        "–" if verdict.p_value is None else number(verdict.p_value),
        f"{verdict.pairs}{dropped}",
        "–" if verdict.mde_percent is None else f"{verdict.mde_percent:.1f} %",
        *values,
    ]
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """One line of text that Markdown shows as it is."""
    escaped = _MARKUP.sub(r"\\\1", " ".join(printable(text).split()))
    return escaped.translate(_ENTITIES)


def _address(url: str) -> str:
    return re.sub(r"[\s()<>]", "", url)
