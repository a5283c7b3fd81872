"""Rates of the machine are positive numbers, and measuring them leaves nothing in the footprint."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = textwrap.dedent(
    """
    import gc
    from dataclasses import replace
    from pathlib import Path

    import torch

    from runtime.engine.heap import trim
    from runtime.model.machine_rates import measure_rates
    from runtime.model.numeric import ON_CPU
    from tests.fakes.model_shapes import SMOLLM2

    def anonymous_kb():
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])

    torch.set_num_threads(1)
    small = replace(SMOLLM2, hidden=64, ffn=128)
    measure_rates(small, ON_CPU)  # what is set up once stays
    gc.collect()
    trim()
    before_kb = anonymous_kb()
    rates = measure_rates(small, ON_CPU)
    assert rates.read_bytes_per_s > 0
    assert rates.matrix_product_flops > 0
    gc.collect()
    trim()
    print(anonymous_kb() - before_kb)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    assert torch.allclose(a @ b, (a.double() @ b.double()).float(), atol=1e-4)
    """
)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the resident size from /proc")
def test_measuring_leaves_no_memory_behind() -> None:
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    # The tables alone are 256 MB.
    assert int(said.stdout) < 4_000
