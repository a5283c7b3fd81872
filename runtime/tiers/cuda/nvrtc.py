"""From the CUDA C++ sources beside this file to machine code, through NVRTC, which comes with torch."""

import ctypes
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import torch

from runtime.tiers.build_cache import cache_folder
from runtime.tiers.cuda.errors import KernelBuildError, NvrtcMissingError

SOURCES: Final = Path(__file__).parent / "src"
_NAME: Final = re.compile(r"libnvrtc\.so(\.\d+)*")


def _libraries() -> Iterator[str]:
    """Those of the wheels for torch's own CUDA first, then the system's."""
    version = (torch.version.cuda or "").partition(".")[0]
    found = find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found is not None else ():
        files = [file for file in Path(folder).glob("*/lib/libnvrtc.so*") if _NAME.fullmatch(file.name)]
        yield from sorted(map(str, files), key=lambda name: not name.endswith(f".so.{version}"))
    yield from (f"libnvrtc.so.{version}", "libnvrtc.so")


@cache
def nvrtc() -> ctypes.CDLL:
    """NvrtcMissingError where neither torch's wheels nor the system have it."""
    for name in _libraries():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NvrtcMissingError("libnvrtc was not found beside torch, nor in the system")


def machine_code(source: str, defines: Mapping[str, int], capability: tuple[int, int]) -> bytes:
    """A cubin of `source` for one compute capability; from the cache if it was made before.

    NvrtcMissingError, KernelBuildError.
    """
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "--std=c++17"]
    options += [f"-D{name}={value}" for name, value in sorted(defines.items())]
    file = cache_folder() / f"{Path(source).stem}-{_key(source, options)}.cubin"
    try:
        if file.exists():
            return file.read_bytes()
        code = _compile(source, options)
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=file.parent) as scratch:
            fresh = Path(scratch) / file.name
            fresh.write_bytes(code)
            os.replace(fresh, file)
    except OSError as error:
        raise KernelBuildError(f"{file}: {error.strerror or error}") from error
    return code


def _key(source: str, options: list[str]) -> str:
    """Changes with the sources, the options and the compiler."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    digest = hashlib.sha256()
    for part in (source, *options, f"{major.value}.{minor.value}"):
        digest.update(part.encode() + b"\0")
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def _compile(source: str, options: list[str]) -> bytes:
    library, program = nvrtc(), ctypes.c_void_p()
    headers = sorted(SOURCES.glob("*.cuh"))
    texts = (ctypes.c_char_p * len(headers))(*(header.read_bytes() for header in headers))
    names = (ctypes.c_char_p * len(headers))(*(header.name.encode() for header in headers))
    text = (SOURCES / source).read_bytes()
    made = library.nvrtcCreateProgram(
        ctypes.byref(program), text, source.encode(), len(headers), texts, names
    )
    if made != 0:
        raise KernelBuildError(f"{source}: NVRTC's error {made}")
    try:
        flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        done = library.nvrtcCompileProgram(program, len(options), flags)
        if done != 0:
            said = _output(library, program, "ProgramLog").decode(errors="replace").splitlines()
            worst = next((line for line in said if "error" in line), f"NVRTC's error {done}")
            raise KernelBuildError(f"{source} was refused: {worst[:300]}")
        return _output(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _output(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw
