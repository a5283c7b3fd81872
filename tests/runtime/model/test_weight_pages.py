"""Weights keep their numbers on large pages, and their memory goes when the last of them does."""

import gc
import mmap
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.host.memory import read_footprint
from runtime.model.weight_pages import WeightPages

pytestmark = pytest.mark.skipif(
    not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no large pages on request"
)
STATUS = Path("/proc/self/status")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_copies_lie_side_by_side_on_lines_of_their_own(dtype: torch.dtype) -> None:
    pages = WeightPages()
    shapes = [(3, 5), (1,), (7, 64), (0, 4), (2, 3, 4)]
    wanted = [torch.randint(-100, 100, shape).to(dtype) for shape in shapes]
    held = [pages.hold(tensor) for tensor in wanted]
    for copy, tensor in zip(held, wanted, strict=True):
        assert torch.equal(copy, tensor)
        assert copy.dtype == dtype
        assert copy.data_ptr() % 64 == 0
    held[0].zero_()
    assert all(torch.equal(copy, tensor) for copy, tensor in zip(held[1:], wanted[1:], strict=True))


def test_rows_that_do_not_lie_together_are_copied_together() -> None:
    tensor = torch.arange(24.0).view(4, 6).T
    held = WeightPages().hold(tensor)
    assert held.is_contiguous()
    assert torch.equal(held, tensor)


@pytest.mark.skipif(not STATUS.exists(), reason="reads the resident size from /proc")
def test_one_larger_than_a_slab_has_its_own_and_goes_with_its_tensor() -> None:
    pages = WeightPages(1 << 20)
    first = pages.hold(torch.ones(1000))
    large = pages.hold(torch.full((16 << 20,), 3.0))
    assert float(large[-1]) == 3.0
    gc.collect()
    before = read_footprint().footprint_bytes
    del large
    after = pages.hold(torch.ones(1 << 20))  # no room for it behind the large one
    gc.collect()
    assert before - read_footprint().footprint_bytes > 50_000 * 1024
    assert torch.equal(first, torch.ones(1000))
    assert torch.equal(after, torch.ones(1 << 20))


def test_a_system_without_memory_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", refuse)
    with pytest.raises(MemoryError, match="40 bytes for weights: Cannot allocate"):
        WeightPages(40).hold(torch.ones(10))
