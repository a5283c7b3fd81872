"""The runtime's command line: reads the attempt's folder, runs the attempt, ends with a RuntimeExit code.

Nothing is written to standard output; messages for people go to standard error, facts into the events.
"""

import argparse
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from contract.events import RuntimeFinished
from contract.failures import FailureReason
from contract.ids import ULID_PATTERN
from contract.jobs import AttemptSpec
from contract.runtime_link import (
    ATTEMPT_DIR_OPTION,
    EVENTS_FILE,
    LEASE_FILE,
    MODEL_PATH_OPTION,
    SOCKET_OPTION,
    SPEC_FILE,
    RuntimeExit,
)
from contract.version import CONTRACT_VERSION, SUPPORTED_CONTRACT_VERSIONS
from runtime.errors import BadAttemptSpecError, ContractVersionError, LeaseExpiredError, RuntimeFault
from runtime.measured.attempt import Attempt
from runtime.measured.conditions import producer
from runtime.measured.emit import PENDING_SEQ, EventEmitter, message_text
from runtime.measured.errors import (
    AttemptFolderError,
    CancelledError,
    EventsNotWrittenError,
    OutOfMemoryError,
)
from runtime.measured.serve import EventServer
from runtime.measured.signals import cancelling_on_signals
from runtime.measured.watchdog import Watchdog

_ATTEMPT_ID = re.compile(rf"att_{ULID_PATTERN}")
_SPEC_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How the runtime ends: what its last event says, and its exit code."""

    status: Literal["completed", "failed", "cancelled"]
    exit_code: int
    reason: FailureReason | None = None
    detail: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """One attempt; returns the exit code. argparse itself ends the process with 2 on a wrong command line."""
    options = _parse(argv)
    folder: Path = options.attempt_dir
    try:
        spec = read_spec(folder / SPEC_FILE)
    except RuntimeFault as fault:
        _complain(fault)
        _refuse_in_events(folder, fault)
        return RuntimeExit.USAGE
    try:
        return _run(spec, folder, options.model_path, options.socket)
    except AttemptFolderError as fault:
        _complain(fault)
        return RuntimeExit.USAGE
    except EventsNotWrittenError as fault:
        _complain(fault)
        return RuntimeExit.FAILED


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m runtime", description="Runs one attempt of a job.")
    parser.add_argument(
        ATTEMPT_DIR_OPTION, type=Path, required=True, help="folder with spec.json and lease.json"
    )
    parser.add_argument(
        MODEL_PATH_OPTION, type=Path, required=True, help="a GGUF file or a Hugging Face folder"
    )
    parser.add_argument(
        SOCKET_OPTION, type=Path, required=True, help="Unix socket on which events are served"
    )
    return parser.parse_args(argv)


def read_spec(path: Path) -> AttemptSpec:
    """The spec; its version is judged before its fields, since another version may have others.

    AttemptFolderError, ContractVersionError or BadAttemptSpecError, which names the field.
    """
    try:
        if path.stat().st_size > _SPEC_BYTES:
            raise BadAttemptSpecError(path.name, f"larger than {_SPEC_BYTES} bytes")
        text = path.read_bytes()
    except OSError as error:
        raise AttemptFolderError(path, f"the spec cannot be read: {error.strerror}") from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadAttemptSpecError(path.name, f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadAttemptSpecError(path.name, "not a JSON object")
    version = found.get("contract_version", CONTRACT_VERSION)
    if not isinstance(version, str) or version not in SUPPORTED_CONTRACT_VERSIONS:
        raise ContractVersionError(str(version), CONTRACT_VERSION)
    try:
        return AttemptSpec.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadAttemptSpecError(".".join(map(str, first["loc"])) or path.name, first["msg"]) from error


def _run(spec: AttemptSpec, folder: Path, model_path: Path, socket: Path) -> int:
    """Opens the events, runs the attempt and closes them; AttemptFolderError before anything was run."""
    emitter = EventEmitter(folder / EVENTS_FILE, spec.attempt_id, producer(spec.build.commit))
    server: EventServer | None = None
    watchdog: Watchdog | None = None
    with ExitStack() as until_the_end:
        try:
            server = EventServer(socket, emitter)
            watchdog = Watchdog(folder / LEASE_FILE, on_hang=lambda: _end_hung(emitter))
            # The engine stops at its next step and says so in the events. Also while the last events are
            # written: a signal then must not cost them, nor the exit code.
            until_the_end.enter_context(cancelling_on_signals(watchdog.cancel))
            ending = _carry_out(Attempt(spec, model_path, emitter, watchdog))
        except AttemptFolderError as fault:
            _complain(fault)
            ending = ProcessEnd("failed", RuntimeExit.USAGE, fault.reason, str(fault))
        finally:
            if watchdog is not None:
                watchdog.close()
        if server is not None:
            until_the_end.callback(server.close)
        _finish(emitter, ending)
        emitter.close()
    return ending.exit_code


def _carry_out(attempt: Attempt) -> ProcessEnd:
    """Runs the attempt and says how it ended, whatever happened."""
    try:
        failed = attempt.run()
    except CancelledError as stop:
        return ProcessEnd("cancelled", RuntimeExit.CANCELLED, stop.reason, str(stop))
    except LeaseExpiredError as fault:
        _complain(fault)
        return ProcessEnd("failed", RuntimeExit.LEASE_EXPIRED, fault.reason, str(fault))
    except (AttemptFolderError, EventsNotWrittenError):
        raise
    except RuntimeFault as fault:
        _complain(fault)
        return ProcessEnd("failed", RuntimeExit.FAILED, fault.reason, f"{fault.kind}: {fault}")
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        if _is_out_of_memory(error):
            refused = OutOfMemoryError(str(error))
            return ProcessEnd("failed", RuntimeExit.FAILED, refused.reason, f"{refused.kind}: {refused}")
        detail = f"{type(error).__name__}: {error}"
        return ProcessEnd("failed", RuntimeExit.FAILED, FailureReason.RUNTIME_EXIT, detail)
    if failed is not None:
        detail = f"trial {failed.trial}, {failed.detail}"
        return ProcessEnd("failed", RuntimeExit.FAILED, failed.reason, detail)
    return ProcessEnd("completed", RuntimeExit.COMPLETED)


def _is_out_of_memory(error: Exception) -> bool:
    """torch says it as a RuntimeError of its allocator."""
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)


def _finish(emitter: EventEmitter, ending: ProcessEnd) -> None:
    emitter.emit(
        RuntimeFinished(
            seq=PENDING_SEQ,
            t_mono_ns=time.monotonic_ns(),
            status=ending.status,
            reason=ending.reason,
            detail=message_text(ending.detail),
        )
    )


def _end_hung(emitter: EventEmitter) -> None:
    """From the watchdog: the lease is over and the engine does not answer. Ends the process."""
    detail = "the lease ended, and a step of the engine did not"
    try:
        _finish(emitter, ProcessEnd("failed", RuntimeExit.LEASE_EXPIRED, FailureReason.LEASE_EXPIRED, detail))
        emitter.close(timeout_s=5.0)
    finally:
        os._exit(RuntimeExit.LEASE_EXPIRED)


def _refuse_in_events(folder: Path, fault: RuntimeFault) -> None:
    """Says it in the events too, when the folder names the attempt and holds no events yet."""
    if not _ATTEMPT_ID.fullmatch(folder.resolve().name) or (folder / EVENTS_FILE).exists():
        return
    try:
        emitter = EventEmitter(folder / EVENTS_FILE, folder.resolve().name, producer("unknown"))
        _finish(emitter, ProcessEnd("failed", RuntimeExit.USAGE, fault.reason, f"{fault.kind}: {fault}"))
        emitter.close()
    except (AttemptFolderError, EventsNotWrittenError) as error:
        _complain(error)


def _complain(fault: RuntimeFault) -> None:
    sys.stderr.write(f"runtime: {fault.kind}: {fault}\nruntime: what to try: {fault.advice}\n")
