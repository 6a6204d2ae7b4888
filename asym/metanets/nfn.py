"""Neural functional networks: linear maps of weights that commute with permutations of units, with ReLU between them.

A weight W_l `out in` has an axis for node layer l and one for l − 1, a bias b_l one for l. Let A(X) be the axes of a
tensor X that can be permuted: of all layers for NP, of hidden layers alone for HNP, where the other axes are channels.
The linear maps X → Y that commute with all permutations of these axes are spanned by one map for each S ⊆ A(X) ∩ A(Y):

    mean of X over A(X) \\ S, then repeated over A(Y) \\ S                                                      (*)

For W_l → W_l those are the entry itself, the mean of its row, of its column, of all. One layer of the network gathers
for every set S the means of all tensors that have it, side by side, maps them by one matrix, and adds each part to the
tensors that have S: a table of sets in place of a method for each term. A kernel's taps are channels of W_l.

Source: Zhou et al. 2023, "Permutation Equivariant Neural Functionals" (arXiv 2302.14040), whose layer is (*). Its
published count, 2,811,743 parameters for HNP on the Small CNN Zoo, is not met: here 2,586,819, of which 1,253,001 are
the head's in both; where the rest lies is not known. NP adds learned vectors to the axes of inputs and outputs, which
tells their units apart. Permutations only: scalings change the output. In residual networks the axes are those of
streams (`asym.symmetry.residual`): all that is of one stream moves together, weights and shifts of norms too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from asym.metanets.blind import Standardise
from asym.metanets.reader import Reader, choose
from asym.metanets.stack import Stack, Stacks, as_list
from asym.symmetry.residual import Residual
from asym.symmetry.scaling import Units, split_taps

GROUPS = ("np", "hnp")
Axes = tuple[int, ...]


def ends_of(chain: Units) -> dict[str, Axes]:
    """The axes of each tensor, target before source, named by node layer or (residual networks) by stream.

    Raises:
        ValueError: if a layer reads the stream that it writes to, whose maps are more than (*).
    """
    found: dict[str, Axes] = {}
    if isinstance(chain, Residual):
        streams = [node.stream for node in chain.nodes]
        for k, write in chain.writes:
            found[write.layer.weight] = (streams[k], streams[write.source])
            if streams[k] == streams[write.source]:
                raise ValueError(f"network: {write.layer.name!r} reads the stream that it writes to, NFN cannot")
            found |= {name: (streams[k],) for name in (write.layer.bias, write.gain, write.shift) if name}
        return found
    for depth, layer in enumerate(chain.layers, start=1):
        found[layer.weight] = (depth, depth - 1)
        if layer.bias is not None:
            found[layer.bias] = (depth,)
    return found


def both_ends(chain: Units) -> tuple[int, int]:
    """The axes of inputs and outputs."""
    return (0, chain.nodes[-1].stream) if isinstance(chain, Residual) else (0, len(chain.layers))


def axis_sizes(chain: Units) -> dict[int, int]:
    """Units on each axis."""
    if isinstance(chain, Residual):
        return {node.stream: node.outputs for node in chain.nodes}
    return dict(enumerate(chain.sizes))


class Table:
    """The tensors of a chain: axes that can be permuted, entries of the other axes for each channel, and the sets S."""

    def __init__(self, chain: Units, group: str) -> None:
        sizes, taps = axis_sizes(chain), {layer.weight: layer.taps for layer in chain.layers}
        free = set(sizes) if group == "np" else set(sizes) - set(both_ends(chain))
        self.names, self.axes, self.fold = [], [], []
        for name, axes in ends_of(chain).items():
            self.names.append(name)
            self.axes.append(tuple(a for a in axes if a in free))
            self.fold.append(taps.get(name, 1) * _product(sizes[a] for a in axes if a not in free))
        self.sets = sorted({s for axes in self.axes for s in _subsets(axes)}, key=lambda s: (len(s), s))

    def having(self, s: Axes) -> list[int]:
        """Tensors whose axes contain S."""
        return [i for i, axes in enumerate(self.axes) if set(s) <= set(axes)]


class EquivariantLayer(nn.Module):
    """All maps (*) between the tensors of a table, from `c_in` to `c_out` channels."""

    def __init__(self, table: Table, c_in: int, c_out: int) -> None:
        super().__init__()
        self.table, self.widths = table, [fold * c_out for fold in table.fold]
        inputs = {s: sum(table.fold[i] * c_in for i in table.having(s)) for s in table.sets}
        total = sum(inputs.values())
        self.maps = nn.ModuleList(
            nn.Linear(inputs[s], sum(self.widths[i] for i in table.having(s)), bias=not s) for s in table.sets
        )
        for s, layer in zip(table.sets, self.maps):
            # Each output is a sum over the sets of its tensor: variances add up to about one.
            nn.init.normal_(layer.weight, std=inputs[s] ** -0.5 * (2 * inputs[s] / total) ** 0.5)  # type: ignore[arg-type]

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Tensors `n *axes channels` of the table's axes."""
        found: list[Tensor | None] = [None] * len(tensors)
        for s, layer in zip(self.table.sets, self.maps):
            members = self.table.having(s)
            means = torch.cat([_mean(tensors[i], self.table.axes[i], s) for i in members], -1)
            for i, part in zip(members, layer(means).split([self.widths[i] for i in members], -1)):
                term = _repeat(part, self.table.axes[i], s)
                before = found[i]
                found[i] = term if before is None else before + term
        return [x for x in found if x is not None]


class NFN(Reader):
    """Equivariant layers, means over hidden axes, and an MLP.

    Args:
        chains: the architecture.
        group: "np" or "hnp".
        channels: of the equivariant layers.
        width: of the head's two hidden layers.
        options: of `Reader`.

    Raises:
        ValueError: for an unknown group or a channel number below 1.
    """

    def __init__(
        self,
        chains: Units | Sequence[Units],
        *,
        group: str = "hnp",
        channels: Sequence[int] = (16, 16, 5),
        width: int = 1000,
        **options,
    ) -> None:
        super().__init__(chains, **options)
        choose("group", group, GROUPS)
        if not channels or min(channels) < 1:
            raise ValueError(f"channels: {tuple(channels)}; want at least one number, each at least 1")
        chain = self.chains[0]
        self.table = Table(chain, group)
        ends, sizes = both_ends(chain), axis_sizes(chain)
        inside = set(sizes) - set(ends)
        self.pooled = [tuple(a for a in axes if a not in inside) for axes in self.table.axes]
        taps = {layer.weight: layer.taps for layer in chain.layers}
        self.moments = nn.ModuleList(Standardise(taps.get(name, 1)) for name in self.table.names)
        self.layers = nn.ModuleList(EquivariantLayer(self.table, a, b) for a, b in zip((1, *channels), channels))
        self.places = nn.ParameterList(
            torch.randn(*(sizes[a] if a in ends else 1 for a in axes), fold) / 10
            for axes, fold in (zip(self.table.axes, self.table.fold) if group == "np" else ())
        )
        features = sum(
            fold * channels[-1] * _product(sizes[a] for a in axes) for fold, axes in zip(self.table.fold, self.pooled)
        )
        self.head = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.out)
        )

    def observe(self, stacks: Stacks) -> None:
        """Take mean and deviation of each tensor, for each tap of a kernel."""
        for name, moments in zip(self.table.names, self.moments):
            moments.set(torch.cat([_taps(stack, name).flatten(0, -2) for stack in as_list(stacks)]))  # type: ignore[operator]

    def read(self, stack: Stack) -> Tensor:
        """(n, out)."""
        tensors = self.tensors(stack)
        for layer in self.layers:
            tensors = [x.relu() for x in layer(tensors)]
        means = [_mean(x, axes, keep).flatten(1) for x, axes, keep in zip(tensors, self.table.axes, self.pooled)]
        return self.head(torch.cat(means, 1))

    def tensors(self, stack: Stack) -> list[Tensor]:
        """The stack's tensors as `n *axes fold`, standardised, with places of inputs and outputs."""
        found = []
        for i, name in enumerate(self.table.names):
            x = self.moments[i](_taps(stack, name))
            layer, kept = self._ends(stack.chain, name), self.table.axes[i]
            folded = [k + 1 for k, a in enumerate(layer) if a not in kept]
            x = x.movedim(folded, list(range(-1 - len(folded), -1))).flatten(1 + len(kept))
            found.append(x + self.places[i] if len(self.places) else x)
        return found

    def unfold(self, chain: Units, name: str, x: Tensor) -> Tensor:
        """A tensor `n *axes fold` of one channel in the shape of the chain's, `n *shape`: `tensors` undone."""
        ends, kept = self._ends(chain, name), self.table.axes[self.table.names.index(name)]
        folded = [k + 1 for k, a in enumerate(ends) if a not in kept]
        x = x.unflatten(-1, (*(axis_sizes(chain)[ends[k - 1]] for k in folded), -1))
        return x.movedim(list(range(-1 - len(folded), -1)), folded).reshape(len(x), *chain.shapes[name])

    def _ends(self, chain: Units, name: str) -> Axes:
        return ends_of(chain)[name]


def _taps(stack: Stack, name: str) -> Tensor:
    """A weight as `n out in taps`, a bias as `n out 1`."""
    for layer in stack.chain.layers:
        if name == layer.weight:
            return split_taps(layer, stack.tensors[name], (len(stack),))
    return stack.tensors[name][..., None]


def _mean(x: Tensor, axes: Axes, keep: Axes) -> Tensor:
    """Mean of `n *axes c` over all axes but those to keep, which come in their order."""
    gone = [i + 1 for i, a in enumerate(axes) if a not in keep]
    mean = x.mean(gone) if gone else x
    return mean if keep == tuple(a for a in axes if a in keep) else mean.transpose(1, 2)


def _repeat(x: Tensor, axes: Axes, have: Axes) -> Tensor:
    """`n *have c` with axes of size 1 where `axes` has others."""
    x = x if have == tuple(a for a in axes if a in have) else x.transpose(1, 2)
    for i, a in enumerate(axes):
        if a not in have:
            x = x.unsqueeze(i + 1)
    return x


def _subsets(axes: Axes) -> list[Axes]:
    """All sets of axes, the largest first: a stream may write to a layer that writes to it in turn."""
    found: list[Axes] = [()]
    for a in sorted(axes, reverse=True):
        found += [(*s, a) for s in found]
    return found


def _product(numbers) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total
