"""Networks of different widths in one stack: hidden layers padded with units that are not there.

A batch of networks that differ in depth, kernels, activations, norms or skips is a list of stacks, one for each such
architecture, which readers that mix take as it is. Widths are another matter: where each network has its own, a stack
each would be one network each. `pad` fills their layers up with zeros to the widest, and notes which units are there
(`Stack.alive`). Graph readers leave the rest out of every sum over units, of messages both ways and of the readout;
what is worked out for a unit that is not there goes nowhere. So a network reads the same alone and beside wider ones,
to rounding (and messages that are averaged are averaged over its own units).

    pad([narrow, wide])                                  # one stack
    build("scale-gmn", pad([narrow, wide]).chain)        # a reader for networks up to these widths
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from asym.metanets.stack import Stack
from asym.symmetry.chain import Chain, ChainLayer
from asym.symmetry.scaling import split_taps


def pad(stacks: Sequence[Stack], sizes: Sequence[int] | None = None) -> Stack:
    """The networks of all stacks in one, in order.

    Args:
        stacks: of chains that differ in hidden widths alone; without masks.
        sizes: units of each node layer of the result; the largest of each if not given.

    Raises:
        ValueError: if the chains differ in more, a stack has masks or is padded already, or `sizes` are too small.
    """
    if not stacks:
        raise ValueError("stacks: got none")
    first = stacks[0].chain
    for stack in stacks:
        if not isinstance(stack.chain, Chain):
            raise ValueError(f"stacks: want chains of layers, got a {type(stack.chain).__name__}")
        if stack.masks or stack.alive is not None:
            raise ValueError("stacks: networks with masks, or padded ones, cannot be padded")
        if _kind(stack.chain) != _kind(first):
            raise ValueError(
                f"stacks: networks of {stack.chain.sizes} and {first.sizes} units differ in more than hidden widths"
            )
    widest = tuple(max(stack.chain.sizes[k] for stack in stacks) for k in range(len(first.sizes)))
    wanted = widest if sizes is None else tuple(sizes)
    ends = (wanted[0], wanted[-1]) == (widest[0], widest[-1])
    if len(wanted) != len(widest) or not ends or any(w < least for w, least in zip(wanted, widest)):
        raise ValueError(f"sizes: got {wanted}; need {widest} at least, the same at both ends")
    chain = Chain(tuple(_wide(layer, a, b) for layer, a, b in zip(first.layers, wanted, wanted[1:])))
    parts = [_padded(stack, chain) for stack in stacks]
    tensors = {name: torch.cat([part[name] for part in parts]) for name in chain.shapes}
    alive = tuple(
        torch.cat([(torch.arange(size) < stack.chain.sizes[k]).expand(len(stack), -1) for stack in stacks])
        for k, size in enumerate(wanted)
    )
    known = [stack.hyper for stack in stacks if stack.hyper is not None]
    hyper = torch.cat(known) if len(known) == len(stacks) else None
    return Stack(chain, tensors, hyper=hyper, alive=tuple(a.to(tensors[first.layers[0].weight].device) for a in alive))


def _kind(chain: Chain) -> tuple:
    """A chain without its hidden widths."""
    layers = tuple(dataclasses.replace(layer, inputs=0, outputs=0) for layer in chain.layers)
    return layers, chain.sizes[0], chain.sizes[-1]


def _wide(layer: ChainLayer, inputs: int, outputs: int) -> ChainLayer:
    return dataclasses.replace(layer, inputs=inputs, outputs=outputs)


def _padded(stack: Stack, chain: Chain) -> dict[str, Tensor]:
    found = {}
    for layer, wide in zip(stack.chain.layers, chain.layers):
        rows, columns = wide.outputs - layer.outputs, wide.inputs - layer.inputs
        weight = split_taps(layer, stack.tensors[layer.weight], (len(stack),))
        found[wide.weight] = F.pad(weight, (0, 0, 0, columns, 0, rows)).reshape(len(stack), *wide.shape)
        if layer.bias is not None:
            found[layer.bias] = F.pad(stack.tensors[layer.bias], (0, rows))
    return found


__all__ = ["pad"]
