"""Zoos as stacks: activations side by side, hyper-parameters as numbers, networks that are no chains."""

import numpy as np
import pandas as pd
import pytest
import torch

from asym.data.zoos import NetworkZoo
from asym.metanets import READERS, Bag, Residual, Stack, build, options_of, predict
from asym.metanets.zoo_stack import FOREIGN, by_activation, hyper_numbers, stacks_of, trained_entries
from asym.models import build as build_network


def zoo(arch="small-cnn", n=4, activations=("relu", "tanh"), **about) -> NetworkZoo:
    about = {"arch": arch, "input_shape": [1, 8, 8], "classes": 3, "width": 0.5} | about
    networks = [build_network(arch, input_shape=(1, 8, 8), classes=3, width=0.5, seed=k) for k in range(n)]
    names = dict(networks[0].named_parameters())
    tensors = {name: torch.stack([net.get_parameter(name).detach() for net in networks]) for name in names}
    table = pd.DataFrame({"run": range(n), "test_acc": np.linspace(0.1, 0.9, n), "lr": np.geomspace(1e-4, 1e-1, n)})
    if activations:
        table["activation"] = [activations[k % len(activations)] for k in range(n)]
    return NetworkZoo(tensors, table, about=about)


def test_activations_are_told_apart_and_stand_side_by_side():
    found = stacks_of(zoo())
    assert [stack.chain.symmetries for stack in found] == [("scale",) * 3, ("sign",) * 3]
    assert [len(stack) for stack in found] == [2, 2]
    ordered = by_activation(zoo())
    assert ordered.table["run"].tolist() == [0, 2, 1, 3]
    assert torch.equal(torch.cat([s.tensors["head.bias"] for s in found]), ordered.tensors["head.bias"])
    mixed = stacks_of(zoo(activations=("relu-tanh",)))
    assert mixed[0].chain.symmetries == ("scale", "sign", "scale")


def test_one_activation_of_the_architectures_own():
    (found,) = stacks_of(zoo(activations=()))
    assert found.chain.symmetries == ("scale",) * 3


def test_hyper_parameters_as_numbers():
    table = pd.DataFrame({"lr": [1e-3, 1e-1], "epochs": [5, 5], "start": ["normal", "orthogonal"], "decay": [0.0, 0.5]})
    numbers = hyper_numbers(table, ("lr", "epochs", "start", "decay"))
    expected = torch.tensor([[np.log(1e-3), 1, 0, 0], [np.log(1e-1), 0, 1, 0.5]], dtype=torch.float32)
    assert torch.allclose(numbers, expected)
    assert hyper_numbers(table, ("epochs",)).shape == (2, 1)


def test_a_residual_network_is_read_by_its_streams_and_keeps_the_order_of_its_tensors():
    residual = zoo("resnet8", activations=())
    (found,) = stacks_of(residual, ("lr",))
    assert isinstance(found.chain, Residual)
    assert list(found.chain.shapes) == list(residual.tensors)
    for name in ("gmn", "scale-gmn"):
        assert predict(build(name, found.chain, width=4, rounds=2, readout="full"), found).shape == (4, 1)
    fixed = predict(build("stats", found.chain, gauge=True), found)
    assert not torch.equal(fixed, predict(build("stats", found.chain), found))


def test_networks_of_files_are_bags_of_tensors():
    residual = zoo("resnet8", activations=())
    residual = NetworkZoo(residual.tensors, residual.table, about={"arch": FOREIGN})
    (found,) = stacks_of(residual, ("lr",))
    assert isinstance(found.chain, Bag)
    assert isinstance(found, Stack)
    assert sum(found.chain.sizes) == sum(t[0].numel() for t in residual.tensors.values())
    for name in READERS:
        options = {"iterations": 2} if "boost" in name else {}
        if name in ("stats", "flat", "deepsets", "dmc"):
            assert predict(build(name, found.chain, **options), found).shape == (4, 1)
            with pytest.raises(ValueError, match="gauge needs to know"):
                build(name, found.chain, gauge=True)
        elif "boost" not in name:
            # The check of annotations, which is on in tests alone, comes first and is a TypeError.
            with pytest.raises((ValueError, TypeError), match=r"hang together|chains"):
                build(name, found.chain)
    trees = build("stats-boost", found.chain, iterations=2)
    trees.fit(found, torch.rand(4, 1))
    assert trees(found).shape == (4, 1)


def test_masked_entries_are_counted():
    masked = zoo()
    mask = torch.zeros(8, 1, 3, 3, dtype=torch.bool)
    mask[0] = True
    masked = NetworkZoo(masked.tensors, masked.table, {"convs.0.weight": mask}, masked.about)
    assert trained_entries(masked) == {"convs.0.weight": 9}
    stacks = stacks_of(masked)
    assert "trained" in options_of("flat")
    reader = build("flat", [stack.chain for stack in stacks], trained=trained_entries(masked))
    assert predict(reader, stacks).shape == (4, 1)
    with pytest.raises(ValueError, match=r"convs\.0\.weight"):
        predict(build("flat", stacks[0].chain), stacks)


def test_zoos_that_cannot_be_read():
    unknown = NetworkZoo(zoo().tensors, zoo().table, about={"arch": "small-cnn"})
    with pytest.raises(ValueError, match="input_shape, classes"):
        stacks_of(unknown)
    with pytest.raises(ValueError, match="shape"):
        stacks_of(zoo(width=1.0))
    more = NetworkZoo({**zoo().tensors, "tail.weight": torch.zeros(4, 2)}, zoo().table, about=zoo().about)
    with pytest.raises(ValueError, match=r"tail\.weight"):
        stacks_of(more)
    with pytest.raises(ValueError, match="arch"):
        stacks_of(NetworkZoo(zoo().tensors, zoo().table, about={**zoo().about, "arch": "cnn"}))
