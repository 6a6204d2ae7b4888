"""All readers by name, so that a study can loop over them: `build(name, chain)(stack)` → `n out`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from asym.metanets.blind import DMC, DeepSets, FlatMLP, StatNN
from asym.metanets.boosting import HyperBoost, StatBoost
from asym.metanets.nfn import NFN
from asym.metanets.reader import Reader
from asym.metanets.scale_gmn import ScaleGMN
from asym.seeds import derived_seed
from asym.symmetry.chain import Frame

READERS: dict[str, Callable[..., Reader]] = {
    "stats": StatNN,
    "stats-boost": StatBoost,
    "stats-boost-lightgbm": partial(StatBoost, library="lightgbm"),
    "stats-boost-xgboost": partial(StatBoost, library="xgboost"),
    "hyper-boost": HyperBoost,
    "flat": FlatMLP,
    "dmc": DMC,
    "deepsets": DeepSets,
    "nfn-np": partial(NFN, group="np"),
    "nfn-hnp": partial(NFN, group="hnp"),
    "gmn": partial(ScaleGMN, law="permutation"),
    "gmn-b": partial(ScaleGMN, law="permutation", direction="bidirectional"),
    "scale-gmn": ScaleGMN,
    "scale-gmn-b": partial(ScaleGMN, direction="bidirectional"),
}
"""Name to constructor; `-b` is bidirectional, `gmn` respects permutations only."""


def build(
    name: str,
    chains: Frame | Sequence[Frame],
    *,
    seed: int = 0,
    among: Mapping[str, Callable[..., Reader]] = READERS,
    **options,
) -> Reader:
    """A reader with start values from `seed`; the global generators are neither read nor advanced.

    Args:
        name: one of `among`.
        chains: the architecture, or several for readers that mix.
        seed: of start values and of what the reader draws.
        among: name to constructor.
        options: of the reader; `gauge`, `augment`, `shuffle` and `out` are for all.

    Raises:
        ValueError: for an unknown reader or option, and as the reader's class.
    """
    if name not in among:
        raise ValueError(f"reader: {name!r}; choose from {', '.join(among)}")
    make = among[name]
    allowed = options_of(name, among)
    for option in options:
        if option not in allowed:
            raise ValueError(f"reader: {name} has no option {option!r}; it has {', '.join(sorted(allowed))}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(seed, "metanets", name))
        return make(chains, seed=seed, **options)


def options_of(name: str, among: Mapping[str, Callable[..., Reader]] = READERS) -> set[str]:
    """Names of a reader's options, without those that its name sets."""
    make = among[name]
    kind = make.func if isinstance(make, partial) else make
    fixed = set(make.keywords) if isinstance(make, partial) else set()
    found: set[str] = set()
    for base in inspect.getmro(kind):  # type: ignore[arg-type]
        if issubclass(base, Reader):
            signature = inspect.signature(base.__init__)
            found |= {p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    return found - fixed - {"seed"}
