"""Numbers of a report as text, the same on a terminal, on a page and in a file. Pages set it with `typeset`.

Ratios are shown in per cent, sizes in MB of 10^6 bytes, changes of more than 1000 % as a multiple.
"""

import math
import re
from collections.abc import Iterable
from typing import Final

from contract.metrics import METRICS
from contract.rest import ArmReport, Comparison, Spread
from measures.metrics.change import MAX_PERCENT

NONE: Final = "–"
LONGEST_WHOLE_ID: Final = 20
BIG: Final = 1e9
"""From here on a number is written with an exponent."""

_MINUS: Final = re.compile(r"(?<![\w.])-(?=\d)|(?<=\de)-(?=\d)")
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=%|MB\b)")
_LONG: Final = re.compile(r"(?<![\w.])\d{4,}")


def typeset(text: str) -> str:
    """Numbers as a page has them: a true minus, thousands apart by a thin space, no break before the unit."""
    with_signs = _MINUS.sub("\N{MINUS SIGN}", _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text))
    return _LONG.sub(lambda found: f"{int(found[0]):,}".replace(",", "\N{NARROW NO-BREAK SPACE}"), with_signs)


def number(value: float) -> str:
    """At least three significant digits, of a whole number no others: 12346, 12.3, 0.0123, 7."""
    if not math.isfinite(value):
        return "not finite"
    if abs(value) >= BIG or 0 < abs(value) < 1 / BIG:
        return f"{value:.3g}"
    if value == int(value):
        return f"{int(value)}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """`2.6 %`; a dash without one."""
    return NONE if value is None else f"{_one_digit(value)} %"


def change(change_percent: float | None, digits: int = 1) -> str:
    """`+3.1 %`, `-61.0 %`, `22 times` of the baseline; a dash without one."""
    if change_percent is None:
        return NONE
    if change_percent > MAX_PERCENT:
        return f"{number(float(f'{1 + change_percent / 100:.0f}'))} times"
    return f"{change_percent:+.{digits}f} %" if math.isfinite(change_percent) else "not finite"


def interval(bounds_percent: tuple[float, float] | None, confidence: float | None) -> str:
    """`-62.1 % to -59.8 %`, with its coverage where that is below 95 %; a dash without one."""
    if bounds_percent is None:
        return NONE
    covered = f" (covers {confidence * 100:.0f} %)" if confidence is not None and confidence < 0.95 else ""
    return f"{change(bounds_percent[0])} to {change(bounds_percent[1])}{covered}"


def moved(metric: str, baseline: Spread | None, candidate: Spread | None) -> str:
    """The change of the median; in the metric's unit where the baseline is 0 and so has no per cent."""
    if baseline is None or candidate is None or baseline.median == candidate.median == 0:
        return NONE
    difference = candidate.median - baseline.median
    if baseline.median != 0 and math.isfinite(relative := difference / abs(baseline.median) * 100.0):
        return change(relative)
    return f"{'+' if difference > 0 else ''}{_value(metric, difference)} {unit(metric)}".rstrip()


def title(metric: str) -> str:
    """The catalogue's title; the name itself for a metric that this version does not know."""
    return METRICS[metric].title if metric in METRICS else metric


def title_with_unit(metric: str) -> str:
    """`Wall time (s)`, for a column whose values stand without their unit."""
    return f"{title(metric)} ({unit(metric)})" if unit(metric) else title(metric)


def unit(metric: str) -> str:
    """The unit in which the metric is shown; empty for a count and for a metric that is not known."""
    if metric not in METRICS or METRICS[metric].unit == "count":
        return ""
    return "%" if METRICS[metric].unit == "ratio" else METRICS[metric].unit


def spread(metric: str, values: Spread | None) -> str:
    """`12.3 s (11.9 to 12.8)`; a dash where nothing was measured."""
    if values is None:
        return NONE
    middle = f"{median(metric, values)} {unit(metric)}".rstrip()
    return middle if values.n == 1 else f"{middle} ({_from_to(metric, values)})"


def median(metric: str, values: Spread) -> str:
    """The median in the metric's unit, which stands elsewhere."""
    return _value(metric, values.median)


def span(metric: str, values: Spread) -> str:
    """From the smallest to the greatest, and over how many."""
    if values.n == 1:
        return "one value"
    if values.min == values.max:
        return f"the same in all {values.n}"
    return f"{_from_to(metric, values)}, n {values.n}"


def trials(arm: ArmReport) -> str:
    """`6 trials`, `4 of 6 trials`: those that completed of those planned, without warm-ups."""
    completed = f"{arm.trials - arm.trials_failed} of " if arm.trials_failed else ""
    return f"{completed}{arm.trials} trial{'' if arm.trials == 1 else 's'}"


def apart(comparison: Comparison, metric: str) -> str:
    """Whether the ranges of two runs over their trials lie apart: what can be said without a verdict.

    Empty where nothing moved.
    """
    before, after = comparison.metrics[metric]
    if before.median == after.median:
        return ""
    beyond = comparison.beyond_noise.get(metric)
    return {True: "ranges apart", False: "ranges overlap", None: "too few trials"}[beyond]


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Each long id as `…` and its end: six characters, more where two would be equal."""
    every = sorted(set(ids))
    short = {}
    for each in every:
        length = 6
        while length < len(each) and any(other != each and other.endswith(each[-length:]) for other in every):
            length += 1
        short[each] = each if len(each) <= max(LONGEST_WHOLE_ID, length + 1) else f"…{each[-length:]}"
    return short


def megabytes(size_bytes: float) -> str:
    """MB of 10^6 bytes, as everywhere in dynofarm."""
    return f"{number(size_bytes / 1e6)} MB"


def reduction(reduction_percent: float | None, of: str = "time") -> str:
    """Less or more time than the baseline; never a negative reduction, which nobody reads right."""
    if reduction_percent is None:
        return NONE
    word = "less" if reduction_percent >= 0 else "more"
    return f"{_one_digit(abs(reduction_percent))} % {word} {of}"


def speedup(times: float | None) -> str:
    """baseline / candidate of the wall time."""
    return NONE if times is None else f"{times:.2f} times as fast"


def less_time(reduction_percent: float, times: float) -> str:
    """Both figures in one sentence, so that per cent less and times faster are never taken for each other."""
    return f"{reduction(reduction_percent, 'wall time')}, {speedup(times)}"


def _one_digit(value_percent: float) -> str:
    return f"{value_percent:.1f}" if abs(value_percent) < BIG else number(value_percent)


def _value(metric: str, value: float) -> str:
    return number(value * 100.0 if unit(metric) == "%" else value)


def _from_to(metric: str, values: Spread) -> str:
    return f"{_value(metric, values.min)} to {_value(metric, values.max)}"
