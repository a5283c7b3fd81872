"""One run of one configuration as a process: its answer, and what others used of the machine meanwhile."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from benchmarks.environments import Environment
from benchmarks.plan import OURS, Config
from contract.bench import BenchFailure, BenchReport, BenchRequest
from contract.jobs import EngineOptions
from contract.workload import CompiledWorkload
from runtime.host.others import OthersMeter

_ANSWER: Final[TypeAdapter[BenchReport | BenchFailure]] = TypeAdapter(BenchReport | BenchFailure)
_SAID_CHARACTERS: Final = 2000
_STOP_S: Final = 20.0
_GRACE_S: Final = 60.0
"""The runtime ends by itself at its limit; then it has this long to say so."""
REPOSITORY: Final = Path(__file__).parents[1]


class RunFailedError(Exception):
    """The process gave no answer; the message ends with what it said."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runs of a session have in common."""

    workload: CompiledWorkload
    work_file: Path
    model: Path
    """Folder with hf/ and model.gguf."""
    own_model: Path
    """The form of it that our runtime reads: one that it copies, so that its footprint has all weights."""
    dtype: str
    threads: int
    environments: Mapping[str, Environment]
    meter: OthersMeter
    run_limit_s: float
    quiet_wait_s: float
    extra_runs: int

    @property
    def engine(self) -> EngineOptions:
        """How our own runtime is set up: as the peers are, the rest is its own choice."""
        return EngineOptions.model_validate({"dtype": self.dtype, "threads": self.threads})


def run_config(bench: Bench, config: Config) -> tuple[dict[str, Any], float]:
    """The run's answer and the percentage that others used; RunFailedError."""
    if config.peer == OURS:
        return _run_ours(bench, config)
    environment = bench.environments[config.peer]
    with tempfile.TemporaryDirectory(prefix="dynofarm-peer-") as folder:
        answer = Path(folder) / "answer.json"
        command = [
            *(str(environment.python), str(environment.folder / "run.py")),
            *("--work", str(bench.work_file), "--model", str(bench.model), "--mode", config.mode),
            *("--threads", str(bench.threads), "--dtype", bench.dtype, "--answer", str(answer)),
        ]
        run_process(command, Path(folder) / "said.txt", environment.variables, bench.run_limit_s)
        found: dict[str, Any] = json.loads(answer.read_text())
    return found, bench.meter.percent(found["began_mono_ns"], found["ended_mono_ns"])


def run_process(
    command: Sequence[str], said: Path | None, variables: Mapping[str, str], limit_s: float
) -> str:
    """Standard output of the process; RunFailedError for another exit code than 0 or past the limit.

    Its standard error goes to the file `said`, or where ours goes. It runs in a group of its own, which is
    ended whole, also when we are interrupted.
    """
    with said.open("wb") if said is not None else nullcontext() as errors:
        process = subprocess.Popen(
            command,
            cwd=tempfile.gettempdir(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            raise RunFailedError(f"no answer within {limit_s:g} s") from error
        finally:
            _end_group(process)
    if process.returncode:
        words = said.read_text(errors="replace")[-_SAID_CHARACTERS:] if said is not None else ""
        raise RunFailedError(f"exit code {process.returncode}: {words or out.decode(errors='replace')}")
    return out.decode()


def own_report(bench: Bench, repeats: Mapping[str, int], tell: Callable[[str], None]) -> BenchReport:
    """`dynofarm bench runtime` on the same weights; RunFailedError."""
    tell("our own arms: " + ", ".join(f"{mode} {count}" for mode, count in repeats.items()))
    request = _request(bench, repeats, bench.run_limit_s * 6)
    request = request.model_copy(
        update={
            "without_events_repeats": repeats.get("paged", 0),
            "arriving_prefill_repeats": min(3, repeats.get("paged", 0)),
            "quiet_wait_s": bench.quiet_wait_s,
            "extra_rounds": bench.extra_runs,
        }
    )
    return _ask_runtime(request, None)


def _run_ours(bench: Bench, config: Config) -> tuple[dict[str, Any], float]:
    with tempfile.TemporaryDirectory(prefix="dynofarm-peer-") as folder:
        said = Path(folder) / "said.txt"
        report = _ask_runtime(_request(bench, {config.mode: 1}, bench.run_limit_s), said)
    run, arm = report.runs[0], next(iter(report.arms.values()))
    answer = {
        "peer": OURS,
        "version": report.conditions["runtime_version"],
        "work": report.workload,
        "mode": config.mode,
        "dtype": report.dtype,
        "threads": report.threads,
        "tier": report.tier,
        "wall_s": run.wall_s,
        "ttft_s": run.ttft_s,
        "itl_p50_ms": run.itl_p50_ms,
        "itl_p95_ms": run.itl_p95_ms,
        "prompt_tokens": arm.prompt_tokens_submitted,
        "cached_tokens": round(arm.kv_hit_rate_tokens * arm.prompt_tokens_submitted),
        "output_sha256": run.output_sha256,
        "peak_rss_mb": arm.peak_footprint_mb,
    }
    return answer, run.others_cpu_percent


def _request(bench: Bench, repeats: Mapping[str, int], limit_s: float) -> BenchRequest:
    return BenchRequest.model_validate(
        {
            "workload": bench.workload.model_dump(),
            "model": str(bench.own_model),
            "engine": bench.engine.model_dump(),
            "repeats": dict(repeats),
            "without_events_repeats": 0,
            "arriving_prefill_repeats": 0,
            "extra_rounds": 0,
            "quiet_wait_s": 0,
            "limit_s": limit_s,
        }
    )


def _ask_runtime(request: BenchRequest, said: Path | None) -> BenchReport:
    with tempfile.TemporaryDirectory(prefix="dynofarm-request-") as folder:
        path = Path(folder) / "request.json"
        path.write_text(request.model_dump_json())
        command = [sys.executable, "-m", "runtime.bench", "--request", str(path)]
        variables = {"PYTHONPATH": str(REPOSITORY)}
        out = run_process(command, said, variables, request.limit_s + _GRACE_S)
    try:
        answer = _ANSWER.validate_json(out)
    except ValidationError as error:
        raise RunFailedError(f"the answer is none: {out[:_SAID_CHARACTERS]!r}") from error
    if isinstance(answer, BenchFailure):
        raise RunFailedError(f"{answer.kind}: {answer.detail}")
    return answer


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Asks all of the group to end, then ends it: a child left behind would disturb the next run."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        deadline_s = time.monotonic() + _STOP_S
        while process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.05)
    if process.stdout is not None:
        process.stdout.close()
