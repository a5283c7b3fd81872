"""int8 weights: their product, and where torch's operator for them must not be called."""

import pytest
import torch

from runtime.model.linear import Int8Linear, make_int8_linear, reads_int8_safely


@pytest.mark.parametrize(
    ("dtype", "version", "is_safe"),
    [
        (torch.bfloat16, "2.11.0+cu130", False),
        (torch.bfloat16, "2.12.1", False),
        (torch.bfloat16, "2.13.0+cpu", True),
        (torch.bfloat16, "3.0.0", True),
        (torch.float16, "2.11.0", False),
        (torch.float32, "2.11.0+cu130", True),
    ],
)
def test_the_operator_that_crashes_with_bfloat16_is_left_alone(
    dtype: torch.dtype, version: str, is_safe: bool
) -> None:
    assert reads_int8_safely(dtype, version) == is_safe


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
