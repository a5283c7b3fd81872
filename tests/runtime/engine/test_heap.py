"""What glibc keeps of freed memory is given back when a prefill is over, and not at every step."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from runtime.engine.arm import StepRan
from runtime.engine.graph import CallKey
from runtime.engine.heap import PrefillLeavings

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
        from pathlib import Path
        from runtime.engine.heap import large_pieces_apart

        def anonymous_kb():
            lines = Path("/proc/self/status").read_text().splitlines()
            return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])

        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
        libc.free.argtypes = (ctypes.c_void_p,)
        libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
        before_kb = anonymous_kb()
        with large_pieces_apart():
            for _ in range(20):
                large = libc.malloc(8 << 20)
                libc.memset(large, 1, 8 << 20)
                pinning = libc.malloc(1000)
                libc.memset(pinning, 1, 1000)
                libc.free(large)
        print(anonymous_kb() - before_kb)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    # By default the first is mapped, the limit then grows, and the others lie in the heap: 8 MB stay.
    assert int(said.stdout) < 4_000
