"""A verdict as an event of the agent's stream."""

from contract.events import AppCrashed, JetsamKilled
from contract.model import storable_text
from device_agent.targets.ios.classifier import EndKind, Verdict
from device_agent.targets.ios.evidence import Evidence

# File names and boot ids are the device's own words; an event has a limit and takes no lone surrogate.
_MAX_LINES = 50
_MAX_LINE_CHARS = 500
_CRASHES = frozenset({EndKind.CRASH, EndKind.WATCHDOG, EndKind.HEAT, EndKind.KILLED_OUTSIDE})


def verdict_event(
    verdict: Verdict, evidence: Evidence, seq: int, t_mono_ns: int
) -> JetsamKilled | AppCrashed | None:
    """What to record of it; None for an end that is no kill and no crash."""
    said = [*verdict.evidence, *(f"missing: {gap}" for gap in verdict.missing)][:_MAX_LINES]
    lines = [_line(text) for text in said]
    if verdict.kind is EndKind.JETSAM:
        victim, report = verdict.victim, verdict.report
        return JetsamKilled(
            seq=seq,
            t_mono_ns=t_mono_ns,
            report_found=victim is not None,
            kill_reason=(victim.reason if victim is not None else None) or "inferred",
            process_name=evidence.process.name,
            pid=evidence.process.pid,
            footprint_pages=victim.resident_pages if victim is not None else None,
            page_size_bytes=report.memory.page_size_bytes if report is not None else None,
            lifetime_max_pages=victim.lifetime_max_pages if victim is not None else None,
            evidence=lines,
        )
    if verdict.kind in _CRASHES and verdict.reason is not None:
        return AppCrashed(
            seq=seq,
            t_mono_ns=t_mono_ns,
            reason=verdict.reason,
            signal=evidence.exit.signal if evidence.exit is not None else None,
            exception=_line(verdict.evidence[0]) if verdict.evidence else "",
            evidence=lines,
        )
    return None


def _line(text: str) -> str:
    return storable_text(text[:_MAX_LINE_CHARS])
