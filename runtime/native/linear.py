"""Linear layers of the native tier: many rows go through its own product, few through torch's."""

import ctypes
from typing import Final

import torch
from torch import Tensor

from runtime.model.linear import Int8Linear, Linear, LinearMaker, PlainLinear, WeightDtype, make_int8_linear
from runtime.model.numeric import Placement
from runtime.native.library import Kinds, LinearPart, ProductPart, load_library, torch_team

_LEAST_ROWS: Final = 12
"""With fewer, turning the weight costs more than it gains."""


class NativeLinear(PlainLinear):
    """float32 weights and rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None, library: ctypes.CDLL) -> None:
        super().__init__(weight, bias)
        self._library = library

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) < _LEAST_ROWS:
            return super().__call__(x)
        return _product(self, x, self._library)


class NativeInt8Linear(Int8Linear):
    """int8 weights with a scale per output, float32 rows."""

    def __init__(self, linear: Int8Linear, library: ctypes.CDLL) -> None:
        super().__init__(linear.weight.contiguous(), linear.scales, linear.bias)
        self._library = library

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) < _LEAST_ROWS:
            return super().__call__(x)
        return _product(self, x, self._library)


def linear_maker(placement: Placement, weight_dtype: WeightDtype) -> LinearMaker:
    """In bfloat16 torch's products stay: they use matrix units where a processor has them."""
    if placement.dtype != torch.float32:
        return make_int8_linear if weight_dtype == "int8" else PlainLinear
    library = load_library(Kinds("int8" if weight_dtype == "int8" else "float32", "float32"))

    def make(weight: Tensor, bias: Tensor | None) -> Linear:
        if weight_dtype == "int8":
            return NativeInt8Linear(make_int8_linear(weight, bias), library)
        return NativeLinear(weight, bias, library)

    return make


def _product(linear: PlainLinear | Int8Linear, x: Tensor, library: ctypes.CDLL) -> Tensor:
    rows = x.contiguous()
    outputs, inputs = linear.weight.shape
    if rows.dtype != torch.float32 or rows.shape[1] != inputs:
        raise ValueError(f"rows of {inputs} float32 are needed, not {tuple(rows.shape)} {rows.dtype}")
    out = torch.empty(len(rows), outputs, dtype=torch.float32)
    part = ProductPart(
        x=rows.data_ptr(),
        out=out.data_ptr(),
        linear=LinearPart(
            weight=linear.weight.data_ptr(),
            scales=linear.scales.data_ptr() if isinstance(linear, Int8Linear) else None,
            bias=None if linear.bias is None else linear.bias.data_ptr(),
        ),
        rows=len(rows),
        inputs=inputs,
        outputs=outputs,
        threads=torch.get_num_threads(),
    )
    if library.dynofarm_product_run(ctypes.byref(part), torch_team()):
        raise MemoryError("no memory for a product")
    return out
