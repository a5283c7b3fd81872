"""The tensors behind the pool: copies, sizes, refusals."""

import sys

import pytest
import torch

from runtime.errors import PoolTooSmallError
from runtime.host.memory import read_footprint
from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.llama import LlamaModel
from runtime.model.numeric import ON_CPU, Placement
from runtime.model.paged_kv import PagedKV


def test_a_copy_takes_the_first_slots_in_all_layers_and_leaves_the_rest(tiny: LlamaModel) -> None:
    kv = PagedKV(tiny.config, 4, 8, ON_CPU)
    for layer in range(tiny.config.layers):
        kv.slots(layer, 1, 8).fill_(layer + 1.0)
    kv.copy_slots([(1, 3, 5)])
    for layer in range(tiny.config.layers):
        target = kv.slots(layer, 3, 8)
        assert (target[:5] == layer + 1.0).all()
        assert (target[5:] == 0).all()


def test_a_copy_longer_than_a_block_is_refused(tiny: LlamaModel) -> None:
    with pytest.raises(ValueError, match="9 tokens"):
        PagedKV(tiny.config, 4, 8, ON_CPU).copy_slots([(1, 3, 9)])


def test_block_bytes_follow_from_layers_heads_size_and_precision(tiny: LlamaModel) -> None:
    config = tiny.config
    for placement in (ON_CPU, Placement.named("bfloat16", "cpu")):
        kv = PagedKV(config, 3, 32, placement)
        assert 3 * kv.block_bytes == sum(kv.slots(layer, 0, 96).nbytes for layer in range(config.layers))


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Span([1, 2], 15, 1, [0]), "1 blocks, 2 are needed"),
        (Span([1], 0, 1, [4]), "outside 0..3"),
        (Span([1], 0, 1, [-1]), "outside 0..3"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tiny: LlamaModel, span: Span, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PagedKV(tiny.config, 4, 16, ON_CPU).begin(ForwardBatch((span,)))


def test_a_pool_of_nothing_is_refused(tiny: LlamaModel) -> None:
    with pytest.raises(PoolTooSmallError):
        PagedKV(tiny.config, 0, 16, ON_CPU)


def test_the_contiguous_cache_takes_one_sequence_that_fits(tiny: LlamaModel) -> None:
    kv = ContiguousKV(tiny.config, 10, ON_CPU)
    with pytest.raises(ValueError, match="one sequence"):
        kv.begin(ForwardBatch((Span([1], 0), Span([1], 0))))
    with pytest.raises(ValueError, match="11 tokens, capacity 10"):
        kv.begin(ForwardBatch((Span([1], 10),)))
    assert kv.kv_bytes == 10 * tiny.config.kv_format(4).token_bytes


def test_freed_stores_hold_no_tensors(tiny: LlamaModel) -> None:
    for kv in (ContiguousKV(tiny.config, 10, ON_CPU), PagedKV(tiny.config, 1, 16, ON_CPU)):
        kv.free()
        with pytest.raises(IndexError):
            tiny.forward(ForwardBatch((Span([1], 0, 1, [0]),)), kv)
    assert torch.is_grad_enabled()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_pool_is_charged_for_what_was_written_and_gives_it_back(tiny: LlamaModel) -> None:
    def charged_bytes() -> int:
        return read_footprint().footprint_bytes

    before = charged_bytes()
    kv = PagedKV(tiny.config, 40_000, 32, ON_CPU)
    whole = 40_000 * kv.block_bytes
    assert charged_bytes() - before < whole // 10
    for layer in range(tiny.config.layers):
        kv.slots(layer, 0, 40_000 * 16).fill_(1.0)
    held = charged_bytes() - before
    assert whole * 0.45 < held < whole * 0.6
    kv.free()
    assert charged_bytes() - before < whole // 10


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_slots_that_hold_no_numbers_are_found_with_their_group(tiny: LlamaModel, bad: float) -> None:
    kv = PagedKV(tiny.config, 3, 4, tiny.placement)
    kv.slots(tiny.config.layers - 1, 1, 4)[2, 1, 0, 3] = bad
    assert kv.are_finite([[0, 1, 2], [5, 6, 7], [4, 5], [11]]) == [True, False, True, True]
    assert kv.are_finite([]) == []
