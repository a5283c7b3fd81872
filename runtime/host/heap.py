"""What the C library keeps of freed memory, where it is glibc; elsewhere all of this does nothing.

Pages of freed pieces stay charged to the process: without this the peak of `seed-5x2000` was some 25 MB
higher.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 2 << 20
_LARGEST_IN_HEAP_BYTES: Final = 32 << 20
"""The largest that glibc takes."""


@contextmanager
def large_pieces_apart() -> Iterator[None]:
    """Inside, a piece of 2 MB or more is mapped by itself, and the system's again once it is freed.

    By default the C library raises that limit to the largest piece that was freed, up to 32 MB: loading a
    model then leaves holes behind that later small pieces dirty one after the other. Afterwards the limit is
    those 32 MB: what passes work in is reused, and not mapped and zeroed for each layer.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    # Setting one limit stops the other from growing with it: the end of the heap would be given back and
    # asked for again at every pass.
    mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_IN_HEAP_BYTES)
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    try:
        yield
    finally:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP_BYTES)


def trim() -> None:
    """Gives freed pages back to the system; about a millisecond."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
