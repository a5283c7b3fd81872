"""Numbers and states as a person reads them on a page. The unit always stands beside the number."""

from datetime import UTC, datetime
from typing import Final

from contract.metrics import METRICS, Better
from contract.rest import GateView, Spread
from dashboard.figures.theme import number, signed_percent

_BYTES_PER_MB: Final = 1e6
_NEVER: Final = "–"
_HARD_SPACE: Final = "\u00a0"


def timestamp(moment: datetime | None) -> str:
    """Date and time in UTC; a dash for never."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else _NEVER


def megabytes(size_bytes: int) -> str:
    """MB of 10^6 bytes, as everywhere in dynofarm."""
    return f"{number(size_bytes / _BYTES_PER_MB)}{_HARD_SPACE}MB"


def metric_title(name: str) -> str:
    """The catalogue's title with its unit; the bare name for a metric that this version does not know."""
    if name not in METRICS:
        return name
    definition = METRICS[name]
    unit = "" if definition.unit in ("count", "ratio") else f" ({definition.unit})"
    return f"{definition.title}{unit}"


def metric_definition(name: str) -> str:
    """What is measured; empty for an unknown metric."""
    return METRICS[name].definition if name in METRICS else ""


def spread_span(spread: Spread) -> str:
    """From the smallest to the greatest, and over how many."""
    if spread.n == 1:
        return "one value"
    if spread.min == spread.max:
        return f"the same in all {spread.n}"
    # A dash would be taken for the sign of a value below zero.
    until = " to " if spread.min < 0 else "–"
    return f"{number(spread.min)}{until}{number(spread.max)}, n{_HARD_SPACE}{spread.n}"


def change(percent: float) -> str:
    """A signed change in percent of the baseline."""
    return signed_percent(percent)


def is_better(name: str, percent: float) -> bool | None:
    """Whether the change goes where the metric is better; None where it has no direction or did not move."""
    better = METRICS[name].better if name in METRICS else Better.NONE
    if better is Better.NONE or percent == 0:
        return None
    return (percent < 0) == (better is Better.LOWER)


def reduction(percent: float | None) -> str:
    """Less or more time than the baseline; never a negative reduction, which nobody reads right."""
    if percent is None:
        return _NEVER
    return f"{percent:.1f} % less time" if percent >= 0 else f"{-percent:.1f} % more time"


def speedup(times: float | None) -> str:
    """baseline / candidate of the wall time."""
    return _NEVER if times is None else f"{times:.2f} times as fast"


def gate_verdict(gate: GateView) -> str:
    """The verdict in words and the exit code of `dynofarm gate`."""
    return f"{words(gate.verdict)} (exit code {int(gate.exit_code)})"


def sentence(text: str) -> str:
    """Begins with a capital, unless it begins with a name or an id, and ends with a full stop."""
    text = text.strip()
    if not text:
        return ""
    begins_with_word = text.split(maxsplit=1)[0].rstrip(",:;.!?").isalpha()
    started = text[0].upper() + text[1:] if begins_with_word else text
    return started if started.endswith((".", "!", "?", "…")) else f"{started}."


def words(state: str) -> str:
    """A state or outcome of the contract as words."""
    return state.replace("_", " ")
