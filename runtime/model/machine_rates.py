"""What the machine can do at most, measured with torch: bytes read per second, operations per second."""

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses

from runtime.model.config import ModelConfig
from runtime.model.numeric import Placement
from runtime.model.weight_pages import WeightPages

_READ_BYTES = 256 << 20
_ROWS = 2000
_PASSES = 5
_WEIGHTS_IN_TURN = 8
"""So many, one after the other, that none is still in a cache when its turn comes."""


@dataclass(frozen=True, slots=True)
class MachineRates:
    """Medians of some passes with as many threads as torch has now."""

    read_bytes_per_s: float
    matrix_product_flops: float


def measure_rates(config: ModelConfig, placement: Placement) -> MachineRates:
    """The best of some ways to read memory; the best product of `_ROWS` rows with the model's FFN weights.

    Nothing of it stays in the process's footprint.
    """
    try:
        return MachineRates(_read_rate(placement), _product_rate(config, placement))
    finally:
        _free_working_memory()


def _free_working_memory() -> None:
    """Of torch's products, where they are MKL's: 7 MB that it would keep; it makes them anew when needed."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if library.exists():
        free_buffers = getattr(ctypes.CDLL(str(library)), "mkl_serv_free_buffers", None)
        if free_buffers is not None:
            free_buffers()


def _read_rate(placement: Placement) -> float:
    columns = 4096
    table = torch.ones((_READ_BYTES // 4 // columns, columns), dtype=torch.float32, device=placement.device)
    if placement.device.type == "cpu":
        # On the pages that the native tier's weights have: some machines read those faster.
        table = WeightPages().hold(table)
    row = torch.ones(columns, dtype=torch.float32, device=placement.device)
    ways: tuple[Callable[[], object], ...] = (
        lambda: table.sum(),
        lambda: torch.mv(table, row),
        lambda: table.amax(),
    )
    return _READ_BYTES / min(_median_s(way, placement) for way in ways)


def _product_rate(config: ModelConfig, placement: Placement) -> float:
    best = 0.0
    for inner, outer in ((config.hidden, config.ffn), (config.ffn, config.hidden)):
        weights = [placement.put(torch.randn(outer, inner)) for _ in range(_WEIGHTS_IN_TURN)]
        x = placement.put(torch.randn(_ROWS, inner))

        def multiply(x: torch.Tensor = x, weights: list[torch.Tensor] = weights) -> None:
            for weight in weights:
                F.linear(x, weight)

        operations = 2.0 * _ROWS * inner * outer * _WEIGHTS_IN_TURN
        best = max(best, operations / _median_s(multiply, placement))
    return best


def _median_s(work: Callable[[], object], placement: Placement) -> float:
    work()
    durations = []
    for _ in range(_PASSES):
        _settle(placement)
        began_s = time.perf_counter()
        work()
        _settle(placement)
        durations.append(time.perf_counter() - began_s)
    return statistics.median(durations)


def _settle(placement: Placement) -> None:
    if placement.device.type == "cuda":
        torch.cuda.synchronize(placement.device)
    elif placement.device.type == "mps":
        torch.mps.synchronize()
