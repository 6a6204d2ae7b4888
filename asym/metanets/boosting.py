"""Readers without gradients: boosted trees on statistics, and on hyper-parameters alone.

    stats-boost   the seven statistics of each tensor (`statistics.py`). A strong classical baseline (Unterthiner et al.
                  2020) that studies of metanetworks leave out
    hyper-boost   the hyper-parameters that the networks were trained with: a control. How well accuracies can be told
                  without looking at any weight is a floor for the rest, not a competitor

Trees are scikit-learn's `HistGradientBoostingRegressor`, or LightGBM's with `library="lightgbm"` (the extra `boost`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from asym.metanets.blind import Blind
from asym.metanets.reader import choose
from asym.metanets.stack import Stack, Stacks, as_list
from asym.metanets.statistics import statistics
from asym.symmetry.chain import Frame

LIBRARIES = ("sklearn", "lightgbm")


class StatBoost(Blind):
    """Boosted trees on statistics.

    Args:
        chains: the architecture.
        library: "sklearn" or "lightgbm".
        iterations: trees for each output.
        learning_rate: shrinkage of each tree.
        leaves: largest number of leaves of a tree.
        seed: of what the library draws.
        options: of `Blind`.

    Raises:
        ValueError: for an unknown library, or one that is not installed.
    """

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
        if library == "lightgbm":
            _lightgbm()
        self.models: list[Any] = []

    def fit(self, stacks: Stacks, targets: Float[Tensor, "n out"]) -> None:
        """Fit one ensemble an output.

        Raises:
            ValueError: if there are not as many targets as networks.
        """
        x = _numbers(torch.cat([self.features(self.prepare(stack)) for stack in as_list(stacks)]))
        y = _numbers(targets)
        if y.shape != (len(x), self.out):
            raise ValueError(f"targets: shape {y.shape}, expected {(len(x), self.out)}")
        self.models = [self._make().fit(x, y[:, k]) for k in range(self.out)]

    def read(self, stack: Stack) -> Tensor:
        """`n out` for one stack.

        Raises:
            ValueError: before `fit`.
        """
        if not self.models:
            raise ValueError(f"{type(self).__name__}: call fit(stacks, targets) before reading")
        x = _numbers(self.features(stack))
        return torch.from_numpy(np.stack([model.predict(x) for model in self.models], 1)).to(stack.like)

    def features(self, stack: Stack) -> Tensor:
        """`n 7·tensors`."""
        return statistics(stack)

    def _make(self) -> Any:
        if self.library == "lightgbm":
            settings = self.settings | {"num_leaves": self.settings["max_leaf_nodes"]}
            del settings["max_leaf_nodes"]
            return _lightgbm().LGBMRegressor(n_estimators=self.iterations, verbose=-1, **settings)
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(max_iter=self.iterations, early_stopping=False, **self.settings)  # type: ignore[arg-type]


class HyperBoost(StatBoost):
    """Boosted trees on `Stack.hyper`; of any architectures."""

    mixes = True

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


def _lightgbm() -> Any:
    try:
        import lightgbm  # type: ignore[import-not-found]
    except ImportError as error:
        raise ValueError(
            "library: 'lightgbm' is not installed; pip install 'asym[boost]', or choose sklearn"
        ) from error
    return lightgbm
