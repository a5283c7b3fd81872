"""What glibc keeps of freed memory is given back when a prefill is over, and not at every step."""

from pathlib import Path

import pytest

from runtime.engine.generator import CallKey, StepRan
from runtime.measured.prefill_leavings import PrefillLeavings
from tests.fakes.python_program import said_by

KEY = CallKey("a1", 1)
DECODE = [StepRan(1, 1, ((KEY, 1),), (), 1)]
PREFILL = [StepRan(1, 1, (), ((KEY, 64),), 1)]
BOTH = [StepRan(1, 1, ((KEY, 1),), ((KEY, 64),), 1)]


@pytest.mark.parametrize(
    ("steps", "given_back"),
    [
        ([DECODE, DECODE], [False, False]),
        ([PREFILL, PREFILL, DECODE, DECODE], [False, False, True, False]),
        ([PREFILL, [], DECODE], [False, False, True]),
        ([BOTH, DECODE, BOTH, DECODE], [False, True, False, True]),
    ],
)
def test_memory_is_given_back_once_after_each_prefill(
    steps: list[list[StepRan]], given_back: list[bool]
) -> None:
    leavings = PrefillLeavings()
    assert [leavings.look(facts) for facts in steps] == given_back


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the resident size from /proc")
def test_a_large_piece_leaves_nothing_behind_when_small_ones_follow_it() -> None:
    program = """
        import ctypes

        from runtime.host.heap import large_pieces_apart
        from runtime.host.memory import read_footprint

        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
        libc.free.argtypes = (ctypes.c_void_p,)
        libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
        before = read_footprint().footprint_bytes
        with large_pieces_apart():
            for _ in range(20):
                large = libc.malloc(8 << 20)
                libc.memset(large, 1, 8 << 20)
                pinning = libc.malloc(1000)
                libc.memset(pinning, 1, 1000)
                libc.free(large)
        print(read_footprint().footprint_bytes - before)
    """
    # By default the first is mapped, the limit then grows, and the others lie in the heap: 8 MB stay.
    assert int(said_by(program)) < 4_000 * 1024
