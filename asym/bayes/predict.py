"""Monte-Carlo predictive distributions.

    log p(y | x, data) ≈ log (1/S) Σ_s p(y | x, w_s) = logsumexp_s log p(y | x, w_s) − log S,      w_s ~ q

The sum is over probabilities, taken in logarithms so that none underflows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from asym.bayes.posterior import Posterior
from asym.seeds import derived_seed

BATCH = 250


def log_mean_exp(log_p: Float[Tensor, "s ..."]) -> Tensor:
    """log of the mean over the first axis of exp(log_p)."""
    return torch.logsumexp(log_p, dim=0) - math.log(len(log_p))


@torch.no_grad()
def predict(
    posterior: Posterior,
    theta: Float[Tensor, "n p"],
    inputs: Float[Tensor, "b ..."],
    samples: int,
    seeds: Sequence[int],
    name: str,
    *,
    running: Float[Tensor, "n q"] | None = None,
) -> Float[Tensor, "n b c"]:
    """Log-probabilities of classes under the predictive distribution of each row.

    Args:
        posterior: the family; networks are evaluated in evaluation mode.
        theta: rows.
        inputs: the same for all rows.
        samples: S, at least 1. Each is one set of weights for all inputs, except that layers with local
            reparametrisation draw their outputs for each input, which has the same distribution for each.
        seeds: one a row; with `name` they determine the samples.
        name: of the stream.
        running: running statistics of BatchNorm.

    Raises:
        ValueError: if samples is below 1.
    """
    if samples < 1:
        raise ValueError(f"samples: got {samples}, must be at least 1")
    device = posterior.device
    theta = theta.to(device)
    views, total = posterior.layout.views(theta), None
    was_training = posterior.network.training
    posterior.network.eval()
    statistics = running.to(device) if running is not None and running.shape[1] else None
    generators = [torch.Generator(device).manual_seed(derived_seed(seed, "predict", name)) for seed in seeds]
    widest = min(BATCH, len(inputs))
    try:
        for _ in range(samples):
            noise = torch.empty(len(theta), posterior.noise_size(widest), device=device, dtype=theta.dtype)
            for row, generator in zip(noise, generators):
                row.normal_(generator=generator)
            if any(posterior.local):
                log_p = _local(posterior, views, inputs, generators, noise, statistics)
            else:
                parameters = posterior.sample(views, noise, widest)
                log_p = torch.cat(
                    [_log_p(posterior, parameters, part, len(theta), statistics) for part in inputs.split(BATCH)], dim=1
                )
            total = log_p if total is None else torch.logaddexp(total, log_p)
    finally:
        posterior.network.train(was_training)
    assert total is not None
    return total - math.log(samples)


def _local(posterior, views, inputs, generators, noise, statistics) -> Tensor:
    out = []
    for part in inputs.split(BATCH):
        if len(part) * len(noise) and noise.shape[1] != posterior.noise_size(len(part)):
            noise = noise.new_empty(len(noise), posterior.noise_size(len(part)))
        if out:
            for row, generator in zip(noise, generators):
                row.normal_(generator=generator)
        parameters = posterior.sample(views, noise, len(part))
        out.append(_log_p(posterior, parameters, part, len(noise), statistics))
    return torch.cat(out, dim=1)


def _log_p(
    posterior: Posterior, parameters: dict[str, Tensor], inputs: Tensor, rows: int, running: Tensor | None
) -> Tensor:
    output = posterior.forward(parameters, inputs[None].expand(rows, *inputs.shape), running)
    return F.log_softmax(output.float() if output.dtype == torch.bfloat16 else output, dim=-1)
