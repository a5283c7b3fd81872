"""The product of many rows agrees with torch's, and no division of the work changes a bit of it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from runtime.model.linear import Int8Linear, Linear, PlainLinear
from runtime.model.numeric import Placement
from runtime.tiers.native.linear import NativeInt8Linear, NativeLinear, linear_maker

FLOAT32 = Placement(torch.float32, torch.device("cpu"))
SIZES = st.integers(1, 70) | st.sampled_from([255, 256, 257, 400, 576, 800])
ANY_SHAPE = given(
    rows=st.integers(1, 40) | st.sampled_from([255, 256, 257, 300]),
    outputs=SIZES,
    inputs=SIZES,
    has_bias=st.booleans(),
    kind=st.sampled_from(["auto", "int8"]),
)


def random_linear(outputs: int, inputs: int, *, has_bias: bool, kind: str = "auto") -> Linear:
    generator = torch.Generator().manual_seed(outputs * 1000 + inputs)
    weight = torch.randn(outputs, inputs, generator=generator)
    bias = torch.randn(outputs, generator=generator) if has_bias else None
    return linear_maker(FLOAT32, "int8" if kind == "int8" else "auto")(weight, bias)


def exact(linear: Linear, x: Tensor) -> Tensor:
    assert isinstance(linear, NativeLinear | NativeInt8Linear)
    scales = linear.scales.double() if isinstance(linear, Int8Linear) else 1.0
    product = x.double() @ linear.weight.double().T * scales
    return product if linear.bias is None else product + linear.bias


@settings(max_examples=60, deadline=None)
@ANY_SHAPE
def test_any_shape_agrees_with_sums_in_double_precision(
    rows: int, outputs: int, inputs: int, has_bias: bool, kind: str
) -> None:
    linear = random_linear(outputs, inputs, has_bias=has_bias, kind=kind)
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows))
    wanted = exact(linear, x)
    tolerance = 3e-7 * float(x.abs().max() * wanted.abs().max().clamp_min(1.0)) * inputs**0.5 + 1e-6
    assert (linear(x).double() - wanted).abs().max() < max(tolerance, 1e-4)


@settings(max_examples=60, deadline=None)
@ANY_SHAPE
def test_gate_and_up_in_one_product_are_what_their_outputs_give(
    rows: int, outputs: int, inputs: int, has_bias: bool, kind: str
) -> None:
    linear = random_linear(2 * outputs, inputs, has_bias=has_bias, kind=kind)
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows))
    gate, up = linear(x).double().chunk(2, dim=1)
    wanted = torch.nn.functional.silu(gate) * up
    assert torch.allclose(linear.gated(x).double(), wanted, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize(("rows", "some"), [(300, slice(41, 141)), (11, slice(3, 7))])
@pytest.mark.parametrize("name", ["__call__", "gated"])
def test_neither_threads_nor_neighbours_change_a_bit(name: str, rows: int, some: slice) -> None:
    product = getattr(random_linear(2 * 200, 576, has_bias=True), name)
    x = torch.randn(rows, 576)
    torch.set_num_threads(1)
    whole = product(x)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(product(x), whole)
    assert torch.equal(product(x[some]), whole[some])


def test_no_rows_give_no_rows() -> None:
    linear = random_linear(40, 24, has_bias=True)
    assert linear(torch.empty(0, 24)).shape == (0, 40)
    assert linear.gated(torch.empty(0, 24)).shape == (0, 20)


def test_rows_that_do_not_lie_together_are_taken() -> None:
    linear = random_linear(48, 64, has_bias=False)
    wide = torch.randn(20, 128)
    assert torch.equal(linear(wide[:, :64]), linear(wide[:, :64].contiguous()))


def test_rows_of_another_width_or_precision_are_refused() -> None:
    linear = random_linear(48, 64, has_bias=False)
    with pytest.raises(ValueError, match="rows of 64 float32"):
        linear(torch.randn(20, 65))
    with pytest.raises(ValueError, match="rows of 64 float32"):
        linear(torch.randn(20, 64, dtype=torch.float64))


def test_in_bfloat16_torchs_products_stay() -> None:
    make = linear_maker(Placement(torch.bfloat16, torch.device("cpu")), "auto")
    made = make(torch.randn(8, 8, dtype=torch.bfloat16), None)
    assert isinstance(made, PlainLinear)
    assert not isinstance(made, NativeLinear)
