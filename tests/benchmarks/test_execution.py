"""A run as a process: its answer, its failures with their words, its end with everything below it."""

import os
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.environments import Environment
from benchmarks.execution import Bench, RunFailedError, run_config, run_process
from benchmarks.plan import OURS, Config
from benchmarks.work import write_work
from contract.rest import WorkloadRequest
from runtime.host.others import OthersMeter
from tests.fakes.tiny_model import save_tiny_model
from workloads import compile_request

PROTOCOL = Path(__file__).parents[2] / "benchmarks/protocol"
PEER = """
from peer_protocol import Recorder, Work, answer, arguments, serially
options = arguments(("conc",))
work = Work.read(options.work)
recorder = Recorder()
def generate(agent, call, prompt, wanted):
    recorder.made(agent, call, range(wanted))
    return list(range(wanted))
recorder.begin()
serially(work, recorder, generate)
recorder.end()
answer(options, work, recorder, {"peer": "fake", "version": "1"})
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    params = {"agents": 2, "prefix_tokens": 20, "task_tokens": 4, "calls": 2, "generated_tokens": 3}
    (workload,) = compile_request(WorkloadRequest(name="seed-5x2000", params=params))
    save_tiny_model(tmp_path / "model/hf")
    meter = OthersMeter()
    yield Bench(
        workload=workload,
        work_file=write_work(workload, 0, 260, tmp_path / "work.json"),
        model=tmp_path / "model",
        own_model=tmp_path / "model/hf",
        dtype="float32",
        threads=1,
        environments={
            "fake": fake_peer(tmp_path / "fake", PEER),
            "bad": fake_peer(tmp_path / "bad", "1 / 0"),
        },
        meter=meter,
        run_limit_s=120.0,
        quiet_wait_s=0.0,
        extra_runs=0,
    )
    meter.close()


def fake_peer(folder: Path, script: str) -> Environment:
    folder.mkdir()
    (folder / "run.py").write_text(script)
    return Environment(folder, Path(sys.executable), {"PYTHONPATH": str(PROTOCOL)})


def test_a_peer_is_asked_and_answers(bench: Bench) -> None:
    result, others = run_config(bench, Config("fake", "conc", 1, 1.0))
    assert (result["peer"], result["mode"], result["threads"]) == ("fake", "conc", 1)
    assert result["output_tokens"] == 2 * 2 * 3
    assert 0.0 <= others <= 100.0


def test_our_own_run_answers_in_the_same_form(bench: Bench) -> None:
    theirs, _ = run_config(bench, Config("fake", "conc", 1, 1.0))
    ours, _ = run_config(bench, Config(OURS, "paged", 1, 1.0))
    assert ours["prompt_tokens"] == theirs["prompt_tokens"]
    assert set(ours["ttft_s"]) == set(theirs["ttft_s"])
    assert 0 < ours["cached_tokens"] < ours["prompt_tokens"]
    assert set(theirs) - set(ours) <= {"began_mono_ns", "ended_mono_ns", "output_tokens"}


def test_a_peer_that_fails_says_why(bench: Bench) -> None:
    with pytest.raises(RunFailedError, match="ZeroDivisionError"):
        run_config(bench, Config("bad", "conc", 1, 1.0))


def test_a_run_past_its_limit_is_ended_with_everything_below_it(tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = textwrap.dedent(
        f"""
        import signal, subprocess, sys, time
        sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
        process = subprocess.Popen([sys.executable, "-c", sleeper])
        open({str(child)!r}, "w").write(str(process.pid))
        time.sleep(60)
        """
    )
    with pytest.raises(RunFailedError, match="no answer within"):
        run_process([sys.executable, "-c", script], tmp_path / "said.txt", {}, limit_s=3.0)
    pid = int(child.read_text())
    deadline_s = time.monotonic() + 10.0
    while is_running(pid) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
