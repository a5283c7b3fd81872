"""The end of an attempt: the last events of the device agent's stream, then result.json."""

from pathlib import Path

import structlog

from contract.agent_api import ResultRequest
from contract.events import RuntimeExited
from contract.events.envelope import Stream
from contract.failures import FailureReason
from contract.model import storable_text
from contract.run_end import EVIDENCE_LINES_MAX, RunEnd
from device_agent.attempt.artifacts import keep_artifacts, without_secrets
from device_agent.attempt.outcome import conclude, explained, unsaid
from device_agent.collect.intake import Progress
from device_agent.collect.spool import Spool
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.clock import monotonic_ns
from device_agent.targets.port import ExitStatus, RuntimeProcess

_log = structlog.get_logger(__name__)

_LOG_TAIL_BYTES = 2000


def conclude_attempt(
    folder: AttemptFolder,
    spool: Spool,
    process: RuntimeProcess | None,
    progress: Progress,
    stop: RunEnd | None,
) -> None:
    """Write the result, once: later calls change nothing, also after a restart in between.

    process None: not started in this life of the device agent. stop: why the device agent ended it. Its
    stream ends here: the last number is part of the result. SpoolFullError, OSError: try again.
    """
    if folder.result() is not None:
        return
    started = folder.start_intended
    status = _exit_status(spool, process) if started else None
    told = process.end() if process is not None else None
    if status is not None:
        _record_exit(spool, status, stop, told)
    spool.report_drops(monotonic_ns())
    end = conclude(status, progress, stop, told, _log_end(folder.log_path))
    if end.reason is FailureReason.MODEL_MISSING and not started:
        end = end.model_copy(update={"outcome": "refused"})
    kept = keep_artifacts(folder)
    if kept.left_out:
        _log.warning("artifacts_left_out", attempt_id=folder.attempt_id, files=kept.left_out)
    result = ResultRequest(
        **{**dict(end), "evidence": [*end.evidence, *kept.left_out][-EVIDENCE_LINES_MAX:]},
        fence=folder.grant().lease.fence,
        last_seq=spool.last_seqs(),
        artifacts=list(kept.refs),
    )
    folder.write_result(result)


def _exit_status(spool: Spool, process: RuntimeProcess | None) -> ExitStatus:
    """What was seen in this life or an earlier one."""
    for event in spool.events(Stream.DEVICE_AGENT, "runtime_exited"):
        if isinstance(event, RuntimeExited):
            return ExitStatus(event.exit_code, event.signal)
    seen = process.exit_status() if process is not None else None
    return seen or ExitStatus(None, None)


def _record_exit(spool: Spool, status: ExitStatus, stop: RunEnd | None, told: RunEnd | None) -> None:
    if spool.events(Stream.DEVICE_AGENT, "runtime_exited"):
        return
    end = explained(stop, told)
    if end is None and status.signal is not None and stop is None:
        end = unsaid(status)
    spool.record(
        lambda seq: RuntimeExited(
            seq=seq, t_mono_ns=monotonic_ns(), exit_code=status.exit_code, signal=status.signal, end=end
        )
    )


def _log_end(path: Path) -> str:
    """The end of the runtime's log, for the person who reads the result."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            text = storable_text(without_secrets(file.read()).decode("utf-8", "replace").strip())
    except OSError:
        return ""
    return f"End of its log: {text}" if text else ""
