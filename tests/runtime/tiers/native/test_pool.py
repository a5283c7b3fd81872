"""The pool of threads alone, in a program of its own: many short jobs on more threads than cores."""

import subprocess
from pathlib import Path

import pytest

import runtime.tiers.native
from runtime.tiers.native.compiler import find_compiler

_JOBS = 200_000
_DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def stress(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("pool") / "stress"
    sources = Path(runtime.tiers.native.__file__).parent / "src"
    subprocess.run(
        [
            find_compiler(),
            *("-std=c++17", "-O2", "-pthread", "-I", str(sources)),
            str(Path(__file__).with_name("pool_stress.cpp")),
            *("-o", str(program)),
        ],
        check=True,
        timeout=_DEADLINE_S,
    )
    return program


@pytest.mark.parametrize("threads", [2, 3, 4, 7])
def test_every_chunk_runs_once_and_every_job_returns(stress: Path, threads: int) -> None:
    """A thread that looks at the last chunk while another one ends the job must not wait for more."""
    ended = subprocess.run(
        [stress, str(_JOBS), str(threads)], capture_output=True, text=True, timeout=_DEADLINE_S
    )
    assert (ended.returncode, ended.stdout) == (0, "")
