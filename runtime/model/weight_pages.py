"""Memory for weights in pages of 2 MB where the system has them.

A decode step reads every weight once, and of pages of 4 kB a processor looks up 130,000 for 540 MB.
Measured in pairs of steps (two AVX2 cores of a virtual machine): 0.96 of the time with five rows, 0.95 with
one.
"""

import mmap
from contextlib import suppress
from typing import Final

import torch
from torch import Tensor

_PAGE_BYTES: Final = 2 << 20
_SLAB_BYTES: Final = 256 << 20
"""Reserved at once: what is not touched costs nothing, but the last page of each slab is only partly used."""
_LINE_BYTES: Final = 64


class WeightPages:
    """Copies of tensors, side by side; a slab is the system's again when the last tensor in it is gone."""

    def __init__(self, slab_bytes: int = _SLAB_BYTES) -> None:
        self._slab_bytes = slab_bytes
        self._slab = torch.empty(0, dtype=torch.uint8)

    def hold(self, tensor: Tensor) -> Tensor:
        """The tensor's copy on large pages; the tensor itself where the system has none. On the CPU only.

        MemoryError when the system gives no memory.
        """
        if not hasattr(mmap, "MADV_HUGEPAGE"):
            return tensor
        if tensor.nbytes > len(self._slab):
            self._slab = _new_slab(max(self._slab_bytes, tensor.nbytes))
        place, self._slab = self._slab[: tensor.nbytes], self._slab[_padded(tensor.nbytes) :]
        held = place.view(tensor.dtype).view(tensor.shape)
        return held.copy_(tensor)


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _LINE_BYTES) * _LINE_BYTES


def _new_slab(size_bytes: int) -> Tensor:
    """At least `size_bytes` that nobody has touched, from the beginning of a page; the rest costs nothing."""
    try:
        region = mmap.mmap(-1, size_bytes + _PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no {size_bytes} bytes for weights: {error.strerror}") from error
    with suppress(OSError):  # a kernel without large pages: the same memory in small ones
        region.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(region, dtype=torch.uint8)
    return whole[-whole.data_ptr() % _PAGE_BYTES :]
