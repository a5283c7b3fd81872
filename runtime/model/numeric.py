"""Precision and device, named by callers that have no torch, and memory for large stores."""

import math
import mmap
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from runtime.errors import BadAttemptSpecError

_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Placement:
    """In what precision and where a model's tensors lie."""

    dtype: torch.dtype
    device: torch.device

    @classmethod
    def named(cls, dtype: str, device: str) -> "Placement":
        """float32, bfloat16 or float16; cpu, cuda, cuda:N or mps. BadAttemptSpecError for others."""
        if dtype not in _DTYPES:
            raise BadAttemptSpecError("dtype", f"{dtype!r} is not one of {', '.join(_DTYPES)}")
        here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if not here.get(device.split(":")[0], False):
            present = ", ".join(kind for kind, is_here in here.items() if is_here)
            raise BadAttemptSpecError("device", f"{device!r} is not here; this machine has {present}")
        return cls(_DTYPES[dtype], torch.device(device))

    @property
    def value_bytes(self) -> int:
        return self.dtype.itemsize

    def put(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype)


ON_CPU: Final = Placement(torch.float32, torch.device("cpu"))
"""float32 on the CPU: the reference that everything else is compared with."""


def set_compute_threads(threads: int) -> None:
    """Threads of one torch operator in this process."""
    torch.set_num_threads(threads)


def zero_pages(shape: tuple[int, ...], placement: Placement) -> Tensor:
    """Zeros that take memory page by page as they are first written (CPU); plain zeros on other devices.

    torch.zeros writes its zeros, so that a pool would be charged whole before a block of it is used.
    """
    if placement.device.type != "cpu":
        return torch.zeros(shape, dtype=placement.dtype, device=placement.device)
    size_bytes = math.prod(shape) * placement.value_bytes
    pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=placement.dtype).view(shape)
