"""`python -m runtime calibrate`: lines of contract/calibration.py on stdout, the last one the result."""

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from pydantic import BaseModel, TypeAdapter, ValidationError

from contract.calibration import CalibrationFailed, CalibrationFinished, CalibrationReport
from contract.failures import Fault
from contract.ids import Name
from contract.runtime_link import RuntimeExit
from runtime.calibration.calibrator import CalibrationRequest, Calibrator, says_nothing
from runtime.errors import RuntimeFault

LIMIT_S: Final = 90.0


def main(argv: Sequence[str]) -> int:
    """The exit code; CANCELLED for Ctrl-C and SIGTERM, and then there is no last line."""
    request = _parse(argv)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        report = Calibrator(request, _say).run()
        if says_nothing(report):
            _say(_too_short(report, request.limit_s))
            return RuntimeExit.USAGE
        _say(CalibrationFinished(report=report))
        return RuntimeExit.COMPLETED
    except KeyboardInterrupt:
        return RuntimeExit.CANCELLED
    except BrokenPipeError:
        # Nobody is there any more to whom the result could be given.
        return RuntimeExit.CANCELLED
    except RuntimeFault as fault:
        is_usage = fault.fault is Fault.JOB
        _say(CalibrationFailed(code=fault.kind, detail=str(fault), next_step=fault.advice, is_usage=is_usage))
        return RuntimeExit.FAILED
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        detail = f"{type(error).__name__}: {error}"
        advice = "this is a bug of dynofarm, or the machine is out of memory; the log says more"
        _say(CalibrationFailed(code="calibration-broke", detail=detail, next_step=advice))
        return RuntimeExit.FAILED
    finally:
        signal.signal(signal.SIGTERM, before)


def _too_short(report: CalibrationReport, limit_s: float) -> CalibrationFailed:
    return CalibrationFailed(
        code="calibration-unclear",
        detail=f"no option was clear after its one round, {report.duration_s:.0f} s with the model's loading "
        f"at a limit of {limit_s:g} s: nothing is kept",
        next_step=f"give it more time: --limit-s {max(90.0, 2 * report.duration_s):.0f}",
        is_usage=True,
    )


def _parse(argv: Sequence[str]) -> CalibrationRequest:
    parser = argparse.ArgumentParser(
        prog="python -m runtime calibrate", description="Measures the best engine options on this machine."
    )
    parser.add_argument("--model", type=_name, required=True, help="name under which the result is kept")
    parser.add_argument("--model-path", type=Path, required=True, help="a GGUF file or a Hugging Face folder")
    parser.add_argument(
        "--limit-s", type=float, default=LIMIT_S, help="no round after an option's first begins later"
    )
    options = parser.parse_args(argv)
    return CalibrationRequest(options.model, options.model_path, max(0.001, options.limit_s))


def _name(text: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(text)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a model") from error


def _say(line: BaseModel) -> None:
    sys.stdout.write(line.model_dump_json() + "\n")
    sys.stdout.flush()


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
