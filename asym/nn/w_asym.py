"""W-Asymmetric linear and convolutional layers: some entries of each row are constants.

    W' = where(mask, weight, fixed),      y = W' x + b

`mask` (True = trainable) and `fixed` (F) are persistent buffers drawn from (seed, name); `weight` and `bias`
keep their names, so a state dict of the plain layer fits. Source: Lim et al. 2024 (arXiv 2405.20231),
W-Asymmetric networks. Differs from the released code, which overwrites the parameter in each forward pass:
here the effective weight is composed out of place, so neither weight decay nor momentum can reach a constant.
Entries of `weight` under a constant receive no gradient; initialisation sets them to zero, where every
optimiser without noise leaves them, so that norms and distances of parameters count trainable entries alone.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asym.nn.masked import MaskedLayer

_P = TypeVar("_P", nn.Linear, nn.Conv2d)


class WAsymLinear(MaskedLayer, nn.Linear):
    """A linear layer with n_fix constants in each row.

    Shapes: input (…, in_features), output (…, out_features), mask and fixed (out_features, in_features).

    Args:
        in_features: size of an input vector.
        out_features: size of an output vector.
        bias: whether a bias is added; it is always trainable.
        n_fix: constants a row, below in_features.
        kappa: standard deviation of the constants, at least 0; not divided by the fan-in.
        seed: integer seed of mask and constants.
        name: name of the layer in its network; with the seed it determines mask and constants.
        mode: see `sample_mask`.
        granularity: see `sample_mask`; both are the same for a linear layer.
        allow_frozen: accept n_fix ≥ in_features, which leaves the bias alone trainable.
        device: as in `nn.Linear`.
        dtype: as in `nn.Linear`.

    Raises:
        ValueError: if the mask is impossible (see `sample_mask`) or kappa is negative.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        n_fix: int,
        kappa: float,
        seed: int,
        name: str,
        mode: str = "random",
        granularity: str = "entry",
        allow_frozen: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        nn.Linear.__init__(self, in_features, out_features, bias, device, dtype)
        self._set_up(n_fix, kappa, seed, name, mode, granularity, allow_frozen)
        self.reset_parameters()

    @classmethod
    def from_plain(cls, module: nn.Linear, **options: Any) -> WAsymLinear:
        """The masked counterpart of `module` with its weights where trainable; options as in the constructor."""
        bias = module.bias is not None
        layer = cls(module.in_features, module.out_features, bias, device="meta", dtype=module.weight.dtype, **options)
        layer._take_over(module)
        return layer

    def to_plain(self) -> nn.Linear:
        """An ordinary linear layer that computes the same function (weights copied)."""
        plain = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        return _plain(plain, self)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to (…, in_features)."""
        return F.linear(input, self.effective_weight, self.bias)


class WAsymConv2d(MaskedLayer, nn.Conv2d):
    """A 2-D convolution with n_fix constants in each filter.

    Shapes: input (n, in_channels, h, w), mask and fixed (out_channels, in_channels / groups, kernel…).

    Args:
        in_channels: as in `nn.Conv2d`, and likewise out_channels, kernel_size, stride, padding, dilation,
            groups, bias, padding_mode, device, dtype.
        n_fix: constants a filter: scalar entries, or whole input channels with granularity "channel".
        kappa: standard deviation of the constants, at least 0; not divided by the fan-in.
        seed: integer seed of mask and constants.
        name: name of the layer in its network; with the seed it determines mask and constants.
        mode: see `sample_mask`.
        granularity: "entry" or "channel", see `sample_mask`.
        allow_frozen: accept n_fix ≥ fan-in, a layer of random constants.

    Raises:
        ValueError: if the mask is impossible (see `sample_mask`) or kappa is negative.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        n_fix: int,
        kappa: float,
        seed: int,
        name: str,
        mode: str = "random",
        granularity: str = "entry",
        allow_frozen: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        plain: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        plain |= {"bias": bias, "padding_mode": padding_mode, "device": device, "dtype": dtype}
        size: Any = kernel_size
        nn.Conv2d.__init__(self, in_channels, out_channels, size, **plain)
        self._set_up(n_fix, kappa, seed, name, mode, granularity, allow_frozen)
        self.reset_parameters()

    @classmethod
    def from_plain(cls, module: nn.Conv2d, **options: Any) -> WAsymConv2d:
        """The masked counterpart of `module` with its weights where trainable; options as in the constructor."""
        layer = cls(**_conv_arguments(module), device="meta", dtype=module.weight.dtype, **options)
        layer._take_over(module)
        return layer

    def to_plain(self) -> nn.Conv2d:
        """An ordinary convolution that computes the same function (weights copied)."""
        return _plain(nn.Conv2d(**_conv_arguments(self), device="meta"), self)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to (n, in_channels, h, w)."""
        return self._conv_forward(input, self.effective_weight, self.bias)


def _conv_arguments(module: nn.Conv2d) -> dict[str, Any]:
    names = (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
    )
    return {name: getattr(module, name) for name in names} | {"bias": module.bias is not None}


def _plain(plain: _P, layer: MaskedLayer) -> _P:
    plain.weight = nn.Parameter(layer.effective_weight.detach().clone())
    if layer.bias is not None:
        plain.bias = nn.Parameter(layer.bias.detach().clone())
    return plain.train(layer.training)
