"""Times, states and sentences as a person reads them on a page; numbers are in measures/wording.py."""

from datetime import UTC, datetime

from contract.metrics import METRICS
from contract.rest import GateView
from measures.wording import NONE


def timestamp(moment: datetime | None) -> str:
    """Date and time in UTC; a dash for never."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else NONE


def metric_definition(name: str) -> str:
    """What is measured; empty for an unknown metric."""
    return METRICS[name].definition if name in METRICS else ""


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
