"""The published tree baselines on all weights of a transformer, with the libraries they were made with (extra `boost`).

    xgboost           at most 50 trees of depth 10, rate 0.1, 50 networks a leaf at least, four fifths of the networks
                      and weights a tree, λ = 0.01, α = 0.02
    lightgbm          at most 1,000 trees of up to 256 leaves and depth 10, rate 0.1, 50 networks a leaf at least, four
                      fifths of the weights a tree, λ₁ = 0.1, λ₂ = 0.2, gain 0.01 at least
    lightgbm-forest   a random forest of such trees, each on other four fifths of the networks

The number of trees is chosen on validation networks: the best one before 50 trees in a row bring nothing (Tran et al.
2025, arXiv 2410.04209, as released). One thread, so that the same seed gives the same trees. With 50 networks a leaf no
tree splits fewer than a hundred networks: what is predicted then is their mean, for which τ is not defined, NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from asym.metanets.boosting import StatBoost, extra
from asym.metanets.stack import Stack

PATIENCE = 50
"""Trees without a gain on validation networks, after which fitting stops."""


class WeightTrees(StatBoost):
    """Trees on all weights; options are those of `StatBoost`."""

    mixes = False

    def features(self, stack: Stack) -> Tensor:
        """`n weights`."""
        return stack.flat()


class PublishedXGBoost(WeightTrees):
    """XGBoost as published."""

    def __init__(self, chains: Any, *, iterations: int = 50, learning_rate: float = 0.1, **options) -> None:
        super().__init__(chains, iterations=iterations, learning_rate=learning_rate, library="xgboost", **options)

    def _fitted(self, x: np.ndarray, y: np.ndarray, val: tuple[np.ndarray, np.ndarray] | None) -> Any:
        stop = {} if val is None else {"early_stopping_rounds": PATIENCE}
        model = extra("xgboost").XGBRegressor(
            n_estimators=self.iterations, learning_rate=self.settings["learning_rate"], max_depth=10,
            min_child_weight=50, subsample=0.8, colsample_bytree=0.8, reg_lambda=0.01, reg_alpha=0.02,
            tree_method="hist", random_state=self.settings["random_state"], n_jobs=1, **stop,
        )  # fmt: skip
        return model.fit(x, y, eval_set=None if val is None else [val], verbose=False)


class PublishedLightGBM(WeightTrees):
    """LightGBM as published; `forest` grows a random forest."""

    def __init__(
        self, chains: Any, *, iterations: int = 1000, learning_rate: float = 0.1, forest: bool = False, **options
    ) -> None:
        super().__init__(chains, iterations=iterations, learning_rate=learning_rate, library="lightgbm", **options)
        self.forest = forest

    def _fitted(self, x: np.ndarray, y: np.ndarray, val: tuple[np.ndarray, np.ndarray] | None) -> Any:
        library = extra("lightgbm")
        settings = {
            "objective": "regression", "boosting": "rf" if self.forest else "gbdt", "verbose": -1, "num_threads": 1,
            "learning_rate": self.settings["learning_rate"], "num_leaves": 256, "max_depth": 10,
            "min_data_in_leaf": 50, "bagging_fraction": 0.8, "bagging_freq": int(self.forest),
            "feature_fraction": 0.8, "lambda_l1": 0.1, "lambda_l2": 0.2, "min_gain_to_split": 0.01,
            "seed": self.settings["random_state"], "deterministic": True,
        }  # fmt: skip
        rows = library.Dataset(x, y)
        if val is None:
            return library.train(settings, rows, self.iterations)
        held, stop = library.Dataset(*val, reference=rows), library.early_stopping(PATIENCE, verbose=False)
        return library.train(settings, rows, self.iterations, valid_sets=[held], callbacks=[stop])
