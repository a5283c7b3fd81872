"""A calibration as a runtime reports it, and a process that says lines as a runtime would."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from contract.calibration import (
    Calibration,
    CalibrationKey,
    CalibrationReport,
    CalibrationStep,
    CandidateMeasured,
    OptionMeasured,
)

KEY = CalibrationKey(
    model_digest="sha256:0",
    runtime_version="1",
    torch_version="2",
    cpu="c",
    cores=2,
    device="cpu",
    tier="native",
    dtype="bfloat16",
)
STEP = CalibrationStep(message="threads, round 1: 1", spent_s=1.0, limit_s=90.0)


def calibration(model: str = "m", threads: int = 2, **changes: Any) -> Calibration:
    return Calibration(
        model=model,
        key=KEY,
        measured_at=datetime(2026, 11, 29, 12, tzinfo=UTC),
        threads=threads,
        max_batch_sequences=16,
        prefill_chunk_tokens=256,
        others_cpu_percent=3.5,
    ).model_copy(update=changes)


def calibration_report(of: Calibration | None = None) -> CalibrationReport:
    found = of or calibration()
    figures = {1: {"prefill_tokens_per_s": 400.0}, 2: {"prefill_tokens_per_s": 650.0}}
    candidates = [
        CandidateMeasured(value=value, cost_ratio=2 / value, rounds=3, figures=each)
        for value, each in figures.items()
    ]
    threads = OptionMeasured(
        option="threads", chosen=2, is_clear=True, others_cpu_percent=3.5, candidates=candidates
    )
    return CalibrationReport(calibration=found, options=[threads], duration_s=41.5)


def speaking_process(folder: Path, lines: Sequence[BaseModel | str], then: str = "") -> list[str]:
    """A command: it ignores its arguments, says the lines, does `then` (Python) and ends with 0."""
    texts = [line if isinstance(line, str) else line.model_dump_json() for line in lines]
    script = folder / "speaks.py"
    script.write_text(
        f"import os, signal, sys, time\nfor line in {texts!r}:\n    print(line, flush=True)\n{then}\n"
    )
    return [sys.executable, str(script)]


def as_setting(command: Sequence[str]) -> str:
    """A command as the value of a DYNOFARM_*_COMMAND variable."""
    return json.dumps(list(command))
