"""Linear layers of the native tier: in float32 its own products, so torch's set up no working memory."""

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from runtime.model.linear import Int8Linear, Linear, LinearMaker, PlainLinear, WeightDtype, make_int8_linear
from runtime.model.numeric import Placement
from runtime.model.weight_pages import WeightPages
from runtime.tiers.native.library import Kinds, LinearPart, ProductPart, load_library, torch_team


class _OwnProducts:
    """Goes first among a layer's bases: what it computes takes the place of torch's."""

    _products: "_Products"

    def __call__(self, x: Tensor) -> Tensor:
        return self._products.plain(x)

    def gated(self, x: Tensor) -> Tensor:
        return self._products.gated(x)


class NativeLinear(_OwnProducts, PlainLinear):
    """float32 weights and rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None, library: ctypes.CDLL) -> None:
        super().__init__(weight, bias)
        self._products = _Products(library, self.weight, None, bias)


class NativeInt8Linear(_OwnProducts, Int8Linear):
    """int8 weights with a scale per output, float32 rows."""

    def __init__(self, linear: Int8Linear, library: ctypes.CDLL) -> None:
        super().__init__(linear.weight.contiguous(), linear.scales, linear.bias)
        self._products = _Products(library, self.weight, self.scales, self.bias)


def linear_maker(placement: Placement, weight_dtype: WeightDtype) -> LinearMaker:
    """For one model's weights. In bfloat16 torch's products stay: they use matrix units where there are."""
    pages = WeightPages()
    is_int8, is_own = weight_dtype == "int8", placement.dtype == torch.float32
    library = load_library(Kinds("int8" if is_int8 else "float32", "float32")) if is_own else None

    def make(weight: Tensor, bias: Tensor | None) -> Linear:
        if is_int8:
            made = make_int8_linear(weight, bias)
            made = Int8Linear(pages.hold(made.weight), made.scales, bias)
            return made if library is None else NativeInt8Linear(made, library)
        held = pages.hold(weight)
        return PlainLinear(held, bias) if library is None else NativeLinear(held, bias, library)

    return make


class _Products:
    """The library's products with one weight [outputs, inputs], which they keep alive."""

    def __init__(
        self, library: ctypes.CDLL, weight: Tensor, scales: Tensor | None, bias: Tensor | None
    ) -> None:
        self._library = library
        self._weight, self._scales, self._bias = weight, scales, bias

    def plain(self, x: Tensor) -> Tensor:
        """[T, inputs] -> [T, outputs]."""
        return self._run(self._library.dynofarm_product_run, x, self._weight.shape[0])

    def gated(self, x: Tensor) -> Tensor:
        """[T, inputs] -> [T, outputs / 2]; gate and up never stand in memory whole."""
        return self._run(self._library.dynofarm_gated_run, x, self._weight.shape[0] // 2)

    def _run(self, product: Callable[..., int], x: Tensor, outputs: int) -> Tensor:
        rows, inputs = x.contiguous(), self._weight.shape[1]
        if rows.dtype != torch.float32 or rows.shape[1] != inputs:
            raise ValueError(f"rows of {inputs} float32 are needed, not {tuple(rows.shape)} {rows.dtype}")
        out = torch.empty(len(rows), outputs, dtype=torch.float32)
        if len(rows) == 0:
            return out
        part = ProductPart(
            x=rows.data_ptr(),
            out=out.data_ptr(),
            linear=LinearPart(
                weight=self._weight.data_ptr(),
                scales=None if self._scales is None else self._scales.data_ptr(),
                bias=None if self._bias is None else self._bias.data_ptr(),
            ),
            rows=len(rows),
            inputs=inputs,
            outputs=outputs,
            threads=torch.get_num_threads(),
        )
        if product(ctypes.byref(part), torch_team()):
            raise MemoryError("no memory for a product")
        return out
