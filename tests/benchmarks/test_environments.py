"""Environments are made once, remade for other requirements, and a failure keeps the installer's words."""

import hashlib
from pathlib import Path

import pytest

from benchmarks import environments
from benchmarks.environments import HERE, PeerNotInstalledError, prepare


def installed(cache: Path, peer: str, stamp: str | None = None) -> None:
    requirements = (HERE / "peers" / peer / "requirements.txt").read_bytes()
    (cache / peer / "venv/bin").mkdir(parents=True)
    (cache / peer / "installed").write_text(stamp or hashlib.sha256(requirements).hexdigest())


def test_what_is_installed_is_used(tmp_path: Path) -> None:
    installed(tmp_path, "mlx_lm")
    told: list[str] = []
    environment = prepare("mlx_lm", tmp_path, told.append)
    assert told == []
    assert environment.python == tmp_path / "mlx_lm/venv/bin/python"
    assert (environment.folder / "run.py").is_file()
    assert Path(environment.variables["PYTHONPATH"], "peer_protocol.py").is_file()


def test_other_requirements_are_installed_anew_and_a_failure_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "mlx_lm", stamp="of older requirements")
    # An interpreter that is none: the first thing that an installation needs fails.
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    told: list[str] = []
    with pytest.raises(PeerNotInstalledError, match="/nowhere/python"):
        prepare("mlx_lm", tmp_path, told.append)
    assert "installing" in told[0]


def test_llama_cpp_is_built_beside_its_binding(tmp_path: Path) -> None:
    installed(tmp_path, "llama_cpp")
    build = tmp_path / "llama_cpp/sources/llama_cpp_python-0.3.36/vendor/llama.cpp/build"
    build.mkdir(parents=True)
    (build / "dynofarm-built").write_text("")
    variables = prepare("llama_cpp", tmp_path, lambda _: None).variables
    assert variables["LLAMA_CPP_BUILD"] == str(build)
    assert variables["LD_LIBRARY_PATH"] == str(build / "bin")
    assert variables["PYTHONPATH"].endswith("sources/llama_cpp_python-0.3.36")


@pytest.mark.parametrize("folder", sorted((HERE / "peers").iterdir()), ids=lambda path: path.name)
def test_every_requirement_of_a_peer_is_pinned(folder: Path) -> None:
    lines = [line for line in (folder / "requirements.txt").read_text().splitlines() if line[:1] != "#"]
    assert lines
    assert [line for line in lines if "==" not in line] == []


def test_the_cache_lies_where_the_system_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environments.default_cache() == tmp_path / "dynofarm/benchmarks"
