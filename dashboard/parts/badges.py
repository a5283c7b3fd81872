"""A state as a word with a coloured dot (the word says it all, the colour only helps to find it), a time."""

from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal

from dash import html

from contract.states import AttemptState, DeviceState, JobOutcome, JobState, RunOutcome, RunState
from dashboard.wording import timestamp, words

Tone = Literal["good", "busy", "warn", "bad", "off"]

_TONES: Final = MappingProxyType[str, Tone](
    {
        **dict.fromkeys(
            (RunOutcome.PASSED, JobOutcome.SUCCEEDED, DeviceState.READY, "pass", "improved"), "good"
        ),
        **dict.fromkeys(("same", "small_change"), "good"),
        **dict.fromkeys((RunState.ACTIVE, RunState.FINISHING, JobState.ASSIGNED, JobState.RUNNING), "busy"),
        **dict.fromkeys((AttemptState.LEASED, AttemptState.PREPARING, AttemptState.UPLOADING), "busy"),
        **dict.fromkeys((DeviceState.CHECKING, DeviceState.RESERVED, DeviceState.CLEANING), "busy"),
        **dict.fromkeys((DeviceState.HELD, DeviceState.RECOVERING, DeviceState.BLOCKED), "warn"),
        **dict.fromkeys((DeviceState.COOLING, DeviceState.CHARGING, DeviceState.MAINTENANCE), "warn"),
        **dict.fromkeys((RunOutcome.INCONCLUSIVE, JobState.CANCELLING, AttemptState.REFUSED), "warn"),
        **dict.fromkeys((RunOutcome.REGRESSED, RunOutcome.FAILED, RunOutcome.INFRA_ERROR), "bad"),
        **dict.fromkeys((JobOutcome.TIMED_OUT, JobOutcome.INFRA_FAILED, AttemptState.ERRORED), "bad"),
        **dict.fromkeys(
            (DeviceState.QUARANTINED, DeviceState.LOST, "regression", "infrastructure", "usage"), "bad"
        ),
    }
)
"""By the word itself: a word means the same for a run, a job, an attempt and a device. Any other is off."""


def tone_of(state: str) -> Tone:
    """How the state is coloured; neutral for queued, cancelled, absent and words that are not known."""
    return _TONES.get(str(state), "off")


def badge(state: str) -> html.Span:
    """A state or an outcome."""
    return html.Span(words(str(state)), className=f"badge badge-{tone_of(state)}")


def moment(at: datetime | None) -> html.Time:
    """A time, never broken over two lines."""
    return html.Time(timestamp(at), className="moment", dateTime=at.isoformat() if at else None)


def virtual_badge() -> html.Span:
    """Marks a device on which nothing is measured that a phone would show."""
    return html.Span(
        "virtual", className="badge badge-virtual", title="An emulated device: no figure is a phone's."
    )
