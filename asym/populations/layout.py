"""A network's tensors as one row of a matrix.

A `Layout` lists the names and shapes of some floating-point tensors of a module in a fixed order, so that a network is
a vector in R^p and a population a matrix `n p`. Two choices of tensors are in use:

- `Layout.trainable(module)`: parameters with `requires_grad`, what an optimiser moves;
- `Layout.full(module)`: all parameters and the running statistics of BatchNorm, what alignment permutes and
  interpolation averages. Integer and boolean buffers, masks and fixed values never belong to either.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

RUNNING = ("running_mean", "running_var")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors that make up a row."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, Tensor]]) -> Layout:
        """The layout of named tensors, in their order."""
        items = [(name, tuple(tensor.shape)) for name, tensor in tensors]
        return cls(tuple(name for name, _ in items), tuple(shape for _, shape in items))

    @classmethod
    def trainable(cls, module: nn.Module) -> Layout:
        """Parameters that are trained."""
        return cls.of((name, p) for name, p in module.named_parameters() if p.requires_grad)

    @classmethod
    def running(cls, module: nn.Module) -> Layout:
        """Running statistics of BatchNorm."""
        return cls.of((name, b) for name, b in module.named_buffers() if name.rpartition(".")[2] in RUNNING)

    @classmethod
    def full(cls, module: nn.Module) -> Layout:
        """All parameters and running statistics."""
        buffers = dict(module.named_buffers())
        return cls.of([*module.named_parameters(), *((n, buffers[n]) for n in cls.running(module).names)])

    @property
    def sizes(self) -> list[int]:
        """Number of entries of each tensor."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        """Length p of a row."""
        return sum(self.sizes)

    def flatten(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, " p"]:
        """One row from named tensors; names outside the layout are ignored.

        Raises:
            ValueError: if a tensor is missing or has another shape.
        """
        for name, shape in zip(self.names, self.shapes):
            if name not in tensors or tuple(tensors[name].shape) != shape:
                got = tuple(tensors[name].shape) if name in tensors else "nothing"
                raise ValueError(f"tensors: {name} must have shape {shape}, got {got}")
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.names])

    def views(self, rows: Float[Tensor, "*n p"]) -> dict[str, Tensor]:
        """Named views into `rows`; leading axes are kept in front of each tensor's own."""
        parts = rows.split(self.sizes, dim=-1)
        lead = rows.shape[:-1]
        return {n: part.view(*lead, *shape) for n, shape, part in zip(self.names, self.shapes, parts)}

    def load_(self, module: nn.Module, row: Float[Tensor, " p"]) -> None:
        """Copy a row into a module's tensors."""
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for name, value in self.views(row).items():
                own[name].copy_(value)


def channels_last(images: Tensor) -> Tensor:
    """Images `b c h w` in channels-last layout; with one channel too, where both layouts look alike.

    A convolution takes its layout from its input's strides. One-channel images count as channels-first unless the
    stride of the channel axis says otherwise.
    """
    images = images.contiguous(memory_format=torch.channels_last)
    if images.shape[1] != 1:
        return images
    _, _, height, width = images.shape
    return images.as_strided(images.shape, (height * width, 1, width, 1))
