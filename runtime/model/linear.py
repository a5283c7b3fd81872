"""Linear layers, each weight held once, in the form that its tier of kernels reads."""

from collections.abc import Callable
from typing import Final, Literal, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

WeightDtype = Literal["auto", "int8"]
"""auto: the precision of the computation."""

_INT8_FEW_ROWS: Final = 16
"""Up to here the operator that reads int8 directly is faster than widening the weight first."""


class Linear(Protocol):
    """x [T, in] -> [T, out], with the bias if there is one."""

    @property
    def weight_bytes(self) -> int: ...

    def __call__(self, x: Tensor) -> Tensor: ...

    def gated(self, x: Tensor) -> Tensor:
        """silu(gate) * up [T, out / 2], where the outputs are those of gate and then those of up."""
        gate, up = self(x).chunk(2, dim=-1)
        return F.silu(gate).mul_(up)


LinearMaker = Callable[[Tensor, Tensor | None], Linear]
"""From a weight [out, in] and a bias [out]; the caller should drop its own reference to the weight."""


class PlainLinear(Linear):
    """A weight [out, in] as torch keeps it: any device, any dtype, readable by every tier."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight.contiguous()
        self.bias = bias

    @property
    def weight_bytes(self) -> int:
        return self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Int8Linear(Linear):
    """A weight as int8 [out, in] and a float32 scale per output: symmetric, the row's largest value is 127.

    Activations are not quantised: products are summed in the precision of x or better.
    """

    def __init__(self, weight: Tensor, scales: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.scales = scales
        self.bias = bias

    @property
    def weight_bytes(self) -> int:
        return self.weight.nbytes + self.scales.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        is_few = x.device.type == "cpu" and len(x) <= _INT8_FEW_ROWS
        # With bfloat16 the operator of torch 2.11 and 2.13 ends the process on a Xeon with AVX512-BF16.
        if is_few and x.dtype == torch.float32:
            scales = self.scales.to(x.dtype)
            out: Tensor = torch.ops.aten._weight_int8pack_mm(x.contiguous(), self.weight, scales)
        else:
            out = F.linear(x, self.weight.to(x.dtype)) * self.scales.to(x.dtype)
        return out if self.bias is None else out.add_(self.bias)


def make_int8_linear(weight: Tensor, bias: Tensor | None = None) -> Int8Linear:
    """Rounds to the nearest of 255 steps per output row."""
    values = weight.float()
    scales = values.abs().amax(dim=1).clamp_min_(torch.finfo(torch.float32).tiny) / 127
    return Int8Linear((values / scales.unsqueeze(1)).round_().to(torch.int8), scales, bias)
