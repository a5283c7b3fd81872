"""Why an app's run ended: a table of rules over Evidence, the most certain one wins. Pure.

A rule says what must have been seen; none says that something is missing, since a report may be late, rate
limited or moved away. So more evidence for an end can only make that end more certain
(docs/adr/0018-end-of-run-classifier.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from contract.failures import FailureReason
from contract.run_end import Confidence, RunEnd
from contract.runtime_link import RuntimeExit
from device_agent.targets.ios import findings
from device_agent.targets.ios.evidence import Evidence


class EndKind(StrEnum):
    """How the run ended."""

    JETSAM = "jetsam"
    CRASH = "crash"
    WATCHDOG = "watchdog"
    HEAT = "heat"
    KILLED_OUTSIDE = "killed_outside"
    EXIT = "exit"
    STOPPED = "stopped"
    """The agent ended it, or it ended itself because its lease was over."""
    DISCONNECTED = "disconnected"
    STALL = "stall"
    REBOOT = "reboot"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rule:
    """If `find` returns lines, the end was of this kind, this surely. Earlier rules win among equals."""

    kind: EndKind
    confidence: Confidence
    find: Callable[[Evidence], tuple[str, ...]]


_K, _C = EndKind, Confidence

RULES: Final = (
    Rule(_K.JETSAM, _C.PROVEN, findings.jetsam_report),
    Rule(_K.JETSAM, _C.PROVEN, findings.crash_report_of_jetsam),
    Rule(_K.WATCHDOG, _C.PROVEN, findings.watchdog_report),
    Rule(_K.HEAT, _C.PROVEN, findings.heat_report),
    Rule(_K.KILLED_OUTSIDE, _C.PROVEN, findings.force_quit_report),
    Rule(_K.CRASH, _C.PROVEN, findings.crash_report),
    Rule(_K.JETSAM, _C.PROVEN, findings.kernel_line_and_end),
    Rule(_K.EXIT, _C.PROVEN, findings.exit_code),
    Rule(_K.REBOOT, _C.PROVEN, findings.boot_changed),
    Rule(_K.JETSAM, _C.LIKELY, findings.kernel_line),
    Rule(_K.STOPPED, _C.LIKELY, findings.own_signal_arrived),
    Rule(_K.CRASH, _C.LIKELY, findings.fault_signal),
    Rule(_K.JETSAM, _C.LIKELY, findings.sigkill_at_limit),
    Rule(_K.STOPPED, _C.LIKELY, findings.gone_with_lease),
    Rule(_K.KILLED_OUTSIDE, _C.LIKELY, findings.outside_signal),
    Rule(_K.DISCONNECTED, _C.LIKELY, findings.detached),
    Rule(_K.STALL, _C.LIKELY, findings.silent_but_alive),
    Rule(_K.JETSAM, _C.POSSIBLE, findings.gone_at_limit),
    Rule(_K.DISCONNECTED, _C.POSSIBLE, findings.gone_while_detached),
    Rule(_K.STOPPED, _C.POSSIBLE, findings.own_signal_sent),
    Rule(_K.STALL, _C.POSSIBLE, findings.silent),
    Rule(_K.UNKNOWN, _C.NONE, findings.last_sight),
)

REASON_OF_KIND: Final[Mapping[EndKind, FailureReason]] = MappingProxyType(
    {
        _K.JETSAM: FailureReason.JETSAM,
        _K.CRASH: FailureReason.APP_CRASH,
        _K.WATCHDOG: FailureReason.WATCHDOG_KILLED,
        _K.HEAT: FailureReason.THERMAL_ABORT,
        _K.KILLED_OUTSIDE: FailureReason.KILLED_OUTSIDE,
        _K.EXIT: FailureReason.RUNTIME_EXIT,
        _K.DISCONNECTED: FailureReason.DEVICE_DISCONNECTED,
        _K.STALL: FailureReason.RUNTIME_STALLED,
        _K.REBOOT: FailureReason.DEVICE_REBOOTED,
        _K.UNKNOWN: FailureReason.RUNTIME_EXIT,
    }
)
_REASON_OF_CODE: Final[Mapping[int, FailureReason]] = MappingProxyType(
    {
        RuntimeExit.USAGE: FailureReason.AGENT_BUG,
        RuntimeExit.CANCELLED: FailureReason.CANCELLED,
        RuntimeExit.LEASE_EXPIRED: FailureReason.LEASE_EXPIRED,
    }
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A kind of end that some rule speaks for. reason None: the device agent stopped it and knows why itself.

    evidence: the lines that decided.
    """

    kind: EndKind
    confidence: Confidence
    evidence: tuple[str, ...]
    reason: FailureReason | None


def claims_of(evidence: Evidence) -> tuple[Claim, ...]:
    """Every rule that applies, the most certain first; never empty."""
    applying = [
        Claim(rule.kind, rule.confidence, lines, _reason(rule.kind, evidence))
        for rule in RULES
        if (lines := rule.find(evidence))
    ]
    # The sort is stable: among equals the order of the table stays.
    return tuple(sorted(applying, key=lambda claim: -claim.confidence))


def classify(evidence: Evidence) -> Claim:
    """The end that is most certain by what is known so far, with every line for it; never raises."""
    claims = claims_of(evidence)
    best = claims[0]
    lines = tuple(line for claim in claims if claim.kind is best.kind for line in claim.evidence)
    return replace(best, evidence=lines)


def is_settled(claim: Claim, evidence: Evidence) -> bool:
    """Waiting longer for evidence will not help."""
    return claim.confidence is Confidence.PROVEN or evidence.gathering_over


def run_end(claim: Claim, evidence: Evidence) -> RunEnd | None:
    """For the attempt; None when the exit status or the device agent's own reason say it as well."""
    if claim.reason is None or claim.kind in {EndKind.EXIT, EndKind.STOPPED}:
        return None
    others = [each for each in claims_of(evidence) if each.kind not in {claim.kind, EndKind.UNKNOWN}]
    return RunEnd.because(
        claim.reason,
        "; ".join(claim.evidence) or claim.kind.value,
        claim.confidence,
        [
            *claim.evidence,
            *(f"missing: {gap}" for gap in findings.missing(evidence)),
            *(f"{each.kind.value}: {line}" for each in others for line in each.evidence),
        ],
    )


def _reason(kind: EndKind, evidence: Evidence) -> FailureReason | None:
    if kind is EndKind.STOPPED:
        return FailureReason.LEASE_EXPIRED if evidence.lease_expired else None
    if kind is EndKind.EXIT and evidence.exit is not None and evidence.exit.code is not None:
        return _REASON_OF_CODE.get(evidence.exit.code, FailureReason.RUNTIME_EXIT)
    return REASON_OF_KIND[kind]
