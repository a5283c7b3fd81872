"""`python -m benchmarks.run` (`make bench`): peers and our own runtime, interleaved; then docs/benchmarks.md.

Broken off, it goes on where it was when it is called again within some hours. Nothing is started that the
budget has no room for, and what was measured by then is written.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from benchmarks.document import write_document
from benchmarks.environments import Environment, PeerNotInstalledError, default_cache, prepare
from benchmarks.execution import REPOSITORY, Bench, RunFailedError, own_report, run_config, run_process
from benchmarks.models import SHAPES, Shape, export
from benchmarks.plan import BEST, OTHERS, OTHERS_PERCENT_MAX, OURS, Config, expected_s, next_config
from benchmarks.results import Session, last_session, new_session, open_session
from benchmarks.work import write_work
from contract.rest import WorkloadRequest
from contract.workload import CompiledWorkload
from runtime.host.machine import this_machine
from runtime.host.others import OthersMeter
from workloads import compile_request

EXTRA_RUNS: Final = 2
VOCAB: Final = 49_152
RESULTS: Final = REPOSITORY / "benchmarks/results"
SMALL: Final = {"agents": 2, "prefix_tokens": 60, "task_tokens": 10, "calls": 2, "generated_tokens": 4}
_OWN_REPEATS: Final = {"serial": 2, "serial_cached": 5, "paged": 5}
_OWN_REPEATS_SMALL: Final = {"serial": 1, "serial_cached": 1, "paged": 1}


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, parsed."""

    shape: Shape
    dtype: str
    threads: int
    budget_s: float
    run_limit_s: float
    quiet_wait_s: float
    peers: frozenset[str]
    is_small: bool
    is_best_only: bool
    is_new: bool
    cache: Path

    @property
    def configs(self) -> list[Config]:
        """What is to be measured; a small session runs everything once."""
        asked = BEST if self.is_best_only else (*BEST, *OTHERS)
        wanted = [config for config in asked if config.peer in self.peers]
        if not self.is_small:
            return wanted
        return [Config(config.peer, config.mode, 1, 60.0) for config in wanted]

    @property
    def extra_runs(self) -> int:
        """How often a disturbed run is repeated."""
        return 0 if self.is_small else EXTRA_RUNS

    @property
    def results(self) -> Path:
        """Of a small session nothing is kept in the repository."""
        folder = self.cache / "small" if self.is_small else RESULTS
        return folder / f"{self.shape.name}-{self.dtype}.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all was measured, 3 when the budget or a peer left something out, 130 on Ctrl-C."""
    options, only_document = _parse(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    if only_document:
        return _write(last_session(options.results), options)
    workload = _workload(options)
    session = _session(options, workload)
    try:
        is_whole = _measure(options, workload, session)
    except KeyboardInterrupt:
        _tell("interrupted; the same command goes on from here")
        _write(session, options)
        return 130
    return _write(session, options) or (0 if is_whole else 3)


def _parse(argv: Sequence[str] | None) -> tuple[Options, bool]:
    machine = this_machine()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    add = parser.add_argument
    add("--shape", choices=sorted(SHAPES), default="smollm2-135m")
    add("--dtype", choices=("float32", "bfloat16"), default="bfloat16" if machine.has_bf16 else "float32")
    add("--threads", type=int, default=machine.cores)
    add("--budget-minutes", type=float, default=90.0, help="nothing is started that would end later")
    add("--run-limit-s", type=float, default=1500.0, help="a run that takes longer is ended")
    add("--quiet-wait-s", type=float, default=120.0, help="how long a run waits for a quiet machine")
    known = sorted({config.peer for config in (*BEST, *OTHERS)})
    add("--peers", default=",".join(known), help="folders in benchmarks/peers, and " + OURS)
    add("--small", action="store_true", help="everything once, on a tiny work: shows that all of it runs")
    add("--best-only", action="store_true", help="only the ratios: ours and each peer at its best, in turn")
    add("--new", action="store_true", help="do not go on with an earlier session")
    add("--document", action="store_true", help="only write the document again")
    add("--cache", type=Path, default=default_cache())
    given = parser.parse_args(argv)
    peers = frozenset(given.peers.split(","))
    if not peers <= set(known):
        parser.error(f"--peers: {', '.join(sorted(peers - set(known)))} is none of {', '.join(known)}")
    options = Options(
        shape=SHAPES[given.shape],
        dtype=given.dtype,
        threads=given.threads,
        budget_s=given.budget_minutes * 60.0,
        run_limit_s=given.run_limit_s,
        quiet_wait_s=given.quiet_wait_s,
        peers=peers,
        is_small=given.small,
        is_best_only=given.best_only,
        is_new=given.new,
        cache=given.cache,
    )
    return options, given.document


def _session(options: Options, workload: CompiledWorkload) -> Session:
    machine = this_machine()
    about: dict[str, Any] = {
        "work": workload.name,
        "digest": workload.digest,
        "shape": options.shape.name,
        "dtype": options.dtype,
        "threads": options.threads,
        "cpu": machine.cpu,
        "cores": machine.cores,
        "has_bf16": machine.has_bf16,
        "os": f"{machine.os_name} {machine.os_version}",
        "commit": _commit(),
    }
    if options.is_new or options.is_small:
        return new_session(options.results, about)
    return open_session(options.results, about, datetime.now(UTC))


def _workload(options: Options) -> CompiledWorkload:
    params: dict[str, Any] = dict(SMALL) if options.is_small else {}
    (compiled,) = compile_request(WorkloadRequest(name="seed-5x2000", params=params))
    return compiled


def _measure(options: Options, workload: CompiledWorkload, session: Session) -> bool:
    """False when something could not be installed or had no room in the budget."""
    deadline_s = time.monotonic() + options.budget_s
    model = export(
        options.shape, options.dtype, options.cache / "models" / f"{options.shape.name}-{options.dtype}"
    )
    work_file = write_work(workload, 0, VOCAB, options.cache / f"work-{workload.digest[7:19]}.json")
    environments = _environments(options, model, session)
    with closing(OthersMeter()) as meter:
        bench = Bench(
            workload=workload,
            work_file=work_file,
            model=model,
            own_model=model / "model.gguf",
            dtype=options.dtype,
            threads=options.threads,
            environments=environments,
            meter=meter,
            run_limit_s=options.run_limit_s,
            quiet_wait_s=options.quiet_wait_s,
            extra_runs=options.extra_runs,
        )
        configs = [each for each in options.configs if each.peer == OURS or each.peer in environments]
        is_whole = len(configs) == len(options.configs)
        wants_own = OURS in options.peers and not options.is_best_only
        if wants_own and session.latest("own") is None:
            _measure_own(options, bench, session)
        while config := next_config(configs, session.runs, OTHERS_PERCENT_MAX, options.extra_runs):
            left_s = deadline_s - time.monotonic()
            if expected_s(config, session.runs) > left_s:
                _tell(f"{config.name} has no room in the budget ({left_s:.0f} s left)")
                configs.remove(config)
                is_whole = False
                continue
            _measure_one(options, bench, session, config)
    return is_whole


def _environments(options: Options, model: Path, session: Session) -> dict[str, Environment]:
    found: dict[str, Environment] = {}
    for peer in sorted(options.peers - {OURS}):
        try:
            environment = prepare(peer, options.cache, _tell)
            script = environment.folder / "prepare.py"
            if script.exists():
                command = [str(environment.python), str(script), "--model", str(model)]
                run_process(
                    command, options.cache / f"{peer}-prepare.txt", environment.variables, options.run_limit_s
                )
            found[peer] = environment
        except (PeerNotInstalledError, RunFailedError) as error:
            _tell(f"{peer} cannot be measured here: {error}")
            session.add({"kind": "not_installed", "peer": peer, "error": str(error)[-1500:]})
    return found


def _measure_own(options: Options, bench: Bench, session: Session) -> None:
    try:
        repeats = _OWN_REPEATS_SMALL if options.is_small else _OWN_REPEATS
        report = own_report(bench, repeats, _tell)
    except RunFailedError as error:
        _tell(f"our own arms failed: {error}")
        session.add({"kind": "own_failed", "error": str(error)[-1500:]})
        return
    session.add({"kind": "own", "report": report.model_dump(mode="json")})


def _measure_one(options: Options, bench: Bench, session: Session, config: Config) -> None:
    if options.quiet_wait_s and not bench.meter.wait_for_quiet(OTHERS_PERCENT_MAX, options.quiet_wait_s):
        _tell(f"the machine is not quiet after {options.quiet_wait_s:g} s; going on")
    began_s = time.monotonic()
    line: dict[str, Any] = {"kind": "run", "config": config.name, "result": None, "others_cpu_percent": 100.0}
    try:
        line["result"], line["others_cpu_percent"] = run_config(bench, config)
        said = f"{line['result']['wall_s']:.2f} s, others used {line['others_cpu_percent']:.1f} %"
    except RunFailedError as error:
        line["error"] = str(error)
        said = f"failed: {error}"
    line["took_s"] = time.monotonic() - began_s
    session.add(line)
    _tell(f"{config.name}: {said}")


def _write(session: Session | None, options: Options) -> int:
    if session is None:
        _tell(f"nothing was measured yet: {options.results} is not there")
        return 2
    folder = options.cache / "small" if options.is_small else REPOSITORY / "docs"
    path = write_document(folder, options.results.parent)
    _tell(f"written: {path}")
    return 0


def _commit() -> str:
    """The last change of what is measured: another document does not end a session."""
    asked = ["git", "log", "-1", "--format=%h", "--", "runtime", "contract", "workloads"]
    done = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, check=False, timeout=30)
    return done.stdout.decode().strip() or "unknown"


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _tell(text: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} bench: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
