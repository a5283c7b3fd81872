"""From the sources beside this file to a shared library in the user's cache, built once per machine."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from filelock import FileLock

from runtime.tiers.native.errors import CompilerFailedError, NoCompilerError

SOURCES: Final = Path(__file__).parent / "src"
BUILD_LIMIT_S: Final = 300.0
_FLAGS: Final = (
    "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-ffp-contract=fast",
    "-fPIC", "-shared", "-pthread",
)  # fmt: skip
_COMPILERS: Final = ("c++", "g++", "clang++")
_CPUINFO: Final = Path("/proc/cpuinfo")


def compiler_flags() -> tuple[str, ...]:
    """Those of every library, then the words of DYNOFARM_CXXFLAGS: the later one counts."""
    return (*_FLAGS, *os.environ.get("DYNOFARM_CXXFLAGS", "").split())


def find_compiler() -> str:
    """CXX, or the first of c++, g++ and clang++ on the path. NoCompilerError when there is none."""
    asked = os.environ.get("CXX")
    for name in (asked,) if asked else _COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return found
    looked_for = asked or ", ".join(_COMPILERS)
    raise NoCompilerError(f"no C++ compiler ({looked_for}); install one, or set CXX")


def build_key(compiler: str, flags: tuple[str, ...]) -> str:
    """Changes with the sources, the flags, the compiler and what the processor can do."""
    digest = hashlib.sha256()
    for part in (compiler, *flags, platform.system(), platform.machine(), _processor_features()):
        digest.update(part.encode() + b"\0")
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def built_library(
    folder: Path, flags: tuple[str, ...], *, rebuild: bool = False, limit_s: float = BUILD_LIMIT_S
) -> Path:
    """Path of the library, compiled now unless it is there already; `rebuild` replaces a damaged one.

    Several processes may ask at once: one compiles, the others wait for it, `limit_s` at most.
    NativeTierError as this package names them.
    """
    compiler = find_compiler()
    library = folder / f"libdynofarm-{build_key(compiler, flags)}.so"
    if library.exists() and not rebuild:
        return library
    deadline_s = time.monotonic() + limit_s
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The system lets go of the lock when its holder dies; a time-out is an OSError too.
        with FileLock(library.with_suffix(".lock"), timeout=limit_s):
            _remove_abandoned_builds(folder)
            if rebuild:
                library.unlink(missing_ok=True)
            if not library.exists():
                _compile(compiler, flags, library, deadline_s)
    except OSError as error:
        raise CompilerFailedError(f"{folder}: {error.strerror or error}") from error
    return library


def _remove_abandoned_builds(folder: Path) -> None:
    """Of compilations whose process was killed: older than any that may still run."""
    oldest_s = time.time() - 2 * BUILD_LIMIT_S
    for scratch in folder.glob("build-*"):
        with suppress(OSError):
            if scratch.stat().st_mtime < oldest_s:
                shutil.rmtree(scratch, ignore_errors=True)


def _compile(compiler: str, flags: tuple[str, ...], library: Path, deadline_s: float) -> None:
    with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as scratch:
        fresh = Path(scratch) / library.name
        command = [compiler, *flags, str(SOURCES / "api.cpp"), "-o", str(fresh)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=max(1.0, deadline_s - time.monotonic()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CompilerFailedError(f"{compiler} was not done in time") from None
        if done.returncode != 0 or not fresh.exists():
            said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
            # A full disk is the linker's news; the compiler's last line only says that the linker failed.
            marks = ("No space left", "error")
            worst = next((line for mark in marks for line in said if mark in line), said[0])
            raise CompilerFailedError(f"{compiler} failed: {worst[:300]}")
        os.replace(fresh, library)


def _processor_features() -> str:
    """-march=native means another thing on another processor; a cache may be shared by machines."""
    try:
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
