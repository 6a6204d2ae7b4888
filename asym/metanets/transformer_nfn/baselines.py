"""Readers of transformers to compare with: trees on all weights, with what is installed anyway.

    boost     gradient boosting on all weights: scikit-learn's, 50 trees, rate 0.1
    forest    a random forest on all weights: four fifths of the networks a tree, a third of the weights a split

The published trees are in `published_trees.py`, with the libraries they need: XGBoost and LightGBM.
`units` knows permutations only, see `units.py`. Perceptrons on all weights and on statistics of each tensor are those
of every architecture (`asym.metanets.blind`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from asym.metanets.reader import Reader
from asym.metanets.registry import READERS
from asym.metanets.transformer_nfn.published_trees import PublishedLightGBM, PublishedXGBoost, WeightTrees
from asym.metanets.transformer_nfn.reader import TransformerNFN
from asym.metanets.transformer_nfn.units import UnitReader


class WeightBoost(WeightTrees):
    """Boosted trees on all weights; options are those of `StatBoost`."""

    def __init__(self, chains: Any, *, iterations: int = 50, learning_rate: float = 0.1, **options) -> None:
        super().__init__(chains, iterations=iterations, learning_rate=learning_rate, **options)


class WeightForest(WeightTrees):
    """A random forest on all weights; `iterations` is the number of trees."""

    def __init__(self, chains: Any, *, iterations: int = 100, **options) -> None:
        super().__init__(chains, iterations=iterations, **options)

    def _make(self) -> Any:
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(
            self.iterations, max_samples=0.8, max_features=1 / 3, random_state=self.settings["random_state"]
        )


TRANSFORMER_READERS: dict[str, Callable[..., Reader]] = {
    "nfn": TransformerNFN,
    "nfn-low": partial(TransformerNFN, rank=8),
    "nfn-heads": partial(TransformerNFN, rank=8, probes=16),
    "nfn-residual": partial(TransformerNFN, rank=8, probes=16, residual=True),
    "nfn-encoder": partial(TransformerNFN, parts=("encoder",)),
    "nfn-embedding": partial(TransformerNFN, parts=("embedding",)),
    "nfn-classifier": partial(TransformerNFN, parts=("classifier",)),
    "units": UnitReader,
    "boost": WeightBoost,
    "forest": WeightForest,
    "xgboost": PublishedXGBoost,
    "lightgbm": PublishedLightGBM,
    "lightgbm-forest": partial(PublishedLightGBM, forest=True),
    **{name: READERS[name] for name in ("flat", "stats", "stats-boost", "deepsets", "hyper-boost")},
}
"""Name to constructor, for `asym.metanets.build(name, encoder, among=TRANSFORMER_READERS)`."""
