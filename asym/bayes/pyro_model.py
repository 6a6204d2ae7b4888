"""The same Bayesian networks as pyro programs: for `pyro.infer.SVI`, `Predictive` and `NUTS`.

    w_layer ~ N(0, s²)        trainable entries of a layer, one site a layer, named as the layer
    y | x  ~ p(y | f(x; w))   in a plate over the data

The network is called by `torch.func.functional_call` with the drawn values and is not changed; fixed entries stay what
they are. Parameters that are not random (scales and shifts of norms) are `pyro.param` points named `point/…`. With
`kl_weight` β the latent sites are scaled, so that pyro's ELBO is E_q log p(y | x, w) − β KL(q ‖ p).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from jaxtyping import Float
from pyro import poutine
from torch import Tensor, nn

from asym.bayes.layers import RandomLayer, random_layers
from asym.bayes.likelihoods import Categorical, Gaussian
from asym.bayes.posterior import Posterior
from asym.bayes.priors import PriorRule


class Assembler:
    """From vectors of a network's random entries to its output.

    Args:
        network: is not changed.
        rules: the prior.
        last_only: whether only the last layer is random.

    Attributes:
        layers: the random layers.
        masks: layer name → True at the random entries of its vector.
        points: names of trainable parameters that are not random.
    """

    def __init__(self, network: nn.Module, rules: Sequence[PriorRule], *, last_only: bool = False) -> None:
        self.network = network
        self.layers: list[RandomLayer] = random_layers(network, rules, last_only=last_only)
        self.masks = {layer.name: layer.mask(network) for layer in self.layers}
        self.places = {name: mask.nonzero()[:, 0] for name, mask in self.masks.items()}
        random = {name for layer in self.layers for name in layer.parameters}
        named = dict(network.named_parameters())
        self.points = [name for name, p in named.items() if p.requires_grad and name not in random]

    def parameters(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """Named parameters from the random entries of each layer; fixed places hold zeros, which nothing reads."""
        out: dict[str, Tensor] = {}
        for layer in self.layers:
            value = values[layer.name]
            if layer.masked:
                value = torch.zeros(layer.size, dtype=value.dtype).scatter(0, self.places[layer.name], value)
            out |= layer.split(value)
        return out

    def output(self, values: dict[str, Tensor], inputs: Any) -> Tensor:
        """The network's output for random entries `values`; points as they are in the network."""
        return torch.func.functional_call(self.network, self.parameters(values), (inputs,))


def pyro_model(
    network: nn.Module,
    rules: Sequence[PriorRule],
    *,
    likelihood: Categorical | Gaussian = Categorical(),  # noqa: B008
    data_size: int | None = None,
    kl_weight: float = 1.0,
    last_only: bool = False,
) -> Callable[..., Tensor]:
    """A pyro model of a network: called with (inputs, targets=None), it returns the network's output.

    Args:
        network: any network with linear or convolutional layers.
        rules: the prior.
        likelihood: what outputs mean.
        data_size: number N of all items where a call sees a batch; None: a call sees all.
        kl_weight: β.
        last_only: whether only the last layer is random.
    """
    assembler = Assembler(network, rules, last_only=last_only)

    def model(inputs: Tensor, targets: Tensor | None = None) -> Tensor:
        with poutine.scale(scale=kl_weight):
            values = {
                layer.name: pyro.sample(
                    layer.name,
                    dist.Normal(torch.zeros(layer.entries), math.sqrt(layer.variance)).to_event(1),
                )
                for layer in assembler.layers
            }
        parameters = assembler.parameters(values)
        named = dict(network.named_parameters())
        parameters |= {n: pyro.param(f"point/{n}", named[n].detach().clone()) for n in assembler.points}
        output = torch.func.functional_call(network, parameters, (inputs,))
        with pyro.plate("data", size=data_size or len(inputs), subsample=inputs):
            if isinstance(likelihood, Gaussian):
                pyro.sample("target", dist.Normal(output[..., 0], likelihood.scale), obs=targets)
            else:
                pyro.sample("target", dist.Categorical(logits=output), obs=targets)
        return output

    return model


def pyro_guide(
    posterior: Posterior, row: Float[Tensor, " p"], network: nn.Module, *, kl_weight: float = 1.0
) -> Callable[..., dict[str, Tensor]]:
    """A row of a `Posterior` as a pyro guide for the model of `network`; its tensors become `pyro.param`s.

    Mean-field sites are `Normal`, low-rank ones `LowRankMultivariateNormal`.
    """
    views = {name: value.detach().clone() for name, value in posterior.layout.views(row).items()}
    masks = {layer.name: layer.mask(network) for layer in posterior.layers}
    k = posterior.guide.factors

    def guide(inputs: Any = None, targets: Any = None) -> dict[str, Tensor]:
        out = {}
        with poutine.scale(scale=kl_weight):
            for layer in posterior.layers:
                mask, name = masks[layer.name], layer.name
                mean = pyro.param(f"mean/{name}", views[f"mean/{name}"][mask])
                if posterior.guide.learns_diagonal:
                    logvar = pyro.param(f"logvar/{name}", views[f"logvar/{name}"][mask])
                else:
                    logvar = torch.full_like(mean, posterior.guide.log_variance)
                if k:
                    factor = pyro.param(f"factor/{name}", views[f"factor/{name}"][:, mask])
                    q = dist.LowRankMultivariateNormal(mean, factor.T / math.sqrt(k), logvar.exp())
                else:
                    q = dist.Normal(mean, (0.5 * logvar).exp()).to_event(1)
                out[name] = pyro.sample(name, q)
        return out

    return guide
