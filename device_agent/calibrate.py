"""`python -m device_agent.calibrate`: has a runtime measure this machine, keeps what it finds.

Standard output has the lines of contract/calibration.py, the last one the result or what went wrong. It gives
way to attempts: beside one, neither figure would be worth anything.
"""

import argparse
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from pydantic import BaseModel, ValidationError

from contract.calibration import (
    CALIBRATION_LINE,
    CalibrationFailed,
    CalibrationFinished,
    CalibrationLine,
    CalibrationStep,
)
from contract.failures import Fault
from contract.home import BUILT_IN_MODEL
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.errors import AgentError, AttemptRunsError, CalibrationBrokeError, ModelMissingError
from device_agent.floor.settings import AgentSettings
from device_agent.targets.host.calibrations import shelf_of
from device_agent.targets.host.subprocess import adopt
from device_agent.targets.models import model_names, model_path

Say = Callable[[BaseModel], None]
Last = CalibrationFinished | CalibrationFailed

_LOOK_S: Final = 1.0
_SILENCE_S: Final = 300.0
"""A large model is loaded, or measured once with one thread, within this."""
_STOP_S: Final = 10.0
_READ_BYTES: Final = 1 << 16
_LINE_BYTES_MAX: Final = 1 << 20
_ADVICE: Final = {
    "model-missing": "name one of them with --model, or put a model into the models folder",
    "calibration-runs": "wait until it is done",
    "attempt-runs": "wait for its end, or first keep runs away: dynofarm devices maintain DEVICE -r REASON",
}


class CalibrateExit(IntEnum):
    """As of every process of ours: usage, infrastructure, and what a shell says after Ctrl-C."""

    STORED = 0
    USAGE = 2
    INFRASTRUCTURE = 4
    CANCELLED = 130


@dataclass(frozen=True, slots=True)
class Wanted:
    """model None: the only one, else the built-in one. limit_s: no measurement begins later."""

    model: str | None
    limit_s: float


def run(arguments: Sequence[str], say: Say) -> CalibrateExit:
    """The exit code; nothing is kept unless the measurement came to its end."""
    parser = argparse.ArgumentParser(prog="device_agent.calibrate", description="Calibrate this machine.")
    parser.add_argument("--home", help="where everything is kept (default: ~/.dynofarm)")
    parser.add_argument("--models-dir", help="where models lie (default: HOME/models)")
    parser.add_argument("--model", help="name of the model (default: the only one, or the built-in one)")
    parser.add_argument("--limit-s", type=float, default=90.0, help="no measurement begins later")
    options = vars(parser.parse_args(arguments))
    wanted = Wanted(options.pop("model"), options.pop("limit_s"))
    given = {name: value for name, value in options.items() if value is not None}
    try:
        with _interrupted_by_sigterm():
            last = _outcome(given, wanted, say)
            say(last)
    except (KeyboardInterrupt, BrokenPipeError):
        return CalibrateExit.CANCELLED
    if isinstance(last, CalibrationFinished):
        return CalibrateExit.STORED
    return CalibrateExit.USAGE if last.is_usage else CalibrateExit.INFRASTRUCTURE


def _outcome(given: Mapping[str, str], wanted: Wanted, say: Say) -> Last:
    """Every failure as the last line that tells of it."""
    try:
        return calibrate(AgentSettings.model_validate(given), wanted, say)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return _failed("bad-setting", f"{place}: {first['msg']}", "correct it", is_usage=True)
    except AgentError as error:
        advice = _ADVICE.get(error.kind, "what it said before, on standard error, says more")
        return _failed(error.kind, str(error), advice, is_usage=error.fault is Fault.JOB)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _failed("not-kept", str(error), "make room, or choose another --home", is_usage=False)


def _failed(code: str, detail: str, next_step: str, *, is_usage: bool) -> CalibrationFailed:
    return CalibrationFailed(code=code, detail=detail, next_step=next_step, is_usage=is_usage)


def calibrate(settings: AgentSettings, wanted: Wanted, say: Say) -> Last:
    """Measures and keeps, or what the runtime could not do.

    ModelMissingError, CalibrationRunsError, AttemptRunsError, CalibrationBrokeError.
    """
    name = wanted.model or _obvious_model(settings.models_folder)
    path = model_path(settings.models_folder, name)
    settings.agent_home.mkdir(mode=0o700, parents=True, exist_ok=True)
    shelf = shelf_of(settings)
    with shelf.measuring():
        _give_way(settings)
        command = [
            *settings.runtime_command,
            *("calibrate", "--model", name, "--model-path", str(path), "--limit-s", str(wanted.limit_s)),
        ]
        last = _measure(command, say, lambda: _give_way(settings))
        if isinstance(last, CalibrationFinished):
            last = last.model_copy(update={"file": str(shelf.keep(last.report))})
        return last


def _obvious_model(folder: Path) -> str:
    names = model_names(folder)
    if len(names) == 1:
        return names[0]
    if BUILT_IN_MODEL in names:
        return BUILT_IN_MODEL
    raise ModelMissingError(f"which model? there are: {', '.join(names) or 'none'}")


def _give_way(settings: AgentSettings) -> None:
    """AttemptRunsError while a runtime of an attempt lives on this machine."""
    for path in settings.attempts_folder.glob("att_*"):
        folder = AttemptFolder(path)
        if (path / "result.json").exists() or not (path / "process.json").exists():
            continue
        if adopt(folder) is not None:
            raise AttemptRunsError(f"attempt {folder.attempt_id} runs on this machine")


def _measure(command: Sequence[str], say: Say, look: Callable[[], None]) -> Last:
    """The runtime's last line. `look` is called every second or so and may raise: the process ends then."""
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
    except OSError as error:
        raise CalibrationBrokeError(f"{command[0]} does not start: {error}") from error
    try:
        for text in _lines(child, look):
            line = _parsed(text)
            if not isinstance(line, CalibrationStep):
                return line
            say(line)
        raise CalibrationBrokeError(f"the runtime ended without a result, exit code {child.wait(_STOP_S)}")
    finally:
        _end(child)


def _lines(child: "subprocess.Popen[bytes]", look: Callable[[], None]) -> Iterator[bytes]:
    """Whole lines until the output ends; CalibrationBrokeError for silence and for a line without an end."""
    assert child.stdout is not None
    held, heard_s = b"", time.monotonic()
    with child.stdout, selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(_LOOK_S):
                piece = os.read(child.stdout.fileno(), _READ_BYTES)
                if not piece:
                    return
                *whole, held = (held + piece).split(b"\n")
                heard_s = time.monotonic()
                yield from whole
            if len(held) > _LINE_BYTES_MAX or time.monotonic() - heard_s > _SILENCE_S:
                raise CalibrationBrokeError(
                    f"the runtime wrote no line for {_SILENCE_S:g} s, or one too long"
                )
            look()


def _parsed(text: bytes) -> CalibrationLine:
    try:
        line: CalibrationLine = CALIBRATION_LINE.validate_json(text)
    except ValidationError as error:
        said = text[:200].decode(errors="replace")
        raise CalibrationBrokeError(f"the runtime wrote a line that is none of ours: {said!r}") from error
    return line


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(_STOP_S)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(line: BaseModel) -> None:
    sys.stdout.write(line.model_dump_json() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], _say))
