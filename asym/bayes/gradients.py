"""From the gradient of a sampled network to that of its posterior, in closed form.

With g = ∂nll/∂w of a layer's drawn vector w = μ + Vᵀ ε / √K + √d ⊙ ξ and c = β / N, the chain rule through w and the
derivative of the closed form of the KL (`asym.bayes.guides`) give, for one row,

    ∂/∂μ      = g + c μ / s²
    ∂/∂V      = ε gᵀ / √K + (c/K) [V / s² − (I + G)⁻¹ V diag(d)⁻¹]
    ∂/∂log d  = ½ √d ⊙ ξ ⊙ g + (c/2) [d / s² − 1 + diag(Vᵀ (I + G)⁻¹ V) / (K d)]

and where outputs are drawn, with h = ∂nll/∂d, d ⊙ h in place of ½ √d ⊙ ξ ⊙ g. Autograd gives the same (tested) in about
twice the time: in a network with K factors most of a step is passes over their memory, which this form takes fewer of.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from asym.bayes.guides import gram, kl_parts, log_det_and_inverse

if TYPE_CHECKING:
    from asym.bayes.posterior import Posterior


def pull_back(
    family: Posterior,
    views: dict[str, Tensor],
    grads: dict[str, Tensor],
    noise: Tensor,
    batch: int,
    c: float,
    out: dict[str, Tensor],
) -> Tensor:
    """From gradients of a sample's tensors to those of the rows it was drawn from.

    Args:
        family: the posteriors.
        views: the rows' tensors.
        grads: gradients of nll by the names of `Posterior.sample`.
        noise: what the sample was drawn with.
        batch: number of inputs.
        c: factor of the KL.
        out: where gradients are written, named as `views`.

    Returns:
        The KL of each row.
    """
    for name in family.points:
        out[f"point/{name}"].copy_(grads[name])
    k, shapes = family.guide.factors, family.noise_shapes(batch)
    parts = iter(noise.split([size for _, size in shapes], dim=1))
    shared = next(parts).unflatten(1, (len(family.layers), k)) / math.sqrt(k) if k else None
    factors = [family.parts(views, layer)[1:] for layer in family.layers]
    grams = [gram(factor, logvar) for factor, logvar in factors if factor is not None]
    inverse, total = None, torch.zeros(len(noise), device=noise.device, dtype=noise.dtype)
    if grams:
        log_det, inverse = log_det_and_inverse(torch.stack(grams))
        total -= 0.5 * log_det.sum(dim=0)
    for i, (layer, local, mask) in enumerate(zip(family.layers, family.local, family.masks)):
        (mean, factor, logvar), own, s2 = family.parts(views, layer), next(parts), layer.variance
        total += kl_parts(mean, factor, logvar, mask, layer.entries, s2, grams[i] if grams else None)
        d = logvar.exp() if isinstance(logvar, Tensor) else math.exp(logvar)
        at = 0
        for name, shape in zip(layer.parameters, layer.shapes):
            part = slice(at, at := at + math.prod(shape))
            g = grads[name].reshape(len(noise), -1)
            if name in family.imposed:  # `sample` has put in the constants, outside of autograd
                keep = family.imposed[name][0]
                g = g * keep.reshape(-1 if family.shared else len(noise), g.shape[1])
            torch.add(g, mean[:, part], alpha=c / s2, out=out[f"mean/{layer.name}"][:, part])
            if factor is not None and shared is not None and inverse is not None:
                v, target = factor[:, :, part], out[f"factor/{layer.name}"][:, :, part]
                if isinstance(d, Tensor):
                    pull = v / s2 - inverse[i] @ (v / d[:, None, part])
                    target.copy_(pull.mul_(c / k))
                else:
                    eye = torch.eye(k, device=v.device, dtype=v.dtype)
                    target.copy_((eye / s2 - inverse[i] / d).mul_(c / k) @ v)
                target.baddbmm_(shared[:, i, :, None], g[:, None, :])
            if isinstance(d, Tensor) and isinstance(logvar, Tensor):
                variance = d[:, part]
                if local:
                    slope = variance * grads[variance_name(name)].reshape(len(noise), -1)
                else:
                    slope = variance.sqrt() * own[:, part] * g * 0.5
                pull = variance / s2 - 1
                if factor is not None and inverse is not None:
                    v = factor[:, :, part]
                    pull += (v * (inverse[i] @ v)).sum(dim=1) / (k * variance)
                slope += 0.5 * c * pull
                if mask is not None:
                    slope *= mask[:, part]
                out[f"logvar/{layer.name}"][:, part] = slope
    return total


def variance_name(name: str) -> str:
    """Under which name a sample has the variances of a weight or bias, where outputs are drawn."""
    return f"{name.removesuffix('weight')}variance" if name.endswith("weight") else f"{name}_variance"
