"""A run's verdict as a Markdown comment for a pull request: effect, interval, pairs, what is detectable."""

import re
from typing import Final

from client.plain_text import operating_system
from contract.model import printable_text
from contract.rest import DeviceReportView, MetricVerdict, RunReport
from measures.wording import change, interval, less_time, number, percent, spread, title

# Names, reasons and texts come from files and devices: none of them may become markup or mention people.
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]()#+!|~])")
# A backslash does not keep a mention or a tag from being found in the rendered text.
_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\N{ZERO WIDTH SPACE}"})
MAX_COMMENT_CHARACTERS: Final = 65_536
"""What GitHub takes as the body of a comment (GitLab takes more)."""
_MAX_REASON_CHARACTERS: Final = 4_000
_MAX_FAILURE_CHARACTERS: Final = 2_000
_MAX_FAILURES: Final = 20
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
    """The comment, at most MAX_COMMENT_CHARACTERS long. command: what a person types to measure it again.

    Devices that explain the verdict come first; those that no longer fit are counted.
    """
    head = [
        f"### dynofarm: {_HEADINGS[report.gate.verdict]}",
        "",
        f"{_plain(report.workload)} on {_plain(report.model)}, {_plain(report.candidate)} against "
        f"{_plain(report.baseline)}; exit code {int(report.gate.exit_code)}.",
        "",
        _plain(_cut(report.gate.reason, _MAX_REASON_CHARACTERS)),
        "",
    ]
    tail = [
        f"[All figures]({_address(report.report_url)}). To measure it again:",
        "",
        "```",
        command,
        "```",
        "",
    ]
    left = MAX_COMMENT_CHARACTERS - sum(len(line) + 1 for line in head + tail)
    return "\n".join([*head, *_devices(report, left), *tail])


def _devices(report: RunReport, left_characters: int) -> list[str]:
    """The devices' sections in the room that is left, and how many were left out."""
    lines: list[str] = []
    left_characters -= len(_left_out(len(report.devices))) + 2
    for shown, device in enumerate(sorted(report.devices, key=_weight)):
        section = [*_device(device, report), ""]
        left_characters -= sum(len(line) + 1 for line in section)
        if left_characters < 0:
            return [*lines, _left_out(len(report.devices) - shown), ""]
        lines += section
    return lines


def _left_out(count: int) -> str:
    return f"_{count} more of the devices: no room in a comment._"


def _weight(device: DeviceReportView) -> int:
    """0 for a device that made the gate fail, 1 for one that kept it open, 2 for the rest."""
    verdicts = {verdict.verdict for verdict in device.verdicts}
    if "regressed" in verdicts:
        return 0
    return 1 if "inconclusive" in verdicts or device.failures else 2


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


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
        shown = device.failures[:_MAX_FAILURES]
        lines += ["", *(f"- {_plain(_cut(failure, _MAX_FAILURE_CHARACTERS))}" for failure in shown)]
        if len(device.failures) > len(shown):
            lines.append(f"- and {len(device.failures) - len(shown)} more")
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
        percent(verdict.mde_percent),
        *values,
    ]
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """One line of text that Markdown shows as it is."""
    escaped = _MARKUP.sub(r"\\\1", " ".join(printable_text(text).split()))
    return escaped.translate(_ENTITIES)


def _address(url: str) -> str:
    return re.sub(r"[\s()<>]", "", url)
