"""The library is built once, by one process, and a machine that cannot build it is told so in one line."""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from runtime.model.numeric import Placement
from runtime.tiers.build_cache import cache_folder
from runtime.tiers.choice import choose_tier
from runtime.tiers.native import library
from runtime.tiers.native.compiler import build_key, built_library, find_compiler
from runtime.tiers.native.errors import CompilerFailedError, LibraryRefusedError, NoCompilerError
from runtime.tiers.native.library import Kinds, open_library

FLAGS = ("-shared",)
Compiler = Callable[[str], Path]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A program that stands in for the compiler; the last argument is the file that it must write."""

    def make(body: str) -> Path:
        program = tmp_path / "c++"
        program.write_text(f'#!/bin/sh\necho run >> "{tmp_path}/runs"\nfor out; do :; done\n{body}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", str(program))
        return tmp_path / "cache"

    return make


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def test_what_was_built_is_not_built_again(compiler: Compiler, tmp_path: Path) -> None:
    cache = compiler('echo built > "$out"')
    first, second = built_library(cache, FLAGS), built_library(cache, FLAGS)
    assert first == second
    assert first.read_text() == "built\n"
    assert runs(tmp_path) == 1
    assert built_library(cache, FLAGS, rebuild=True) == first
    assert runs(tmp_path) == 2


def test_other_flags_and_another_compiler_are_another_library(compiler: Compiler) -> None:
    compiler("exit 0")
    keys = {build_key(find_compiler(), FLAGS), build_key(find_compiler(), ()), build_key("other", FLAGS)}
    assert len(keys) == 3


def test_processes_that_ask_at_once_wait_for_the_one_that_builds(compiler: Compiler, tmp_path: Path) -> None:
    cache = compiler('sleep 0.5; echo built > "$out"')
    program = (
        "import sys; from pathlib import Path; from runtime.tiers.native.compiler import built_library; "
    )
    program += "built_library(Path(sys.argv[1]), ('-shared',))"
    root = Path(__file__).parents[4]
    processes = [subprocess.Popen([sys.executable, "-c", program, str(cache)], cwd=root) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    assert runs(tmp_path) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('echo "api.cpp:3: error: what is this" >&2; exit 1', "api.cpp:3: error: what is this"),
        ("exit 4", "exit code 4"),
        ("exit 0", "exit code 0"),
    ],
)
def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    body: str, message: str, compiler: Compiler
) -> None:
    cache = compiler(body)
    with pytest.raises(CompilerFailedError, match=message):
        built_library(cache, FLAGS)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_a_compiler_that_never_ends_is_stopped(compiler: Compiler) -> None:
    cache = compiler("exec sleep 60")
    before_s = time.monotonic()
    with pytest.raises(CompilerFailedError, match="not done in time"):
        built_library(cache, FLAGS, limit_s=0.5)
    assert time.monotonic() - before_s < 30


def test_a_full_disk_is_what_is_said_of_a_failed_link(compiler: Compiler) -> None:
    said = "echo 'ld: final link failed: No space left on device' >&2; echo 'error: ld: 1' >&2; exit 1"
    with pytest.raises(CompilerFailedError, match="No space left"):
        built_library(compiler(said), FLAGS)


def test_a_cache_that_cannot_be_written_is_named(compiler: Compiler, tmp_path: Path) -> None:
    compiler("exit 0")
    (tmp_path / "file").write_text("")
    with pytest.raises(CompilerFailedError, match="file"):
        built_library(tmp_path / "file", FLAGS)


def test_no_compiler_is_said_with_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NoCompilerError, match=r"c\+\+, g\+\+, clang\+\+"):
        find_compiler()


def test_a_damaged_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "libdynofarm-0.so").write_bytes(b"\x7fELF damaged")
    with pytest.raises(LibraryRefusedError, match="libdynofarm-0"):
        open_library(tmp_path / "libdynofarm-0.so")


def test_a_damaged_cache_is_built_again(compiler: Compiler, tmp_path: Path) -> None:
    cache = compiler('echo damaged > "$out"')
    os.environ["DYNOFARM_HOME"], before = str(cache.parent), os.environ.get("DYNOFARM_HOME")
    try:
        with pytest.raises(LibraryRefusedError):
            library.load_library.__wrapped__(Kinds("float32", "float32"))
    finally:
        os.environ.pop("DYNOFARM_HOME") if before is None else os.environ.update(DYNOFARM_HOME=before)
    assert runs(tmp_path) == 2


def test_without_a_compiler_torch_computes_and_one_line_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "absent"))
    monkeypatch.setenv("DYNOFARM_HOME", str(tmp_path))
    library.load_library.cache_clear()
    library.why_not_here.cache_clear()
    try:
        choice = choose_tier("auto", Placement(torch.float32, torch.device("cpu")))
    finally:
        library.load_library.cache_clear()
        library.why_not_here.cache_clear()
    assert choice.name == "aten"
    assert choice.lost is not None
    assert "no C++ compiler" in choice.lost
    assert "\n" not in choice.lost


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({"DYNOFARM_HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/h/native"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/dynofarm/native"),
        ({"HOME": "/me"}, "/me/.cache/dynofarm/native"),
    ],
)
def test_the_cache_is_the_users(
    settings: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DYNOFARM_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)


def test_a_library_cut_short_ends_no_process_and_is_built_again(tmp_path: Path) -> None:
    """As a machine leaves it that lost its power: mapped, it would end whoever touches what is not there."""
    built = built_library(tmp_path / "native", Kinds("float32", "float32").flags)
    whole = built.read_bytes()
    built.unlink()
    built.write_bytes(whole[: len(whole) * 6 // 10])
    program = "from runtime.tiers.native.library import Kinds, load_library; "
    program += "load_library(Kinds('float32', 'float32'))"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[4],
        env={**os.environ, "DYNOFARM_HOME": str(tmp_path)},
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0
    assert built.stat().st_size == len(whole)


def test_what_killed_compilations_left_is_removed(compiler: Compiler) -> None:
    cache = compiler('echo built > "$out"')
    for name, age_s in [("build-old", 3600.0), ("build-new", 0.0)]:
        (cache / name).mkdir(parents=True)
        os.utime(cache / name, (time.time() - age_s,) * 2)
    built_library(cache, FLAGS)
    assert [path.name for path in cache.glob("build-*")] == ["build-new"]
