"""ScaleGMN: a graph network on input networks that respects permutations and scalings; and its plain control.

    f(P Q · θ) = f(θ)      for all permutations P of hidden units and all Q that their activations allow

with f an accuracy, say; with `output="weights"` f(P Q · θ) = P Q · f(θ), new weights. Why it holds: every state has the
multiplier of its unit or edge (`rounds.py`), sums over units do not depend on their order, and the readout sees hidden
units through canonical forms only. Symmetries are taken layer by layer from the chain, so one network may have ReLU,
tanh and GELU layers, and one batch networks of different chains. Residual networks are read the same way, stream by
stream (`asym.symmetry.residual`, `normed.py`). `law="permutation"` makes the control that respects
permutations only, from the same parts; `matched_width` finds its width for an equal number of parameters.

Source: arXiv 2406.10685 and its released code, whose parameter counts are met with `projection="shared"`, `skip=False`,
`readout="outputs"` (1,356,801 forward and 762,881 plain at width 128, on the Small CNN Zoo). Differences: start values
(`blocks.py`), no constant in norms, maps of kernels by shape, skips on by default, and the bidirectional form, which is
repaired (`backward.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from asym.metanets.reader import Reader, choose
from asym.metanets.scale_gmn.backward import BACKWARD, start_of
from asym.metanets.scale_gmn.blocks import SIGNS, Canonical
from asym.metanets.scale_gmn.dense import Edges, schedule
from asym.metanets.scale_gmn.encode import PROJECTIONS, Encoder
from asym.metanets.scale_gmn.readout import READOUTS, Readout, WeightOutput
from asym.metanets.scale_gmn.rounds import PlainRound, ScaleRound
from asym.metanets.stack import Stack
from asym.symmetry.residual import Residual, Wires, wires_of
from asym.symmetry.scaling import Units

DIRECTIONS = ("forward", "bidirectional")
LAWS = ("scale", "permutation")
OUTPUTS = ("invariant", "weights")


class ScaleGMN(Reader):
    """A graph network that reads networks (or writes them).

    Args:
        chains: the architectures that it will read.
        out: numbers a network.
        width: channels d of all states.
        rounds: of message passing; None is the number of layers on the longest way through a network.
        direction: "forward", or "bidirectional" for messages both ways.
        law: "scale", or "permutation" for the plain control, for which `backward`, `squash`, `receiver` and `sign` have
            no meaning.
        backward: form of backward messages, see `backward.py`; of the bidirectional form alone.
        squash: whether the "norm" form takes asinh of its invariant edges.
        receiver: whether a message sees its receiver's state.
        edge_updates: whether edges change between rounds.
        skip: whether a round adds a linear map of the old state.
        sign: canonical form for signs, "symmetrise" or "canonicalise".
        readout: "outputs", "full" or "mean"; None is "outputs" for one architecture and "mean" for several.
        output: "invariant" for numbers, "weights" for new weights.
        projection: maps of kernels, "by-shape" or "shared".
        mean: whether messages are averaged in place of summed, for networks of different widths.
        norm: whether MLPs have a LayerNorm.
        dropout: of states between rounds.
        options: of `Reader`.

    Raises:
        ValueError: for an unknown choice, a readout that cannot mix with several architectures, or residual networks
            where new weights or backward messages other than "norm" are asked for.
    """

    mixes = True
    pads = True

    def __init__(
        self,
        chains: Units | Sequence[Units],
        *,
        out: int = 1,
        width: int = 32,
        rounds: int | None = None,
        direction: str = "forward",
        law: str = "scale",
        backward: str = "norm",
        squash: bool = False,
        receiver: bool = False,
        edge_updates: bool = True,
        skip: bool = True,
        sign: str = "symmetrise",
        readout: str | None = None,
        output: str = "invariant",
        projection: str = "by-shape",
        mean: bool = False,
        norm: bool = True,
        dropout: float = 0.0,
        **options,
    ) -> None:
        super().__init__(chains, out=out, **options)
        shapes = {tuple(chain.sizes) for chain in self.chains}
        readout = readout or ("outputs" if len(shapes) == 1 else "mean")
        choose("direction", direction, DIRECTIONS)
        choose("law", law, LAWS)
        choose("backward", backward, BACKWARD)
        choose("sign", sign, SIGNS)
        choose("readout", readout, READOUTS)
        choose("output", output, OUTPUTS)
        choose("projection", projection, PROJECTIONS)
        for name, value in (("width", width), ("rounds", rounds)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: {value}; must be at least 1")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: {dropout}; must be in [0, 1)")
        ends = {(chain.sizes[0], chain.sizes[-1]) for chain in self.chains}
        if readout != "mean" and len(ends) > 1:
            raise ValueError(f"readout: {readout!r} needs equal numbers of inputs and outputs; choose 'mean' to mix")
        residual = [chain for chain in self.chains if isinstance(chain, Residual)]
        if residual and output == "weights":
            raise ValueError("output: 'weights' writes chains of layers only, not residual networks")
        if residual and backward != "norm":
            raise ValueError(f"backward: {backward!r} reads chains of layers only; residual networks take 'norm'")
        wires = [wires_of(chain) for chain in self.chains]
        self.scaling, self.both = law == "scale", direction == "bidirectional"
        self.rounds_count = rounds or max(one.depth for one in wires)
        self.form = backward if self.both and self.scaling else "norm"
        self.edge_updates, self.readout_form = edge_updates, readout
        weights = output == "weights"
        self.encoder = Encoder(self.chains, width, projection=projection, additive=not self.scaling)
        pairs = {pair for chain, one in zip(self.chains, wires) for pair in self._pairs(chain, one)}
        kinds = {kind for chain in self.chains for kind in self.kinds(chain)}
        more = {
            "normed": any(gain is not None for one in wires for gain in one.gains),
            "skips": any(one.skips for one in wires),
        }
        changes = [edge_updates and (i < self.rounds_count - 1 or weights) for i in range(self.rounds_count)]
        if self.scaling:
            self.rounds = nn.ModuleList(
                ScaleRound(
                    width,
                    pairs,
                    backward=backward if self.both else None,
                    receiver=receiver,
                    skip=skip,
                    edge_updates=change,
                    sign=sign,
                    norm=norm,
                    squash=squash,
                    dropout=dropout,
                    mean=mean,
                    **more,
                )
                for change in changes
            )
        else:
            self.rounds = nn.ModuleList(
                PlainRound(
                    width,
                    both=self.both,
                    skip=skip,
                    edge_updates=change,
                    norm=norm,
                    dropout=dropout,
                    mean=mean,
                    **more,
                )
                for change in changes
            )
        self.readout: Readout | None = None
        self.editor: WeightOutput | None = None
        if weights:
            self.editor = WeightOutput(self.chains, width)
        else:
            canonical = (
                Canonical(width, kinds, sign=sign, hidden=width, norm=norm)
                if self.scaling and readout != "outputs"
                else None
            )
            self.readout = Readout(readout, self.chains, width, out, both=self.both, canonical=canonical, norm=norm)

    def kinds(self, chain: Units) -> tuple[str, ...]:
        """The kind of each node layer's units."""
        inside = chain.symmetries if self.scaling else ("none",) * len(chain.hidden)
        return ("io", *inside, "io")

    def _pairs(self, chain: Units, wires: Wires) -> list[tuple[str, str]]:
        """Kinds of units at both ends of each edge layer; a norm leaves no multiplier at its end."""
        kinds = self.kinds(chain)
        ends = zip(wires.sources, wires.targets, wires.gains)
        found = [(kinds[source], kinds[target] if gain is None else "none") for source, target, gain in ends]
        return found + [(kinds[a], kinds[b]) for a, b in wires.skips]

    def read(self, stack: Stack) -> Tensor:
        """(n, out)."""
        if self.readout is None:
            raise ValueError("output: 'weights' has no numbers to give; call `edit`")
        states, _ = self.states(stack)
        return self.readout(states, self.kinds(stack.chain), stack.masked_units())

    def edit(self, stack: Stack) -> Stack:
        """The stack with new weights.

        Raises:
            ValueError: if the network was not made with output="weights", or as `forward`.
        """
        if self.editor is None:
            raise ValueError("output: 'invariant' writes no weights; make the network with output='weights'")
        stack = self.prepare(stack)
        states, edges = self.states(stack)
        return stack.replace(self.editor(stack, states, edges))

    def states(self, stack: Stack) -> tuple[list[Tensor], list[Edges]]:
        """Final states of nodes and edges; those that nothing reads are left as they were at some round before."""
        chain = stack.chain
        states = self.encoder.nodes(stack)
        features = self.encoder.features(stack)
        edges: list[Edges] = [self.encoder.raw(layer, f) for layer, f in zip(chain.layers, features)]
        back: list[Edges] = []
        if self.form != "norm":
            starts = [start_of(f, self.form) for f in features]
            back = [self.encoder.raw(layer, f) for layer, f in zip(chain.layers, starts)]
        wires, last = wires_of(chain), len(chain.sizes) - 1
        gains = [None if name is None else stack.tensors[name].t() for name in wires.gains]
        read = frozenset(range(last + 1)) if self.readout is None else self.readout.read(last)
        plan = schedule(
            wires,
            self.rounds_count,
            read,
            both=self.both,
            edge_updates=self.edge_updates,
            weights=self.editor is not None,
        )
        alive = stack.masked_units()
        for step, todo in zip(self.rounds, plan):
            states, edges, back = step(states, edges, back, self.kinds(chain), todo, wires, gains, alive)
        return states, edges


def matched_width(chains: Units | Sequence[Units], parameters: int, **options) -> int:
    """The width at which the network of these options comes closest to a number of parameters.

    Raises:
        ValueError: as `ScaleGMN`.
    """

    def size(width: int) -> int:
        with torch.device("meta"):
            return sum(p.numel() for p in ScaleGMN(chains, width=width, **options).parameters())

    low, high = 1, 2
    while size(high) < parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) < parameters else (low, middle)
    return min((low, high), key=lambda width: abs(size(width) - parameters))
