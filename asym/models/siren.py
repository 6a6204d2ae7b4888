"""Networks that are signals: a multi-layer perceptron with sines takes coordinates and gives an image's values there.

    x → [sin(ω (W x + b))] × depth → W x + b → + shift

Source: Sitzmann et al. 2020, "Implicit Neural Representations with Periodic Activation Functions" (arXiv 2006.09661).
Start values are uniform in ±a:

| start | W of the first layer | W of other hidden layers | W of the last layer | biases |
|---|---|---|---|---|
| `paper` | a = 1 / fan_in | a = √(6 / fan_in) / ω | a = √(6 / fan_in) / ω | a = 1 / √fan_in |
| `smooth` | a = √(6 / fan_in) / ω | a = √(6 / fan_in) / ω | a = 1 / √fan_in | 0, last a = 1 / √fan_in |

`paper` is that of the paper and of its code, whose biases are PyTorch's own: with ω = 30 the phases of hidden units lie
anywhere on the circle. `smooth` is that of the published set of MNIST networks (Navon et al. 2023, arXiv 2301.12780, by
its code): no phases, and a first layer that starts with waves longer than the image. That set has width 32, depth 2 and
shift 1/2 (1,185 parameters); that of CIFAR-10 (Zhou et al. 2023, arXiv 2302.14040) has `paper`, the same size, shift 0
(1,251 parameters).

Sine is odd, so hidden units have a sign each (`asym.symmetry.chain`), and a phase: b + π/ω flips the sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from asym.models.arch import Shape
from asym.models.parts import scaled
from asym.models.registry import register
from asym.nn.variants import LayerRule

STARTS = ("paper", "smooth")


class Siren(nn.Module):
    """(…, inputs) coordinates → (…, outputs) values.

    Args:
        inputs: coordinates of a place.
        outputs: values at a place, such as channels.
        width: units of a hidden layer.
        depth: hidden layers, at least 1.
        omega: ω of all hidden layers.
        first_omega: ω of the first layer, where it differs.
        start: start values, "paper" or "smooth".
        shift: added to all outputs, so that a network that gives zeros is a grey image.

    Raises:
        ValueError: for a size below 1, an ω that is not positive, an unknown start.
    """

    def __init__(
        self,
        inputs: int = 2,
        outputs: int = 1,
        *,
        width: int = 32,
        depth: int = 2,
        omega: float = 30.0,
        first_omega: float | None = None,
        start: str = "paper",
        shift: float = 0.5,
    ) -> None:
        super().__init__()
        for name, size in (("inputs", inputs), ("outputs", outputs), ("width", width), ("depth", depth)):
            if size < 1:
                raise ValueError(f"{name}: {size}; must be at least 1")
        self.omegas = (omega if first_omega is None else first_omega,) + (omega,) * (depth - 1)
        for name, value in (("first_omega", self.omegas[0]), ("omega", omega)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name}: {value}; must be a finite number above 0")
        if start not in STARTS:
            raise ValueError(f"start: {start!r}; choose from {', '.join(STARTS)}")
        self.start, self.shift = start, shift
        sizes = [inputs] + [width] * depth + [outputs]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw start values."""
        for (weight, bias), layer in zip(self.bounds(), self.layers):
            layer.weight.uniform_(-weight, weight, generator=generator)  # type: ignore[operator]
            layer.bias.uniform_(-bias, bias, generator=generator)  # type: ignore[operator]

    def bounds(self) -> list[tuple[float, float]]:
        """a of each layer's weight and bias."""
        last, found = len(self.layers) - 1, []
        for i, layer in enumerate(self.layers):
            fan_in = layer.weight.shape[1]  # type: ignore[index]
            plain, waves = 1 / math.sqrt(fan_in), math.sqrt(6 / fan_in) / self.omegas[min(i, last - 1)]
            if self.start == "paper":
                found.append((1 / fan_in if i == 0 else waves, plain))
            else:
                found.append((plain, plain) if i == last else (waves, 0.0))
        return found

    def forward(self, x: Float[Tensor, "*n inputs"]) -> Float[Tensor, "*n outputs"]:
        """Values at places."""
        for omega, layer in zip(self.omegas, self.layers):
            x = torch.sin(omega * layer(x))
        return self.layers[-1](x) + self.shift

    def stacked(
        self, tensors: Mapping[str, Tensor], x: Float[Tensor, "points inputs"]
    ) -> Float[Tensor, "n outputs points"]:
        """Values at the same places of n networks like this one, given as name → `n *shape`."""
        state = x.t()
        for i, omega in enumerate((*self.omegas, None)):
            weight, bias = tensors[f"layers.{i}.weight"], tensors[f"layers.{i}.bias"]
            if i == 0:  # all networks read the same places: one product
                state = (weight.flatten(0, 1) @ state).view(*weight.shape[:2], -1) + bias[..., None]
            else:
                state = torch.baddbmm(bias[..., None], weight, state)
            state = state + self.shift if omega is None else torch.sin(omega * state)
        return state

    def extra_repr(self) -> str:
        """Shown by repr."""
        return f"omega={self.omegas[-1]:g}, first_omega={self.omegas[0]:g}, start={self.start}, shift={self.shift:g}"


def grid(height: int, width: int) -> Float[Tensor, "points 2"]:
    """(row, column) of the pixels of an image, row by row, each from −1 to 1 over the image's centres of pixels.

    Raises:
        ValueError: for a side below 2, whose ends do not differ.
    """
    if min(height, width) < 2:
        raise ValueError(f"grid: {height} × {width}; each side must have at least 2 pixels")
    rows, columns = torch.linspace(-1, 1, height), torch.linspace(-1, 1, width)
    return torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).view(-1, 2)


def rules(width: float, depth: int) -> tuple[LayerRule, ...]:
    """The rule of thumb, with κ on the scale of weights before ω; a first layer of few inputs stays plain."""
    return (LayerRule("*", None, 1 / 30),)


@register(
    "siren",
    rules=rules,
    input_shape=(2,),
    domain="coordinates",
    classes=1,
    depth=2,
    free_depth=True,
    activations=("sin",),
    scheme="",
)
def siren(*, input_shape: Shape, classes: int, width: float, depth: int, norm: str, activation: str) -> Siren:
    """The published size, 32 · width units in each of `depth` layers; ω and start values as in the paper."""
    return Siren(input_shape[0], classes, width=scaled(32, width), depth=depth)
