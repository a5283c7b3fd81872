"""How an attempt ended: one type, from whoever saw the end to the row that keeps it (docs/adr/0024)."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from contract.failures import FAILURES, FailureReason, Fault
from contract.model import SentModel, storable_text

Outcome = Literal["succeeded", "failed", "errored", "refused", "cancelled", "timed_out"]

DETAIL_MAX: Final = 4000
EVIDENCE_LINES_MAX: Final = 50
EVIDENCE_LINE_MAX: Final = 500


class Confidence(IntEnum):
    """3: the system names our process and what happened. 2: direct sight. 1: a hint. 0: a guess."""

    NONE = 0
    POSSIBLE = 1
    LIKELY = 2
    PROVEN = 3


class RunEnd(SentModel):
    """outcome and reason say what is done next; detail and evidence are for a person."""

    outcome: Outcome
    reason: FailureReason | None = None
    """None: it succeeded, or whoever ended it gave none."""
    detail: Annotated[str, Field(max_length=DETAIL_MAX)] = ""
    confidence: Confidence = Confidence.PROVEN
    evidence: Annotated[
        list[Annotated[str, Field(max_length=EVIDENCE_LINE_MAX)]], Field(max_length=EVIDENCE_LINES_MAX)
    ] = []
    """What was seen, and what would make it surer."""

    @model_validator(mode="after")
    def _a_success_has_no_reason(self) -> Self:
        if self.outcome == "succeeded" and self.reason is not None:
            raise ValueError("reason: an attempt that succeeded has none")
        return self

    @classmethod
    def because(
        cls,
        reason: FailureReason,
        detail: str = "",
        confidence: Confidence = Confidence.PROVEN,
        evidence: Sequence[str] = (),
    ) -> "RunEnd":
        """With the outcome of that reason; texts are cut and mended to what can be sent."""
        return RunEnd(
            outcome=outcome_of(reason),
            reason=reason,
            detail=storable_text(detail[:DETAIL_MAX]),
            confidence=confidence,
            evidence=[storable_text(line[:EVIDENCE_LINE_MAX]) for line in evidence[:EVIDENCE_LINES_MAX]],
        )


_OUTCOMES: Final[dict[FailureReason, Outcome]] = {
    FailureReason.RUN_TIMEOUT: "timed_out",
    FailureReason.CANCELLED: "cancelled",
}


def outcome_of(reason: FailureReason) -> Outcome:
    """The workload's or the runtime's own failure is `failed`; what the farm did to it is `errored`."""
    if reason in _OUTCOMES:
        return _OUTCOMES[reason]
    return "failed" if FAILURES[reason].fault in (Fault.JOB, Fault.RUNTIME) else "errored"
