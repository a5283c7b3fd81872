"""An environment of its own for each peer, outside of the repository, made once for its requirements."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
INSTALL_LIMIT_S: Final = 3600.0
BUILD_LIMIT_S: Final = 5400.0
_LLAMA: Final = "llama_cpp_python-0.3.36"
_LLAMA_SOURCES: Final = f"{_LLAMA}/vendor/llama.cpp"
_LLAMA_OPTIONS: Final = (
    *("-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=ON"),
    *("-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF"),
)

Tell = Callable[[str], None]


class PeerNotInstalledError(Exception):
    """The peer cannot be installed or built here; the message ends with what the installer said."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A peer's folder in benchmarks/peers, its Python, and what its scripts find in the environment."""

    folder: Path
    python: Path
    variables: dict[str, str]


def default_cache() -> Path:
    """Where environments, models and builds are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dynofarm" / "benchmarks"


def prepare(peer: str, cache: Path, tell: Tell) -> Environment:
    """The peer's environment, made now if it is not there; PeerNotInstalledError when that fails."""
    folder = HERE / "peers" / peer
    requirements = folder / "requirements.txt"
    place = cache / peer
    python = place / "venv/bin/python"
    stamp = place / "installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        tell(f"{peer}: installing into {place}")
        shutil.rmtree(place / "venv", ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(place / "venv")], INSTALL_LIMIT_S)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", "--requirement", str(requirements)], INSTALL_LIMIT_S)
        stamp.write_text(wanted)
    variables = {"PYTHONPATH": str(HERE / "protocol"), "PYTHONDONTWRITEBYTECODE": "1"}
    if peer == "llama_cpp":
        build = _llama_build(place, python, tell)
        variables["LLAMA_CPP_BUILD"] = str(build)
        variables["LD_LIBRARY_PATH"] = str(build / "bin")
        # The binding without its own copy of the libraries.
        variables["PYTHONPATH"] += os.pathsep + str(place / "sources" / _LLAMA)
    return Environment(folder, python, variables)


def _llama_build(place: Path, python: Path, tell: Tell) -> Path:
    """llama-server and the libraries, for this processor, from the sources that llama-cpp-python ships."""
    sources = place / "sources"
    build = sources / _LLAMA_SOURCES / "build"
    done = build / "dynofarm-built"
    if done.exists():
        return build
    tell("llama_cpp: building llama-server (some minutes)")
    if not (sources / _LLAMA_SOURCES).exists():
        download = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        wanted = ["--no-binary", "llama-cpp-python", "--dest", str(sources), "llama-cpp-python==0.3.36"]
        _run([*download, *wanted], INSTALL_LIMIT_S)
        with tarfile.open(sources / f"{_LLAMA}.tar.gz") as archive:
            archive.extractall(sources, filter="data")
    tools = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    root = str(sources / _LLAMA_SOURCES)
    _run(["cmake", "-S", root, "-B", str(build), "-G", "Ninja", *_LLAMA_OPTIONS], BUILD_LIMIT_S, tools)
    _run(["cmake", "--build", str(build), "--target", "llama-server", "llama"], BUILD_LIMIT_S, tools)
    done.write_text("")
    return build


def _run(command: list[str], limit_s: float, variables: dict[str, str] | None = None) -> None:
    path = (variables or os.environ).get("PATH")
    program = shutil.which(command[0], path=path) or command[0]
    try:
        done = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=variables,
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerNotInstalledError(f"{command[0]}: {error}") from error
    if done.returncode:
        said = done.stdout.decode(errors="replace")[-1500:]
        raise PeerNotInstalledError(f"{' '.join(command[:4])} ended with {done.returncode}: {said}")
