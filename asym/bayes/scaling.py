"""Hidden layers without the scaling symmetry of ReLU.

For ReLU, a unit's incoming weights and bias times c > 0 and its outgoing weights over c compute the same function.
`fix_scaling` removes that freedom: each hidden unit reads its input by the direction of (w, b) alone,

    y = (W x + b) / ‖(w, b)‖      row by row,

so that the scale lies in the outgoing weights only. The norms of rows have no effect on the function; under a normal
prior they keep their prior distribution whatever the data are, independent of all else.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asym.nn.swap import replace_modules


class UnitLinear(nn.Linear):
    """A linear layer whose rows (weights and bias) are divided by their norm in the forward pass."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply to (…, in_features)."""
        square = self.weight.square().sum(dim=1)
        if self.bias is not None:
            square = square + self.bias.square()
        return F.linear(input, self.weight, self.bias) * torch.rsqrt(square + 1e-12)


def fix_scaling(network: nn.Module) -> nn.Module:
    """A copy of a network of linear layers in which all but the last are `UnitLinear`.

    Raises:
        ValueError: with a layer of another kind that has weights, or without a hidden layer.
    """
    linear = [name for name, module in network.named_modules() if type(module) is nn.Linear]
    own = {f"{name}.{key}" if name else key for name in linear for key in ("weight", "bias")}
    if other := [name for name, _ in network.named_parameters() if name not in own]:
        raise ValueError(f"network: {other[0]} is no weight of a plain linear layer")
    if len(linear) < 2:
        raise ValueError("network: has no hidden linear layer")
    swaps: dict[str, nn.Module] = {}
    for name in linear[:-1]:
        old = network.get_submodule(name)
        assert isinstance(old, nn.Linear)
        layer = UnitLinear(
            old.in_features, old.out_features, old.bias is not None, device="meta", dtype=old.weight.dtype
        )
        layer.to_empty(device=old.weight.device).load_state_dict(old.state_dict())
        swaps[name] = layer
    return replace_modules(copy.deepcopy(network), swaps)
