"""Readers without gradients: boosted trees on statistics, and on hyper-parameters alone.

    stats-boost   the seven statistics of each tensor (`statistics.py`). A strong classical baseline (Unterthiner et al.
                  2020) that studies of metanetworks leave out
    hyper-boost   the hyper-parameters that the networks were trained with: a control. How well accuracies can be told
                  without looking at any weight is a floor for the rest, not a competitor

Trees are scikit-learn's `HistGradientBoostingRegressor`; with `library="lightgbm"` or `"xgboost"` (the extra `boost`)
those of the libraries, grown leaf by leaf too and in one thread: `stats-boost-lightgbm`, `stats-boost-xgboost`. Both
read networks of several architectures; statistics of tensors that a network lacks are missing values to the trees.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from asym.metanets.blind import Blind
from asym.metanets.reader import choose
from asym.metanets.stack import Stack, Stacks, as_list
from asym.metanets.statistics import statistics, tensor_names
from asym.symmetry.chain import Frame

LIBRARIES = ("sklearn", "lightgbm", "xgboost")


class StatBoost(Blind):
    """Boosted trees on statistics.

    Args:
        chains: the architecture.
        library: "sklearn", "lightgbm" or "xgboost".
        iterations: trees for each output.
        learning_rate: shrinkage of each tree.
        leaves: largest number of leaves of a tree.
        seed: of what the library draws.
        options: of `Blind`.

    Raises:
        ValueError: for an unknown library, or one that is not installed.
    """

    mixes = True
    counts = True
    by_gradient = False

    def __init__(
        self,
        chains: Frame | Sequence[Frame],
        *,
        library: str = "sklearn",
        iterations: int = 300,
        learning_rate: float = 0.05,
        leaves: int = 31,
        seed: int = 0,
        **options,
    ) -> None:
        super().__init__(chains, seed=seed, **options)
        choose("library", library, LIBRARIES)
        self.settings = {"learning_rate": learning_rate, "max_leaf_nodes": leaves, "random_state": seed}
        self.library, self.iterations = library, iterations
        if library != "sklearn":
            extra(library)
        self.names = tensor_names(self.chains) if len(self.shapes) > 1 else None
        self.models: list[Any] = []
        self.known = np.ones(1, dtype=bool)
        """Features that some training network had."""

    def fit(
        self,
        stacks: Stacks,
        targets: Float[Tensor, "n out"],
        *,
        val: tuple[Stacks, Float[Tensor, "v out"]] | None = None,
    ) -> None:
        """Fit one ensemble an output.

        Args:
            stacks: training networks.
            targets: one row for each of them.
            val: validation networks and their targets, for readers that choose the number of trees by them.

        Raises:
            ValueError: if there are not as many targets as networks.
        """
        x, y = self._table(stacks, targets)
        self.known = ~np.isnan(x).all(0)
        x = np.where(self.known, x, 0.0)  # trees cannot bin a column without values
        held = None if val is None else self._table(*val)
        held = None if held is None else (np.where(self.known, held[0], 0.0), held[1])
        self.models = [
            self._fitted(x, y[:, k], None if held is None else (held[0], held[1][:, k])) for k in range(self.out)
        ]

    def _table(self, stacks: Stacks, targets: Tensor) -> tuple[np.ndarray, np.ndarray]:
        x = _numbers(torch.cat([self.features(self.prepare(stack)) for stack in as_list(stacks)]))
        y = _numbers(targets)
        if y.shape != (len(x), self.out):
            raise ValueError(f"targets: shape {y.shape}, expected {(len(x), self.out)}")
        return x, y

    def _fitted(self, x: np.ndarray, y: np.ndarray, val: tuple[np.ndarray, np.ndarray] | None) -> Any:
        """The ensemble of one output; validation networks choose nothing here."""
        return self._make().fit(x, y)

    def read(self, stack: Stack) -> Tensor:
        """`n out` for one stack.

        Raises:
            ValueError: before `fit`.
        """
        if not self.models:
            raise ValueError(f"{type(self).__name__}: call fit(stacks, targets) before reading")
        x = np.where(self.known, _numbers(self.features(stack)), 0.0)
        return torch.from_numpy(np.stack([model.predict(x) for model in self.models], 1)).to(stack.like)

    def features(self, stack: Stack) -> Tensor:
        """`n 7·tensors`, NaN for tensors that other architectures have."""
        return statistics(stack, self.names)

    def _make(self) -> Any:
        if self.library != "sklearn":
            rate, leaves, seed = (self.settings[key] for key in ("learning_rate", "max_leaf_nodes", "random_state"))
            common = {"n_estimators": self.iterations, "learning_rate": rate, "random_state": seed, "n_jobs": 1}
            library = extra(self.library)
            if self.library == "lightgbm":
                return library.LGBMRegressor(num_leaves=leaves, deterministic=True, verbose=-1, **common)
            return library.XGBRegressor(
                max_leaves=leaves, max_depth=0, grow_policy="lossguide", tree_method="hist", **common
            )
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(max_iter=self.iterations, early_stopping=False, **self.settings)  # type: ignore[arg-type]


class HyperBoost(StatBoost):
    """Boosted trees on `Stack.hyper`; of any architectures."""

    def features(self, stack: Stack) -> Tensor:
        """`n h`.

        Raises:
            ValueError: if the stack has no hyper-parameters.
        """
        if stack.hyper is None:
            raise ValueError("stack: has no hyper-parameters, which are all that this reader reads")
        return stack.hyper

    def prepare(self, stack: Stack) -> Stack:
        """As it is: weights are not read."""
        return stack


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().astype(np.float64)


def extra(library: str) -> Any:
    """LightGBM or XGBoost.

    Raises:
        ValueError: if it is not installed.
    """
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise ValueError(f"{library} is not installed; pip install 'asym[boost]', or choose scikit-learn's") from error
