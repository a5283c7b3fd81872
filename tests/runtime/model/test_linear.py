"""Both linears compute the same, and the packed one holds its weight once."""

import pytest
import torch

from runtime.model.linear import PlainLinear
from runtime.tiers.aten.linear import PackedLinear, make_packed_linear

pytestmark = pytest.mark.skipif(
    not isinstance(make_packed_linear(torch.zeros(4, 4)), PackedLinear),
    reason="this torch has no oneDNN packing",
)


@pytest.mark.parametrize("rows", [1, 2, 5, 33, 200])
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_packed_linear_agrees_with_the_plain_one(rows: int, with_bias: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(48, 40, generator=generator)
    bias = torch.randn(48, generator=generator) if with_bias else None
    x = torch.randn(rows, 40, generator=generator)
    torch.testing.assert_close(
        PackedLinear(weight, bias)(x), PlainLinear(weight, bias)(x), atol=1e-5, rtol=1e-5
    )


def test_other_precisions_stay_plain() -> None:
    assert isinstance(make_packed_linear(torch.zeros(4, 4, dtype=torch.bfloat16)), PlainLinear)


def test_weight_bytes_are_those_of_one_copy() -> None:
    assert make_packed_linear(torch.zeros(48, 40)).weight_bytes == 48 * 40 * 4
