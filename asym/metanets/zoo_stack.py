"""A zoo of files or of the store as stacks that readers read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from asym.data.zoos import NetworkZoo
from asym.metanets.stack import Bag, Stack
from asym.models import build
from asym.symmetry.chain import Chain, chain_of
from asym.symmetry.residual import Residual
from asym.symmetry.residual_trace import residual_of


def by_activation(zoo: NetworkZoo) -> NetworkZoo:
    """The zoo with networks of one activation side by side, in the order in which `stacks_of` has them."""
    if "activation" not in zoo.table or zoo.table["activation"].nunique() < 2:
        return zoo
    return zoo.take(np.argsort(zoo.table["activation"].to_numpy(dtype=str), kind="stable"))


def stacks_of(zoo: NetworkZoo, hyper: Sequence[str] = ()) -> list[Stack]:
    """A stack for each activation, in the order of `by_activation(zoo)`.

    Args:
        zoo: of an architecture of `asym.models`; `about` says which.
        hyper: columns that become `Stack.hyper`.

    Raises:
        ValueError: if the zoo does not say its architecture, or its tensors do not fit.
    """
    zoo = by_activation(zoo)
    kinds = zoo.table["activation"].tolist() if "activation" in zoo.table else ["own"] * len(zoo)
    stacks = []
    for kind in dict.fromkeys(kinds):
        index = torch.tensor([i for i, other in enumerate(kinds) if other == kind])
        tensors = {name: tensor[index] for name, tensor in zoo.tensors.items()}
        chain = zoo_chain(zoo, kind)
        unknown = sorted(set(tensors) - set(chain.shapes))
        if unknown:
            raise ValueError(f"zoo: tensor {unknown[0]!r} belongs to no layer of {zoo.about.get('arch')}")
        stacks.append(Stack(chain, tensors, masks=dict(zoo.masks) or None))
    return with_hyper(stacks, zoo.table, hyper)


def with_hyper(stacks: Sequence[Stack], table: pd.DataFrame, columns: Sequence[str]) -> list[Stack]:
    """The stacks with numbers for their networks' hyper-parameters, as they are if no column is named.

    Args:
        stacks: networks.
        table: a row for each of them, in order.
        columns: of the table.
    """
    if not columns:
        return list(stacks)
    parts = hyper_numbers(table, columns).split([len(stack) for stack in stacks])
    return [dataclasses.replace(stack, hyper=numbers) for stack, numbers in zip(stacks, parts)]


FOREIGN = "files"
"""What a zoo's `about` says in place of an architecture where this project has none such: a bag of tensors."""
CHAINS = ("small-cnn",)
"""Architectures that are chains of layers."""
RESIDUAL = ("resnet8", "resnet20", "resnet32", "resnet56", "resnet110")
"""Architectures that are residual networks."""


def zoo_chain(zoo: NetworkZoo, activation: str = "own") -> Chain | Residual | Bag:
    """The chain, or the residual network, that a zoo's networks are; of files of unknown structure a bag of tensors.

    Raises:
        ValueError: as `stacks_of`.
    """
    about = zoo.about
    needed = ("arch",) if about.get("arch") == FOREIGN else ("arch", "input_shape", "classes")
    missing = [key for key in needed if key not in about]
    if missing:
        raise ValueError(f"zoo: does not say its {', '.join(missing)}, which tell how its tensors hang together")
    if about["arch"] == FOREIGN:
        return Bag(tuple((name, tuple(tensor.shape[1:])) for name, tensor in zoo.tensors.items()))
    shape = tuple(about["input_shape"])
    network = build(
        about["arch"],
        input_shape=shape,
        classes=about["classes"],
        width=about.get("width", 1.0),
        depth=about.get("depth"),
        activation=None if activation == "own" else activation,
    )
    if about["arch"] in CHAINS:
        return chain_of(network, torch.zeros(2, *shape))
    if about["arch"] in RESIDUAL:
        return residual_of(network, torch.zeros(2, *shape))
    return Bag(tuple((name, tuple(p.shape)) for name, p in network.named_parameters()))


def hyper_numbers(table: pd.DataFrame, columns: Sequence[str]) -> Tensor:
    """Hyper-parameters as numbers `n h`: positive ones that span more than a factor of 10 by their logarithm, names as
    one column of 0 and 1 for each value; columns that do not vary are left out, unless none does.
    """
    found = []
    for name in columns:
        values = table[name].to_numpy()
        if values.dtype.kind in "fiu":
            numbers = values.astype(np.float64)
            if numbers.min() > 0 and numbers.max() > 10 * numbers.min():
                numbers = np.log(numbers)
            found.append(numbers)
        else:
            found += [(values == value).astype(np.float64) for value in sorted(set(values.tolist()))]
    varying = [column for column in found if column.min() < column.max()]
    return torch.from_numpy(np.stack(varying or found[:1], 1)).float()


def trained_entries(zoo: NetworkZoo) -> dict[str, int]:
    """Numbers of trained entries of the masked tensors, as blind readers want to know them."""
    return {name: int(mask.sum()) for name, mask in zoo.masks.items()}


__all__ = ["by_activation", "hyper_numbers", "stacks_of", "trained_entries", "with_hyper", "zoo_chain"]
