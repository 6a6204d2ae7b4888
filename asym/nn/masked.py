"""The base of masked layers: constants by (seed, name), start values, the effective weight, and a check of it all.

    W' = where(mask, weight, fixed)

See `asym.nn.w_asym` for the layers and for what differs from the released code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from asym.nn.masks import check_mask, sample_fixed, sample_mask


class MaskedLayer(nn.Module):
    """What the masked layers share: constants by (seed, name), initialisation, the effective weight."""

    weight: Tensor
    bias: Tensor | None
    mask: Tensor
    fixed: Tensor

    def _set_up(
        self, n_fix: int, kappa: float, seed: int, name: str, mode: str, granularity: str, allow_frozen: bool
    ) -> None:
        shape = tuple(self.weight.shape)
        check_mask(shape, n_fix, name=name, mode=mode, granularity=granularity, allow_frozen=allow_frozen)
        sample_fixed((0,), kappa, seed=seed, name=name)  # raises for a bad kappa before anything is drawn
        self.n_fix, self.kappa, self.seed, self.name = n_fix, kappa, seed, name
        self.mode, self.granularity, self.allow_frozen = mode, granularity, allow_frozen
        self.register_buffer("mask", torch.empty(shape, dtype=torch.bool, device=self.weight.device))
        self.register_buffer("fixed", torch.empty_like(self.weight, requires_grad=False))

    def sample_constants(self) -> tuple[Tensor, Tensor]:
        """The mask and F (float32) that (seed, name) give, on the CPU; the layer is not changed."""
        shape = tuple(self.weight.shape)
        mask = sample_mask(
            shape,
            self.n_fix,
            seed=self.seed,
            name=self.name,
            mode=self.mode,
            granularity=self.granularity,
            allow_frozen=self.allow_frozen,
        )
        return mask, sample_fixed(shape, self.kappa, seed=self.seed, name=self.name)

    @torch.no_grad()
    def reset_constants(self) -> None:
        """Write mask and F into their buffers again, after `to_empty` for example."""
        if not self.mask.is_meta:
            mask, fixed = self.sample_constants()
            self.mask.copy_(mask)
            self.fixed.copy_(fixed)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Restore mask and F, and draw weight and bias as PyTorch does: U(±1/√fan_in) over all inputs.

        Args:
            generator: source of the trainable values; None is the global generator, as in `nn.Linear`.
        """
        if "mask" not in self._buffers:  # called by the constructor of the base class
            return
        self.reset_constants()
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5), generator=generator)
        self.clear_fixed_entries()
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            nn.init.uniform_(self.bias, -bound, bound, generator=generator)

    @torch.no_grad()
    def clear_fixed_entries(self) -> None:
        """Set the entries of `weight` that lie under a constant to zero; the function does not change."""
        self.weight.masked_fill_(~self.mask, 0)

    @property
    def effective_weight(self) -> Tensor:
        """where(mask, weight, fixed), of the shape of `weight`; differentiable in the trainable entries."""
        return torch.where(self.mask, self.weight, self.fixed)

    @property
    def n_trainable(self) -> int:
        """Number of trainable entries of the weight (the bias, always trainable, is not counted)."""
        mask = self.sample_constants()[0] if self.mask.is_meta else self.mask
        return int(mask.sum())

    def extra_repr(self) -> str:
        """The plain layer's text, n_fix, kappa and the number of trainable entries."""
        unit = "" if self.granularity == "entry" else " channels"
        return (
            f"{super().extra_repr()}, n_fix={self.n_fix}{unit}, kappa={self.kappa:g}, "
            f"trainable={self.n_trainable}/{self.weight.numel()}"
        )

    def _take_over(self, module: nn.Linear | nn.Conv2d) -> None:
        """Move off the meta device, keep the values of a plain layer where they are trainable."""
        self.to_empty(device=module.weight.device)
        self.reset_constants()
        with torch.no_grad():
            self.weight.copy_(module.weight)
            self.clear_fixed_entries()
            if self.bias is not None and module.bias is not None:
                self.bias.copy_(module.bias)
                self.bias.requires_grad_(module.bias.requires_grad)
        self.weight.requires_grad_(module.weight.requires_grad)
        self.train(module.training)


def check_fixed(model: nn.Module) -> int:
    """Check that every masked layer holds the constants that its (seed, name) give, bit for bit.

    Returns:
        The number of masked layers that were checked.

    Raises:
        ValueError: naming the first layer whose mask or constants differ.
    """
    layers = [(path, module) for path, module in model.named_modules() if isinstance(module, MaskedLayer)]
    for path, layer in layers:
        mask, fixed = layer.sample_constants()
        # F is not read where the weight is trainable; a change there still means that something was written.
        drawn = {"mask": mask, "fixed": fixed.to(layer.fixed.dtype)}
        for key, value in drawn.items():
            if not torch.equal(layer.get_buffer(key).cpu(), value):
                where = path or layer.name
                raise ValueError(f"{where}: {key} is not what seed {layer.seed}, name {layer.name!r} give")
    return len(layers)
