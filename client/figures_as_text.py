"""Numbers of a report as text: three significant digits, the unit beside them, a spread with its range."""

import math

from contract.metrics import METRICS
from contract.rest import DeviceReportView, Spread
from measures.metrics.change import change_percent


def number(value: float) -> str:
    """At least three significant digits, never an exponent below 10^15: 1234, 12.3, 0.0123."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


def spread(metric: str, values: Spread | None) -> str:
    """`12.3 s (11.9 to 12.8)`; a ratio in per cent; a dash where nothing was measured."""
    if values is None:
        return "–"
    factor, unit = scale(metric)
    median, low, high = (number(value * factor) for value in (values.median, values.min, values.max))
    beside = f" {unit}" if unit else ""
    return f"{median}{beside}" if values.n == 1 else f"{median}{beside} ({low} to {high})"


def scale(metric: str) -> tuple[float, str]:
    """What a value of the metric is multiplied with when it is shown, and the unit that follows."""
    unit = METRICS[metric].unit if metric in METRICS else ""
    if unit == "ratio":
        return 100.0, "%"
    return 1.0, "" if unit == "count" else unit


def title(metric: str) -> str:
    """The catalogue's title; the name itself for a metric that this version does not know."""
    return METRICS[metric].title if metric in METRICS else metric


def change(percent: float | None) -> str:
    """`+3.1 %`, `-61.0 %`; a dash without one."""
    return "–" if percent is None else f"{percent:+.1f} %"


def moved(metric: str, baseline: Spread | None, candidate: Spread | None) -> str:
    """The change of the median in per cent, or in its unit where the baseline is next to nothing."""
    if baseline is None or candidate is None or baseline.median == candidate.median == 0:
        return "–"
    percent = change_percent(baseline.median, candidate.median)
    if percent is not None:
        return change(percent)
    factor, unit = scale(metric)
    difference = (candidate.median - baseline.median) * factor
    return f"{'+' if difference > 0 else ''}{number(difference)} {unit}".rstrip()


def interval(bounds: tuple[float, float] | None, confidence: float | None) -> str:
    """`-62.1 % to -59.8 %`, with its coverage where that is below 95 %; a dash without one."""
    if bounds is None:
        return "–"
    covered = f" (covers {confidence * 100:.0f} %)" if confidence is not None and confidence < 0.95 else ""
    return f"{bounds[0]:+.1f} % to {bounds[1]:+.1f} %{covered}"


def operating_system(device: DeviceReportView) -> str:
    """`Debian 12`, since a bare number reads as one of cores; the version alone where no name was told."""
    name = device.conditions.os_name if device.conditions is not None else ""
    return f"{name} {device.os_version}".strip()


def counted(count: int, noun: str) -> str:
    """`1 call`, `3 calls`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def megabytes(size_bytes: int) -> str:
    """10^6 bytes, as the report's footprints."""
    return f"{size_bytes / 1e6:.1f} MB"


def less_time(wall_reduction_percent: float, speedup: float) -> str:
    """Both figures in one sentence, so that per cent less and times faster are never taken for each other."""
    if wall_reduction_percent >= 0:
        return f"{wall_reduction_percent:.1f} % less wall time, {speedup:.2f} times as fast"
    return f"{-wall_reduction_percent:.1f} % more wall time, {speedup:.2f} times as fast"
