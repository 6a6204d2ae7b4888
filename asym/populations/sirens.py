"""Implicit networks fitted to images, many at once: one small network an image, trained on all of its pixels.

    L_i = mean over pixels of (f(x; θ_i) − image_i(x))²,      PSNR_i = −10 log10 L_i    for values in [0, 1]

Adam with PyTorch's constants takes `steps` full-batch steps; the rate falls from `lr` to 0 along half a cosine. Every
network has a seed of its own and with it start values of its own, unless `shared` gives all of them the same: published
sets differ in this, and from a common start a reader needs no symmetry.

The networks are the rows of a matrix; a step is a handful of batched products on `BATCH` of them, few enough for their
activations to stay in the processor's cache. A set is kept in the store in pieces of at most `PIECE` images, a piece a
run, with a table of labels: an interrupted run loses one piece, and a set with more fits an image contains the smaller.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from asym.data import ImageData
from asym.models.siren import STARTS, Siren, grid
from asym.populations.layout import Layout
from asym.populations.optim import init_state, update_
from asym.populations.population import compact
from asym.populations.runs import cached
from asym.populations.workers import tick
from asym.seeds import derived_seed, torch_generator
from asym.store import Run, Store

FIT_VERSION = 1
"""Raised by hand whenever the same recipe would give other networks than before."""
KIND = "sirens"
BATCH = 128
PIECE = 512
SPLITS = ("train", "val", "test")


@dataclasses.dataclass(frozen=True)
class SirenRecipe:
    """What determines the fit of a network, its image and its seed aside.

    Raises:
        ValueError: naming the field, the value and what is valid.
    """

    width: int = 32
    """Units of a hidden layer."""
    depth: int = 2
    """Hidden layers."""
    omega: float = 30.0
    """ω of all hidden layers."""
    first_omega: float | None = None
    """ω of the first layer, where it differs."""
    start: str = "paper"
    """Start values, `paper` or `smooth`; see `asym.models.siren`."""
    shared: bool = False
    """Whether all networks have the same start values."""
    steps: int = 300
    """Steps of Adam."""
    lr: float = 3e-3
    """Learning rate of the first step."""

    def __post_init__(self) -> None:
        for field in ("width", "depth", "steps"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: got {getattr(self, field)}, must be at least 1")
        for field in ("omega", "first_omega", "lr"):
            value = getattr(self, field)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{field}: got {value}, must be a positive number")
        if self.start not in STARTS:
            raise ValueError(f"start: got {self.start!r}; choose from {', '.join(STARTS)}")

    def network(self, channels: int = 1) -> Siren:
        """One network of this kind; its start values are of no seed."""
        return Siren(
            2,
            channels,
            width=self.width,
            depth=self.depth,
            omega=self.omega,
            first_omega=self.first_omega,
            start=self.start,
        )


def start_rows(network: Siren, seeds: Sequence[int]) -> Float[Tensor, "n p"]:
    """Start values by seed, as rows in the order of `Layout.trainable`."""
    layout, rows = Layout.trainable(network), []
    for seed in seeds:
        network.reset_parameters(torch_generator(seed, "siren", "start"))
        rows.append(layout.flatten(dict(network.named_parameters())))
    return torch.stack(rows)


def fit_sirens(
    images: Float[Tensor, "n c h w"], seeds: Sequence[int], recipe: SirenRecipe
) -> tuple[Float[Tensor, "n p"], Float[Tensor, " n"]]:
    """Networks fitted to images, and their mean squared errors; NaN or infinite where a fit diverged.

    Args:
        images: values in [0, 1].
        seeds: one a network; with `recipe.shared` the start values come from the first alone.
        recipe: how.

    Raises:
        ValueError: if there are not as many seeds as images, or none.
    """
    if len(seeds) != len(images) or not len(seeds):
        raise ValueError(f"seeds: {len(seeds)} for {len(images)} images; want one for each, at least one")
    network = recipe.network(images.shape[1])
    layout, x = Layout.trainable(network), grid(*images.shape[2:]).to(images.device)
    targets = images.flatten(2)
    rows, errors = [], []
    for first in range(0, len(seeds), BATCH):
        part = slice(first, first + BATCH)
        starts = [seeds[0]] * len(seeds[part]) if recipe.shared else seeds[part]
        theta = start_rows(network, starts).to(images.device)
        state = init_state("adam", theta)
        for step in range(recipe.steps):
            theta.requires_grad_()
            loss = (network.stacked(layout.views(theta), x) - targets[part]).square().mean((1, 2))
            (gradient,) = torch.autograd.grad(loss.sum(), theta)
            theta = theta.detach()
            rate = recipe.lr * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
            update_("adam", theta, gradient, state, step + 1, theta.new_full((len(theta), 1), rate), None)
        with torch.no_grad():
            errors.append((network.stacked(layout.views(theta), x) - targets[part]).square().mean((1, 2)))
        rows.append(theta)
        tick(len(theta))
    return torch.cat(rows), torch.cat(errors)


@dataclasses.dataclass(frozen=True)
class Piece:
    """Networks of consecutive images of one split, one an image: what is fitted together and kept as one run."""

    recipe: SirenRecipe
    data: str
    """Fingerprint of the data set."""
    split: str
    fit: int
    """Number of the fit; each image has as many networks as there are fits."""
    first: int
    """Place of the first image within its split."""
    images: int
    seed: int

    @property
    def seeds(self) -> list[int]:
        """One a network; of start values."""
        if self.recipe.shared:
            return [derived_seed(self.seed, "sirens", "shared")] * self.images
        places = range(self.first, self.first + self.images)
        return [derived_seed(self.seed, "sirens", self.split, self.fit, image) for image in places]

    @property
    def config(self) -> dict[str, Any]:
        """What determines the networks, as the store names them."""
        return {"version": FIT_VERSION} | dataclasses.asdict(self) | {"recipe": compact(self.recipe)}


def pieces_of(data: ImageData, split: str, recipe: SirenRecipe, *, fits: int = 1, seed: int = 0) -> list[Piece]:
    """A set of `fits` networks for each image of a split, cut into pieces; all images of the first fit come first.

    Raises:
        ValueError: for an unknown split or fewer than one fit.
    """
    if split not in SPLITS:
        raise ValueError(f"split: {split!r}; choose from {', '.join(SPLITS)}")
    if fits < 1:
        raise ValueError(f"fits: {fits}; must be at least 1")
    total = len(getattr(data, split))
    return [
        Piece(recipe, data.fingerprint, split, fit, first, min(PIECE, total - first), seed)
        for fit in range(fits)
        for first in range(0, total, PIECE)
    ]


def fit_or_load(store: Store, piece: Piece, data: ImageData, *, device: torch.device | str = "cpu") -> Run:
    """The run of a piece, fitted now if it is not in the store: tensor `theta` `n p`, table `labels`.

    The table has for each network `split, image` (its place within the split), `label, fit, seed, mse, psnr` (dB).

    Raises:
        ValueError: if the data are not those that the piece names.
        CorruptRun: if the stored files are damaged.
    """
    if data.fingerprint != piece.data:
        raise ValueError(f"data: the piece names {piece.data}, got {data.name} with {data.fingerprint}")

    def compute() -> tuple[dict[str, Tensor], dict[str, pd.DataFrame], dict[str, Any]]:
        start = time.perf_counter()
        places = slice(piece.first, piece.first + piece.images)
        split = getattr(data, piece.split)
        theta, mse = fit_sirens(unit_images(data, piece.split)[places].to(device), piece.seeds, piece.recipe)
        labels = pd.DataFrame(
            {
                "split": piece.split,
                "image": range(piece.first, piece.first + piece.images),
                "label": split.labels[places].numpy(),
                "fit": piece.fit,
                "seed": piece.seeds,
                "mse": mse.cpu().double().numpy(),
                "psnr": -10 * mse.cpu().double().log10().numpy(),
            }
        )
        return {"theta": theta.cpu()}, {"labels": labels}, {"wall_s": time.perf_counter() - start}

    return cached(store, KIND, piece.config, compute)


def unit_images(data: ImageData, split: str) -> Float[Tensor, "n c h w"]:
    """Images of a split with values in [0, 1]: divided by the largest value of the training images."""
    return getattr(data, split).images.float() / float(data.train.images.max())
