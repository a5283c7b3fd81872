"""int8 weights: their product, also where torch's own operator for them would end the process."""

import pytest
import torch

from runtime.model.linear import Int8Linear, make_int8_linear


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_weights_give_the_product_of_what_they_were_rounded_to(rows: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows)
    linear = make_int8_linear(torch.randn(48, 64, generator=generator))
    assert isinstance(linear, Int8Linear)
    x = torch.randn(rows, 64, generator=generator).to(dtype)
    expected = x.float() @ (linear.weight.float() * linear.scales.unsqueeze(1)).T
    found = linear(x)
    assert found.dtype == dtype
    assert (found.float() - expected).norm() / expected.norm() < 0.02
