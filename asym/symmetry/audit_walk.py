"""Walk through a network's graph and write down which infinitesimal changes of its parameters cancel out.

`torch.export` gives the graph; every operation of it has a rule (`audit_rules.py`) that says how a change δx = A x + c
of its input appears in its output, which equations A and c must satisfy for that, and which change of a parameter
brings it about. For a linear layer y = W x + b, for example, any A, c before and any A', c' after it are possible:

    δW = A' W − W A,      δb = A' b + c' − W c,

for a ReLU A must be diagonal and c zero, for a GELU both zero. An operation without a rule lets nothing change, so
that what is predicted is a symmetry, and what is missing shows as unexplained. Inputs and outputs never change.

How general the A of a layer's output may be is looked up in the operations that follow (`Walk.kind`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from asym.nn.masked import MaskedLayer
from asym.symmetry.audit_graph import bound, flat, operation, placeholders, run_graph
from asym.symmetry.audit_system import Form, System, sp
from asym.symmetry.audit_values import Known, Moved, Scores, Still, Unsupported, Weights

Rule = Callable[..., "Known | list[Known]"]
RULES: dict[str, Rule] = {}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHAPE = _names(
    "view reshape _unsafe_view flatten unflatten permute transpose t numpy_T movedim unsqueeze squeeze select slice "
    "expand expand_as contiguous clone unbind chunk split split_with_sizes narrow alias detach lift_fresh_copy to "
    "_to_copy dropout index_select"
)
"""Operations that only rearrange entries (dropout does nothing in evaluation)."""
HOMOGENEOUS = _names("relu leaky_relu max_pool2d adaptive_max_pool2d amax")
ODD = _names("tanh sin erf softsign asinh atan")
ADDING = _names("add sub mean sum avg_pool2d adaptive_avg_pool2d")
ORDER = ("still", "diagonal", "channel", "norm", "full")
"""How general A may be, from nothing to everything."""


def rule(names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the operations in `names` (separated by spaces)."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), function))
        return function

    return register


def trainable_sources(model: nn.Module) -> tuple[dict[str, Tensor], int]:
    """The flat number of every trainable entry, -1 for constants, by parameter name; and how many there are.

    Trainable is what training can move: entries under a constant of a masked layer are not.
    """
    masks = {id(m.weight): m.mask for m in model.modules() if isinstance(m, MaskedLayer)}
    sources: dict[str, Tensor] = {}
    made: dict[int, Tensor] = {}
    total = 0
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) not in made:
            free = masks.get(id(parameter), torch.ones(parameter.shape, dtype=torch.bool)).cpu()
            free = free if parameter.requires_grad else torch.zeros_like(free)
            numbers = torch.full(parameter.shape, -1)
            count = int(free.sum())
            numbers[free] = torch.arange(total, total + count)
            total += count
            made[id(parameter)] = numbers
        sources[name] = made[id(parameter)]
    return sources, total


class Walk:
    """One walk through a graph at one point of parameter space.

    Args:
        program: the exported network.
        state: parameters and buffers by name, float64.
        sources: see `trainable_sources`.
        inputs: the network's inputs, of the shapes that it was exported with.
        odd: let signs flip through odd activations instead of scales through ReLU.

    Attributes:
        system: unknowns and equations.
        output: the network's output at these inputs.
        untraced: operations without a rule that something could have moved through.
    """

    def __init__(
        self,
        program: ExportedProgram,
        state: Mapping[str, Tensor],
        sources: Mapping[str, Tensor],
        inputs: tuple[Any, ...],
        *,
        odd: bool = False,
    ) -> None:
        import asym.symmetry.audit_rules
        import asym.symmetry.audit_rules_attention
        import asym.symmetry.audit_rules_norm
        import asym.symmetry.audit_rules_pointwise  # noqa: F401  (importing them registers the rules)

        self.system, self.odd = System(), odd
        self.untraced: set[str] = set()
        self.known: dict[fx.Node, Any] = {}
        self.numbers = run_graph(program, state, inputs)
        self.records: list[tuple[Tensor, Form]] = []
        self.owner: dict[int, tuple[int, int]] = {}
        self._kinds: dict[fx.Node, str] = {}
        for node, name in placeholders(program):
            value = self.numbers[node]
            self.known[node] = (
                Still() if name is None else Weights(value, sources.get(name, torch.full(value.shape, -1)))
            )
        for node in program.graph.nodes:
            if node.op == "call_function":
                self._run(node)
            elif node.op == "output":
                for result in node.all_input_nodes:
                    self.hold(self.known[result])
                self.output = self.numbers[node.all_input_nodes[0]]

    def _run(self, node: fx.Node) -> None:
        name = operation(node)
        if name == "getitem":
            self.known[node] = self.known[node.args[0]][node.args[1]]  # type: ignore[index]
            return
        numbers, result = bound(node, self.numbers), self.numbers[node]
        known = bound(node, self.known)
        parts = [value for value in flat(known.values()) if isinstance(value, Moved | Weights | Still | Scores)]
        if all(isinstance(p, Weights) for p in parts):
            self.known[node] = self._weights(name, node, known, result)
            return
        try:
            if name in SHAPE:
                self.known[node] = self._rearranged(node.target, name, known, result)
            elif name in RULES and any(isinstance(p, Moved | Weights | Scores) for p in parts):
                self.known[node] = RULES[name](self, node, known, numbers, result)
            else:
                raise Unsupported
        except Unsupported:
            if any(isinstance(p, Moved) for p in parts):
                self.untraced.add(name)
            for part in parts:
                self.hold(part)
            self.known[node] = Still() if isinstance(result, Tensor) else [Still() for _ in result]

    def _weights(self, name: str, node: fx.Node, known: dict[str, Any], result: Any) -> Any:
        """A tensor computed from parameters and constants alone."""
        if name == "where":
            a, b, mask = known["self"], known["other"], known["condition"].value
            return Weights(result, torch.where(mask, a.source, b.source))
        if name in SHAPE and isinstance(known.get("self", known.get("input")), Weights):
            return self._rearranged(node.target, name, known, result)
        for value in flat(known.values()):
            self.hold(value)
        if isinstance(result, Tensor):
            return Weights(result, torch.full(result.shape, -1))
        return [Weights(r, torch.full(r.shape, -1)) for r in result]

    def _rearranged(self, target: Any, name: str, known: dict[str, Any], result: Any) -> Any:
        """Rearrange the layout as the tensor itself."""
        key = "self" if "self" in known else "input"
        value = known[key]
        if isinstance(value, Scores):
            raise Unsupported
        if isinstance(value, Still):
            return Still() if isinstance(result, Tensor) else [Still() for _ in result]
        if name in ("dropout", "to", "_to_copy", "contiguous", "clone", "detach", "alias", "lift_fresh_copy"):
            return value
        rest = {k: (v.value if isinstance(v, Weights) else v) for k, v in known.items() if k != key}
        if any(isinstance(v, Moved | Still) for v in rest.values()):
            raise Unsupported

        def apply(ids: Tensor) -> Any:
            arguments = [ids if a.name == key else rest[a.name] for a in target._schema.arguments if a.name in known]
            return target(*arguments)

        if isinstance(value, Weights):
            source = apply(value.source)
            if isinstance(result, Tensor):
                return Weights(result, source)
            return [Weights(r, s) for r, s in zip(result, source)]
        channel, position = apply(value.channel), apply(value.position)
        if isinstance(result, Tensor):
            return value.with_layout(channel, position)
        return [value.with_layout(c, p) for c, p in zip(channel, position)]

    # What rules use

    def hold(self, value: Any) -> None:
        """Let nothing change: no activation, no parameter."""
        if isinstance(value, Moved):
            self.system.require_zero(value.a)
            self.system.require_zero(value.c)
        elif isinstance(value, Weights) and bool((value.source >= 0).any()):
            self.change(value, Form.zero(*value.value.shape))
        elif isinstance(value, Scores):
            for shift in value.shifts:
                self.system.require_zero(shift)
        elif isinstance(value, list):
            for part in value:
                self.hold(part)

    def change(self, weights: Weights, form: Form) -> None:
        """Parameters change by `form`, of their shape; constants among them may not change."""
        source, coef = weights.source.reshape(-1), form.coef.reshape(len(form.idx), weights.source.numel())
        constant = source < 0
        self.system.require_zero(Form(form.idx, coef[:, constant]), stage=1)
        free = (~constant).nonzero().ravel()
        entries = source[free].tolist()
        new = [k for k, entry in enumerate(entries) if entry not in self.owner]
        again = [k for k, entry in enumerate(entries) if entry in self.owner]
        for k in again:  # a shared parameter changes alike everywhere
            number, column = self.owner[entries[k]]
            earlier = self.records[number][1]
            difference = Form(form.idx, coef[:, free[k]]) - Form(earlier.idx, earlier.coef[:, column])
            self.system.require_zero(difference)
        if new:
            for column, k in enumerate(new):
                self.owner[entries[k]] = (len(self.records), column)
            chosen = free[new]
            self.records.append((source[chosen], Form(form.idx, coef[:, chosen])))

    def tangents(self, basis: Any, total: int) -> Tensor:
        """The changes of all trainable parameters, `[solutions, parameters]`, that solutions stand for."""
        rows, columns, values = [], [], []
        for source, form in self.records:
            k, column = form.coef.nonzero(as_tuple=True)
            rows.append(source[column])
            columns.append(form.idx[k])
            values.append(form.coef[k, column])
        if not rows or basis.shape[1] == 0:
            return torch.zeros((basis.shape[1], total), dtype=torch.float64)
        data = (torch.cat(values).numpy(), (torch.cat(rows).numpy(), torch.cat(columns).numpy()))
        jacobian = sp.coo_matrix(data, (total, basis.shape[0])).tocsr()
        return torch.from_numpy(sp.csr_matrix(jacobian @ basis).toarray().T.copy())

    def kind(self, node: fx.Node) -> str:
        """How general a change of this node's output may be, seen from the operations that use it."""
        if node not in self._kinds:
            self._kinds[node] = "full"  # for graphs with loops, which do not occur
            self._kinds[node] = min((self._kind(node, user) for user in node.users), key=ORDER.index, default="still")
        return self._kinds[node]

    def _kind(self, node: fx.Node, user: fx.Node) -> str:
        if user.op == "output":
            return "still"
        name = operation(user)
        if name in SHAPE or name in ADDING or name in ("getitem", "cat"):
            return self.kind(user)
        if name in ("mul", "div"):
            other = [n for n in user.all_input_nodes if n is not node]
            if not other:
                return self.kind(user)
            return "full" if all(isinstance(self.known.get(n), Weights) for n in other) else "diagonal"
        if name in HOMOGENEOUS and not self.odd:
            return "diagonal"
        if name in ODD and self.odd:
            return "diagonal"
        if name in ("linear", "conv2d", "matmul", "mm", "addmm", "scaled_dot_product_attention"):
            return "full"
        if name == "batch_norm":
            return "channel" if bool(user.args[5]) else "full"
        if name == "group_norm":
            return "full" if user.args[1] != 1 else "norm"
        return "norm" if name == "layer_norm" else "still"

    def ignored(self, node: fx.Node) -> int:
        """Whether all that reads this node ignores a shift of all channels alike: -1 for layer norms, the number of
        groups for group norms, 0 if something does not.
        """
        found = set()
        for user in node.users:
            name = operation(user) if user.op == "call_function" else "output"
            if name in SHAPE or name in ADDING:
                found.add(self.ignored(user))
            else:
                found.add(-1 if name == "layer_norm" else int(user.args[1]) if name == "group_norm" else 0)  # type: ignore
        return found.pop() if len(found) == 1 else 0
