"""Variational posteriors over n networks of one architecture, held as a matrix of n rows.

    ELBO(θ) = E_q [log p(y | x, w)] − β KL(q_θ ‖ p),        loss = −(1/N) ELBO = mean nll + (β / N) KL

with N training items and KL weight β: 1 gives the posterior, below 1 a tempered one. A row θ holds means, factors and
log-variances of the random layers (`asym.bayes.layers`, `asym.bayes.guides`), and the remaining trainable parameters
(scales and shifts of norms) as points. The networks are not changed: samples are handed in by
`torch.func.functional_call`, for several rows at once under `torch.func.vmap`. All noise is an argument.

Constants of masked layers are written into a sample before autograd begins (their gradients are set to zero behind it),
and the network called has plain layers in their place: a masked network costs what a plain one does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from asym.bayes.gradients import pull_back, variance_name
from asym.bayes.guides import Guide, draw, gram, kl_parts, log_det_one_plus
from asym.bayes.layers import RandomLayer, random_layers
from asym.bayes.likelihoods import Categorical, Gaussian
from asym.bayes.local import LocalLinear
from asym.bayes.priors import PriorRule
from asym.nn import WAsymConv2d, WAsymLinear
from asym.nn.swap import replace_modules
from asym.populations.layout import Layout
from asym.seeds import torch_generator


class Posterior:
    """The family of posteriors of given networks.

    Args:
        networks: n networks of one architecture; they give initial means, masks and constants.
        rules: the prior.
        guide: the family.
        likelihood: what outputs mean.
        device: where to compute.

    Attributes:
        layers: the random layers.
        layout: names and shapes of a row's tensors: `mean/…`, `factor/…`, `logvar/…`, `point/…`.

    Raises:
        ValueError: for networks without random layers, and priors without a rule for one.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        rules: Sequence[PriorRule],
        guide: Guide,
        *,
        likelihood: Categorical | Gaussian = Categorical(),  # noqa: B008
        device: torch.device | str = "cpu",
    ) -> None:
        first = networks[0]
        self.guide, self.likelihood, self.device = guide, likelihood, torch.device(device)
        self.layers = random_layers(first, rules, last_only=guide.last_only)
        self.local = [guide.draws_outputs and layer.linear for layer in self.layers]
        random = {name for layer in self.layers for name in layer.parameters}
        self.points = [n for n, p in first.named_parameters() if p.requires_grad and n not in random]
        self.layout = self._make_layout(first)
        self.masks = [self._mask(layer, networks) for layer in self.layers]
        self.running = Layout.running(first)
        moving = {*random, *self.points, *self.running.names}
        tensors = [{**dict(n.named_parameters()), **dict(n.named_buffers())} for n in networks]
        self.shared = all(_same(tensors[0], other, moving) for other in tensors[1:])
        kept = [{k: v.detach().to(self.device) for k, v in t.items() if k not in moving} for t in tensors]
        self.constants = kept[0] if self.shared else {k: torch.stack([t[k] for t in kept]) for k in kept[0]}
        self.imposed = {name: pair for layer in self.layers for name, pair in self._imposed(layer).items()}
        swapped: dict[str, nn.Module] = {
            layer.name: LocalLinear() for layer, local in zip(self.layers, self.local) if local
        }
        swapped |= {
            layer.name: module.to_plain()
            for layer, local in zip(self.layers, self.local)
            if not local and isinstance(module := first.get_submodule(layer.name), WAsymLinear | WAsymConv2d)
        }
        self.network = replace_modules(copy.deepcopy(first), swapped).to(self.device)

    def initial(self, networks: Sequence[nn.Module], seeds: Sequence[int]) -> Float[Tensor, "n p"]:
        """Rows that start at the networks' weights, with the guide's variance and factors as small as its diagonal."""
        return torch.stack([self._initial(n, seed) for n, seed in zip(networks, seeds, strict=True)]).to(self.device)

    def noise_size(self, batch: int) -> int:
        """Number of standard normals that one sample of one row takes, for `batch` inputs."""
        return sum(size for _, size in self.noise_shapes(batch))

    def elbo(
        self,
        theta: Float[Tensor, "n p"],
        inputs: Float[Tensor, "n b *x"],
        targets: Tensor,
        noise: Float[Tensor, "n e"],
        running: Float[Tensor, "n q"] | None = None,
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Mean negative log-likelihood of a batch under one sample of each row, and KL to the prior.

        Args:
            theta: rows.
            inputs: each row's inputs.
            targets: `n b`.
            noise: see `noise_size`.
            running: running statistics of BatchNorm, updated in place (one row only).
        """
        views = self.layout.views(theta)
        output = self.forward(self.sample(views, noise, inputs.shape[1]), inputs, running)
        return self.likelihood.nll(output.float() if output.dtype == torch.bfloat16 else output, targets).mean(dim=1), (
            self.kl(views)
        )

    def gradient(
        self,
        theta: Float[Tensor, "n p"],
        inputs: Float[Tensor, "n b *x"],
        targets: Tensor,
        noise: Float[Tensor, "n e"],
        kl_scale: float,
        out: Float[Tensor, "n p"],
        running: Float[Tensor, "n q"] | None = None,
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """What `elbo` gives, and the gradient of nll + kl_scale · KL, written to `out`.

        Autograd runs through the network alone; from there to the rows, see `asym.bayes.gradients`.
        """
        with torch.no_grad():
            views = self.layout.views(theta)
            leaves = self.sample(views, noise, inputs.shape[1])
        named = [name for name in leaves if not name.endswith("noise")]
        for name in named:
            leaves[name] = leaves[name].detach().requires_grad_()
        with torch.enable_grad():
            output = self.forward(leaves, inputs, running)
            output = output.float() if output.dtype == torch.bfloat16 else output
            nll = self.likelihood.nll(output, targets).mean(dim=1)
            grads = dict(zip(named, torch.autograd.grad(nll.sum(), [leaves[name] for name in named])))
        with torch.no_grad():
            kl = pull_back(self, views, grads, noise, inputs.shape[1], kl_scale, self.layout.views(out))
        return nll.detach(), kl

    def kl(self, views: dict[str, Tensor]) -> Float[Tensor, " n"]:
        """KL(q ‖ p) of each row, in nats."""
        total, grams = [], []
        for layer, mask in zip(self.layers, self.masks):
            mean, factor, logvar = self.parts(views, layer)
            g = gram(factor, logvar) if factor is not None else None
            total.append(kl_parts(mean, factor, logvar, mask, layer.entries, layer.variance, g))
            grams += [g] if g is not None else []
        value = torch.stack(total).sum(dim=0)
        return value - 0.5 * log_det_one_plus(torch.stack(grams)).sum(dim=0) if grams else value

    def sample(self, views: dict[str, Tensor], noise: Float[Tensor, "n e"], batch: int) -> dict[str, Tensor]:
        """One network from each row, as named tensors with a leading axis: what `forward` takes."""
        out = {name: views[f"point/{name}"] for name in self.points}
        shapes = self.noise_shapes(batch)
        parts = iter(noise.split([size for _, size in shapes], dim=1))
        shared = next(parts).unflatten(1, (len(self.layers), -1)) if self.guide.factors else None
        for i, (layer, local, mask) in enumerate(zip(self.layers, self.local, self.masks)):
            mean, factor, logvar = self.parts(views, layer)
            own = next(parts)
            low = shared[:, i] if shared is not None else None
            value = draw(mean, factor, logvar, low, None if local else own)
            tensors = {name: self._impose(name, tensor) for name, tensor in layer.split(value).items()}
            if local:
                spread = logvar.exp() if isinstance(logvar, Tensor) else torch.full_like(mean, math.exp(logvar))
                spread = layer.split(spread if mask is None else spread * mask)
                out |= {variance_name(name): tensor for name, tensor in spread.items()}
                out[f"{layer.name}.noise" if layer.name else "noise"] = own.unflatten(1, (batch, -1))
            out |= tensors
        return out

    def forward(
        self,
        parameters: dict[str, Tensor],
        inputs: Float[Tensor, "n b *x"],
        running: Float[Tensor, "n q"] | None = None,
    ) -> Float[Tensor, "n b c"]:
        """Outputs of sampled networks; `parameters` as from `sample`."""
        if inputs.shape[0] == 1:
            own = {name: value[0] for name, value in parameters.items()}
            own |= self.constants if self.shared else {name: value[0] for name, value in self.constants.items()}
            if running is not None and self.running.names:
                own |= self.running.views(running[0])
            return torch.func.functional_call(self.network, own, (inputs[0],))[None]
        if self.running.names:
            raise ValueError("inputs: networks with BatchNorm take one row at a time")

        def call(parameters: dict[str, Tensor], constants: dict[str, Tensor], x: Tensor) -> Tensor:
            return torch.func.functional_call(self.network, {**constants, **parameters}, (x,))

        in_dims = (0, None if self.shared else 0, 0)
        return torch.func.vmap(call, in_dims=in_dims)(parameters, self.constants, inputs)

    def rows(self, index: Sequence[int]) -> Posterior:
        """The same family for some of its networks."""
        part = copy.copy(self)
        picked = torch.as_tensor(index, device=self.device)
        if not self.shared:
            part.constants = {name: value[picked] for name, value in self.constants.items()}
            part.imposed = {name: (keep[picked], fixed[picked]) for name, (keep, fixed) in self.imposed.items()}
        part.masks = [m if m is None or len(m) == 1 else m[picked] for m in self.masks]
        return part

    def parts(self, views: dict[str, Tensor], layer: RandomLayer) -> tuple[Tensor, Tensor | None, Tensor | float]:
        """Mean, factors if there are any, and log-variance of a layer: a tensor if it is learned."""
        logvar = views[f"logvar/{layer.name}"] if self.guide.learns_diagonal else self.guide.log_variance
        return views[f"mean/{layer.name}"], views.get(f"factor/{layer.name}"), logvar

    def _make_layout(self, network: nn.Module) -> Layout:
        items: list[tuple[str, tuple[int, ...]]] = []
        for layer in self.layers:
            items.append((f"mean/{layer.name}", (layer.size,)))
            if self.guide.factors:
                items.append((f"factor/{layer.name}", (self.guide.factors, layer.size)))
            if self.guide.learns_diagonal:
                items.append((f"logvar/{layer.name}", (layer.size,)))
        items += [(f"point/{name}", tuple(network.get_parameter(name).shape)) for name in self.points]
        return Layout(tuple(name for name, _ in items), tuple(shape for _, shape in items))

    def _initial(self, network: nn.Module, seed: int) -> Float[Tensor, " p"]:
        values: dict[str, Tensor] = {}
        for layer in self.layers:
            mean = layer.vector(network)
            values[f"mean/{layer.name}"] = mean
            if self.guide.factors:
                drawn = torch.randn(
                    self.guide.factors, layer.size, generator=torch_generator(seed, "factor", layer.name)
                )
                scale = math.exp(0.5 * self.guide.log_variance)
                values[f"factor/{layer.name}"] = (drawn * scale * layer.mask(network)).to(mean)
            values[f"logvar/{layer.name}"] = torch.full_like(mean, self.guide.log_variance)
        values |= {f"point/{name}": network.get_parameter(name) for name in self.points}
        return self.layout.flatten(values)

    def _mask(self, layer: RandomLayer, networks: Sequence[nn.Module]) -> Tensor | None:
        if not layer.masked:
            return None
        masks = torch.stack([layer.mask(network) for network in networks])
        return masks.to(self.device)

    def _impose(self, name: str, value: Tensor) -> Tensor:
        """The constants of a masked weight, whose layer has been swapped for one without a mask.

        mask · value + constants in place of `torch.where`, whose loop over bytes takes eight times as long on a CPU.
        """
        if name not in self.imposed:
            return value
        keep, constant = self.imposed[name]
        return torch.addcmul(constant, value, keep)

    def _imposed(self, layer: RandomLayer) -> dict[str, tuple[Tensor, Tensor]]:
        """By the name of a masked weight: its mask as 0 and 1, and its constants with 0 at trainable entries."""
        if not layer.masked:
            return {}
        mask, fixed = (self.constants.pop(f"{layer.name}.{key}".lstrip(".")) for key in ("mask", "fixed"))
        keep = mask.to(fixed.dtype)
        return {layer.parameters[0]: (keep, fixed * (1 - keep))}

    def noise_shapes(self, batch: int) -> list[tuple[str, int]]:
        """What the noise of a sample is made of, in its order: name and size."""
        shapes = [("shared", len(self.layers) * self.guide.factors)] if self.guide.factors else []
        for layer, local in zip(self.layers, self.local):
            shapes.append((layer.name, batch * layer.shapes[0][0] if local else layer.size))
        return shapes


def _same(a: dict[str, Tensor], b: dict[str, Tensor], but: set[str]) -> bool:
    return all(torch.equal(value, b[name]) for name, value in a.items() if name not in but)
