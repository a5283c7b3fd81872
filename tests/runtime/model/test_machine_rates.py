"""Rates of the machine are positive numbers, and measuring them leaves nothing in the footprint."""

from pathlib import Path

import pytest

from tests.fakes.python_program import said_by

PROGRAM = """
    import gc
    from dataclasses import replace

    import torch

    from runtime.host.heap import trim
    from runtime.host.memory import read_footprint
    from runtime.model.machine_rates import measure_rates
    from runtime.model.numeric import ON_CPU
    from tests.fakes.model_shapes import SMOLLM2

    torch.set_num_threads(1)
    small = replace(SMOLLM2, hidden=64, ffn=128)
    measure_rates(small, ON_CPU)  # what is set up once stays
    gc.collect()
    trim()
    before = read_footprint().footprint_bytes
    rates = measure_rates(small, ON_CPU)
    assert rates.read_bytes_per_s > 0
    assert rates.matrix_product_flops > 0
    gc.collect()
    trim()
    print(read_footprint().footprint_bytes - before)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    assert torch.allclose(a @ b, (a.double() @ b.double()).float(), atol=1e-4)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the resident size from /proc")
def test_measuring_leaves_no_memory_behind() -> None:
    # The tables alone are 256 MB.
    assert int(said_by(PROGRAM, timeout_s=120.0)) < 4_000 * 1024
