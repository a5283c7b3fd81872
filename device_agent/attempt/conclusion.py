"""The end of an attempt: the last events of the agent's stream, then result.json."""

from dataclasses import dataclass
from pathlib import Path

from contract.agent_api import ResultRequest
from contract.events import AppCrashed, RuntimeExited
from contract.events.envelope import Stream
from contract.failures import FailureReason
from contract.model import storable_text
from device_agent.attempt.outcome import Ending, Verdict, conclude
from device_agent.collect.intake import Progress
from device_agent.collect.spool import Spool
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.clock import monotonic_ns
from device_agent.targets.port import Diagnosis, ExitStatus, RuntimeProcess

_DETAIL_CHARS = 4000
_LOG_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Finding:
    """What the runner knows at the end. process None: not started in this life of the agent.

    started: a runtime was started, in whatever life. refused: the attempt was declined before any start.
    """

    process: RuntimeProcess | None
    started: bool
    progress: Progress
    stop: FailureReason | None
    refused: bool
    detail: str


def conclude_attempt(folder: AttemptFolder, spool: Spool, finding: Finding) -> None:
    """Write the result, once: later calls change nothing, also after a restart in between.

    The agent's stream ends here: its last number is part of the result. SpoolFullError, OSError: try again.
    """
    if folder.result() is not None:
        return
    status = _exit_status(spool, finding) if finding.started else None
    ending = Ending(
        status=status,
        finished=finding.progress.finished,
        stop=finding.stop,
        events_invalid=finding.progress.invalid,
        diagnosis=finding.process.diagnosis() if finding.process is not None else None,
        detail=finding.detail or _log_tail(folder.log_path),
    )
    if status is not None:
        _record_exit(spool, status, ending.explained, finding)
    spool.report_drops(monotonic_ns())
    verdict = conclude(ending)
    folder.write_result(_result(folder, spool, verdict, refused=finding.refused))


def _result(folder: AttemptFolder, spool: Spool, verdict: Verdict, *, refused: bool) -> ResultRequest:
    return ResultRequest(
        fence=folder.grant().lease.fence,
        outcome="refused" if refused else verdict.outcome,
        reason=verdict.reason,
        detail=storable_text(verdict.detail[:_DETAIL_CHARS]),
        last_seq=spool.last_seqs(),
    )


def _exit_status(spool: Spool, finding: Finding) -> ExitStatus:
    """What was seen in this life or an earlier one."""
    for event in spool.events(Stream.DEVICE_AGENT, "runtime_exited"):
        if isinstance(event, RuntimeExited):
            return ExitStatus(event.exit_code, event.signal)
    seen = finding.process.exit_status() if finding.process is not None else None
    return seen or ExitStatus(None, None)


def _record_exit(spool: Spool, status: ExitStatus, explained: Diagnosis | None, finding: Finding) -> None:
    if spool.events(Stream.DEVICE_AGENT, "runtime_exited"):
        return
    if explained is not None:
        make_event = explained.event
        if make_event is not None:
            spool.record(lambda seq: make_event(seq, monotonic_ns()))
    elif status.signal is not None and finding.stop is None:
        spool.record(lambda seq: AppCrashed(seq=seq, t_mono_ns=monotonic_ns(), signal=status.signal))
    spool.record(
        lambda seq: RuntimeExited(
            seq=seq, t_mono_ns=monotonic_ns(), exit_code=status.exit_code, signal=status.signal
        )
    )


def _log_tail(path: Path) -> str:
    """The end of the runtime's log, for the person who reads the result."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return f"End of its log: {text}" if text else ""
