"""Chains of pyro's No-U-Turn sampler on small networks.

Pyro is given the potential −log p(w, data) as a function of one vector of all random entries; tracing the pyro program
at each of the thousands of gradient evaluations would double the time. Both are the same density (tested). Every chain
is a call of its own, which can be a process of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from asym.bayes.likelihoods import Categorical, Gaussian
from asym.bayes.priors import PriorRule
from asym.seeds import derived_seed, torch_generator

LARGEST_DEPTH = 10


class Target:
    """The posterior of a network's random entries, as one vector in whitened units w / s.

    In these units the prior is standard normal whatever the layer, which spares the sampler a mass matrix for it.

    Args:
        network: is not changed.
        rules: the prior.
        inputs: all of them.
        targets: likewise.
        likelihood: what outputs mean.
    """

    def __init__(
        self,
        network: nn.Module,
        rules: Sequence[PriorRule],
        inputs: Tensor,
        targets: Tensor,
        likelihood: Categorical | Gaussian = Categorical(),  # noqa: B008
    ) -> None:
        from asym.bayes.pyro_model import Assembler

        self.assembler = Assembler(network, rules)
        if self.assembler.points:
            raise ValueError(f"network: {self.assembler.points[0]} is not random, sampling needs all parameters to be")
        self.inputs, self.targets, self.likelihood = inputs, targets, likelihood
        self.sizes = [layer.entries for layer in self.assembler.layers]
        parts = [torch.full((n,), math.sqrt(la.variance)) for n, la in zip(self.sizes, self.assembler.layers)]
        self.scale = torch.cat(parts).to(inputs.dtype)

    @property
    def size(self) -> int:
        """Number of random entries."""
        return sum(self.sizes)

    def values(self, z: Float[Tensor, " d"]) -> dict[str, Tensor]:
        """Random entries by layer, in units of the network."""
        parts = (z * self.scale).split(self.sizes)
        return {layer.name: part for layer, part in zip(self.assembler.layers, parts)}

    def output(self, z: Float[Tensor, " d"], inputs: Tensor) -> Tensor:
        """The network's output at `z`."""
        return self.assembler.output(self.values(z), inputs)

    def potential(self, z: Float[Tensor, " d"]) -> Float[Tensor, ""]:
        """−log p(z) − log p(targets | inputs, z), up to a constant."""
        return 0.5 * z.square().sum() + self.likelihood.nll(self.output(z, self.inputs), self.targets).sum()

    def start(self, seed: int) -> Float[Tensor, " d"]:
        """A draw from the prior, where a chain begins."""
        return torch.randn(self.size, generator=torch_generator(seed, "chain")).to(self.scale.dtype)


class Chain(NamedTuple):
    """Draws of one chain."""

    draws: Float[Tensor, "s d"]
    """In whitened units."""
    potential: Float[Tensor, " s"]
    divergences: int
    acceptance: float
    gradients: int
    """Evaluations of the gradient, warm-up included."""


def run_chain(target: Target, seed: int, *, warmup: int, draws: int, max_tree_depth: int = 6) -> Chain:
    """One NUTS chain from a draw of the prior; step size and diagonal mass matrix are adapted in the warm-up.

    Args:
        target: what to sample.
        seed: determines start and moves.
        warmup: draws that are thrown away, at least 1.
        draws: draws that are kept, at least 4.
        max_tree_depth: at most 2^depth − 1 leapfrog steps a draw, 1 … 10.

    Raises:
        ValueError: for numbers out of range.
    """
    check_lengths(warmup, draws, max_tree_depth)
    import pyro
    from pyro.infer import MCMC, NUTS

    calls = 0

    def potential(z: dict[str, Tensor]) -> Tensor:
        nonlocal calls
        calls += 1
        return target.potential(z["z"])

    with torch.random.fork_rng(devices=[]):  # pyro draws from the global generator
        pyro.set_rng_seed(derived_seed(seed, "nuts"))
        kernel = NUTS(potential_fn=potential, max_tree_depth=max_tree_depth)
        start = {"z": target.start(seed)}
        mcmc = MCMC(kernel, num_samples=draws, warmup_steps=warmup, initial_params=start, disable_progbar=True)
        mcmc.run()
    z = mcmc.get_samples()["z"].detach()
    diagnostics: dict[str, Any] = mcmc.diagnostics()
    with torch.no_grad():
        energy = torch.stack([target.potential(row) for row in z])
    return Chain(
        z, energy, len(diagnostics["divergences"]["chain 0"]), float(diagnostics["acceptance rate"]["chain 0"]), calls
    )


def check_lengths(warmup: int, draws: int, max_tree_depth: int) -> None:
    """Raise a `ValueError` for lengths that `run_chain` cannot run."""
    for name, value, least in (("warmup", warmup, 1), ("draws", draws, 4)):
        if value < least:
            raise ValueError(f"{name}: got {value}, must be at least {least}")
    if not 1 <= max_tree_depth <= LARGEST_DEPTH:
        raise ValueError(f"max_tree_depth: got {max_tree_depth}, must be 1 … {LARGEST_DEPTH}")


def split_rhat(draws: Float[Tensor, "c s *d"]) -> Float[Tensor, "*d"]:
    """Split R̂ (Gelman et al., "Bayesian Data Analysis", 3rd edition, section 11.4), by pyro; 1 for constants.

    Args:
        draws: chains first.
    """
    from pyro.ops.stats import split_gelman_rubin

    value = split_gelman_rubin(draws, chain_dim=0, sample_dim=1)
    return torch.where(_constant(draws), torch.ones_like(value), value)


def effective_size(draws: Float[Tensor, "c s *d"]) -> Float[Tensor, "*d"]:
    """Effective sample size over all chains, by pyro; the number of draws for constants."""
    from pyro.ops.stats import effective_sample_size

    value = effective_sample_size(draws, chain_dim=0, sample_dim=1)
    count = torch.full_like(value, draws.shape[0] * draws.shape[1])
    return torch.where(_constant(draws), count, value.minimum(count))


def _constant(draws: Tensor) -> Tensor:
    flat = draws.flatten(0, 1)
    return (flat.amax(dim=0) - flat.amin(dim=0)) == 0
