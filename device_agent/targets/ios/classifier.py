"""Why an app's run ended: a table of rules over Evidence, the most certain one wins. Pure.

A rule says what must have been seen; none says that something is missing, since a report may be late, rate
limited or moved away. So more evidence for an end can only make that end more certain
(docs/adr/0018-end-of-run-classifier.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from contract.failures import FailureReason
from contract.runtime_link import RuntimeExit
from device_agent.targets.ios import findings
from device_agent.targets.ios.evidence import Evidence, own_victim
from device_agent.targets.ios.jetsam_report import JetsamReport, ReportedProcess


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


class Confidence(IntEnum):
    """PROVEN: the system names our process and what happened. LIKELY: direct sight. POSSIBLE: a hint."""

    NONE = 0
    POSSIBLE = 1
    LIKELY = 2
    PROVEN = 3


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
class Verdict:
    """How the run ended and what says so. reason None: the agent stopped it and knows why itself.

    evidence: the lines that decided. missing: what would make it surer. others: lower claims, for a person.
    settled: waiting longer will not help. report: the file that names our process, with our entry in it.
    """

    kind: EndKind
    confidence: Confidence
    reason: FailureReason | None
    evidence: tuple[str, ...]
    missing: tuple[str, ...]
    others: tuple[str, ...]
    settled: bool
    report: JetsamReport | None = None
    victim: ReportedProcess | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A rule that applies, with its lines."""

    kind: EndKind
    confidence: Confidence
    lines: tuple[str, ...]


def claims_of(evidence: Evidence) -> tuple[Claim, ...]:
    """Every rule that applies, the most certain first; never empty."""
    applying = [Claim(rule.kind, rule.confidence, lines) for rule in RULES if (lines := rule.find(evidence))]
    # The sort is stable: among equals the order of the table stays.
    return tuple(sorted(applying, key=lambda claim: -claim.confidence))


def classify(evidence: Evidence) -> Verdict:
    """The verdict on what is known so far; never raises. Ask again with more evidence until it is settled."""
    claims = claims_of(evidence)
    best = claims[0]
    report, victim = _own_entry(evidence) if best.kind is EndKind.JETSAM else (None, None)
    return Verdict(
        kind=best.kind,
        confidence=best.confidence,
        reason=_reason(best, evidence),
        evidence=tuple(line for claim in claims if claim.kind is best.kind for line in claim.lines),
        missing=findings.missing(evidence),
        others=tuple(
            f"{claim.kind.value}: {line}"
            for claim in claims
            if claim.kind not in {best.kind, EndKind.UNKNOWN}
            for line in claim.lines
        ),
        settled=best.confidence is Confidence.PROVEN or evidence.gathering_over,
        report=report,
        victim=victim,
    )


def _reason(best: Claim, evidence: Evidence) -> FailureReason | None:
    if best.kind is EndKind.STOPPED:
        return FailureReason.LEASE_EXPIRED if evidence.lease_expired else None
    if best.kind is EndKind.EXIT and evidence.exit is not None and evidence.exit.code is not None:
        return _REASON_OF_CODE.get(evidence.exit.code, FailureReason.RUNTIME_EXIT)
    return REASON_OF_KIND[best.kind]


def _own_entry(evidence: Evidence) -> tuple[JetsamReport | None, ReportedProcess | None]:
    for found in evidence.reports:
        if isinstance(found.content, JetsamReport):
            victim = own_victim(evidence.process, found.content)
            if victim is not None:
                return found.content, victim
    return None, None
