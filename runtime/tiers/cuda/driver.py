"""Kernels from machine code, launched through the CUDA driver in torch's context and stream."""

import ctypes
from functools import cache
from typing import Final

import torch

from runtime.tiers.cuda.errors import DriverCallError

_MOST_SHARED_BYTES: Final = 8
_LOCAL_BYTES: Final = 3
_REGISTERS: Final = 4
_PREFERRED_SHARED: Final = 9
_PROGRAMMATIC_SERIALIZATION: Final = 6


class _LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute with an int as value."""

    _fields_ = (
        ("name", ctypes.c_int),
        ("padding", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverCallError(f"the CUDA driver is not there: {error}") from error


def _call(name: str, *arguments: object) -> None:
    code = getattr(_driver(), name)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise DriverCallError(f"{name}: {(text.value or b'').decode() or code}")


def prefer_shared_memory(function: int) -> None:
    """Processors that run this kernel keep all they can of their L1 as shared memory. DriverCallError."""
    _call("cuFuncSetAttribute", ctypes.c_void_p(function), _PREFERRED_SHARED, 100)


class Kernel:
    """One kernel of a cubin; its one parameter is a structure. Loaded until the process ends."""

    def __init__(self, code: bytes, name: str, device: torch.device) -> None:
        torch.cuda.synchronize(device)  # torch's context is the thread's from here on
        self._device = device
        module = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        _call("cuModuleLoadData", ctypes.byref(module), code)
        _call("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        _call("cuFuncGetAttribute", ctypes.byref(value), which, self._function)
        return value.value

    @property
    def registers(self) -> int:
        """Of a thread."""
        return self._attribute(_REGISTERS)

    @property
    def spilled_bytes(self) -> int:
        """Of a thread: memory for what has no register."""
        return self._attribute(_LOCAL_BYTES)

    def allow_shared_bytes(self, count: int) -> None:
        """Must be told before a launch with more than 48 KiB."""
        _call("cuFuncSetAttribute", self._function, _MOST_SHARED_BYTES, count)

    def clusters_at_once(self, blocks: int, threads: int, shared_bytes: int) -> int:
        """How many clusters, of the size that the kernel was compiled for, the whole device holds at once."""
        config, count = _LaunchConfig(), ctypes.c_int()
        config.grid, config.block, config.shared_bytes = (blocks, 1, 1), (threads, 1, 1), shared_bytes
        _call("cuOccupancyMaxActiveClusters", ctypes.byref(count), self._function, ctypes.byref(config))
        return count.value

    def launch(
        self, argument: ctypes.Structure, blocks: int, threads: int, shared_bytes: int, *, is_early: bool
    ) -> None:
        """On torch's current stream; may be captured. is_early: begins before the one before it has ended."""
        attribute = _LaunchAttribute(name=_PROGRAMMATIC_SERIALIZATION, value=1)
        config = _LaunchConfig(
            grid=(blocks, 1, 1),
            block=(threads, 1, 1),
            shared_bytes=shared_bytes,
            stream=torch.cuda.current_stream(self._device).cuda_stream,
            attributes=ctypes.pointer(attribute),
            attribute_count=int(is_early),
        )
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        _call("cuLaunchKernelEx", ctypes.byref(config), self._function, parameters, None)
