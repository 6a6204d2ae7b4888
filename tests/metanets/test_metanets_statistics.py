"""Statistics of tensors: by hand, and of networks of several architectures side by side."""

import pytest
import torch

from asym.metanets import Bag, Stack, StatNN, build, predict
from asym.metanets.statistics import PER_TENSOR, statistics, tensor_names
from asym.seeds import torch_generator
from asym.symmetry.chain import Chain, ChainLayer

SHALLOW = Bag((("a", (2, 2)), ("head", (3,))))
DEEP = Bag((("a", (2, 3)), ("b", (3, 3)), ("head", (3,))))


def stack(bag, n, seed=0):
    generator = torch_generator(seed, "statistics")
    return Stack(bag, {name: torch.randn(n, *shape, generator=generator) for name, shape in bag.shapes.items()})


def test_statistics_by_hand():
    chain = Chain((ChainLayer("a", "w", "b", "linear", 2, 2),))
    stack = Stack(chain, {"w": torch.tensor([[[1.0, 2.0], [4.0, 9.0]]]), "b": torch.tensor([[3.0, 3.0]])})
    assert statistics(stack)[0].tolist() == pytest.approx([4, 38 / 3, 1, 9, 1.75, 3, 5.25, 3, 0, 3, 3, 3, 3, 3])
    masks = {"w": torch.tensor([[True, False], [False, False]]), "b": torch.zeros(2, dtype=torch.bool)}
    only = Stack(chain, stack.tensors, masks=masks)
    assert statistics(only)[0].tolist() == [1, 0, 1, 1, 1, 1, 1]
    assert only.flat().tolist() == [[1.0]]
    assert (
        sum(p.numel() for p in StatNN(chain, trained={"w": 1, "b": 0}, width=4).parameters()) == 7 * 4 + 4 + 8 + 28 + 5
    )
    with pytest.raises(ValueError, match="'w' has 4 trained entries, the reader was made for 1"):
        StatNN(chain, trained={"w": 1, "b": 0})(stack)
    with pytest.raises(ValueError, match="'c' is no tensor"):
        StatNN(chain, trained={"c": 1})


def test_tensors_stand_by_name_and_what_a_network_lacks_is_missing():
    names = tensor_names((SHALLOW, DEEP))
    assert names == ["a", "head", "b"]
    shallow, deep = stack(SHALLOW, 2), stack(DEEP, 3)
    found = statistics(shallow, names)
    assert torch.equal(found[:, : 2 * PER_TENSOR], statistics(shallow))
    assert found[:, 2 * PER_TENSOR :].isnan().all()
    a, b, head = statistics(deep).split(PER_TENSOR, 1)
    assert torch.equal(statistics(deep, names), torch.cat([a, head, b], 1))
    masked = Stack(SHALLOW, shallow.tensors, masks={"a": torch.zeros(2, 2, dtype=torch.bool)})
    assert statistics(masked, names)[:, :PER_TENSOR].isnan().all()


def test_missing_tensors_have_the_mean_of_those_that_have_them():
    reader = build("stats", [SHALLOW, DEEP], width=4)
    parts = [stack(SHALLOW, 5), stack(DEEP, 6)]
    reader.observe(parts)
    own = statistics(parts[1], reader.names)[:, 2 * PER_TENSOR :]
    assert torch.allclose(reader.standardise.mean[2 * PER_TENSOR :], own.mean(0), atol=1e-6)
    at_mean = torch.zeros(1, 3 * PER_TENSOR)
    first = reader.layers[0]
    with torch.no_grad():
        first.weight[:, : 2 * PER_TENSOR] = 0  # reads the tensor that shallow networks lack, and nothing else
    found = predict(reader, parts)
    assert torch.allclose(found[:5], reader.layers(at_mean).expand(5, 1), atol=1e-6)
    assert found[5:].std() > 0


def test_trees_read_several_architectures():
    parts = [stack(SHALLOW, 60), stack(DEEP, 60, seed=1)]
    truth = torch.cat([part.tensors["head"].mean(1) for part in parts])[:, None]
    reader = build("stats-boost", [SHALLOW, DEEP], iterations=60)
    reader.fit(parts, truth)
    found = predict(reader, parts)
    assert torch.corrcoef(torch.cat([found, truth], 1).t())[0, 1] > 0.9
    with pytest.raises(ValueError, match="reads networks of one architecture, got 2"):
        build("flat", [SHALLOW, DEEP])


def test_trees_can_do_without_a_tensor_that_no_training_network_has():
    shallow, deep = stack(SHALLOW, 60), stack(DEEP, 4)
    reader = build("stats-boost", [SHALLOW, DEEP], iterations=5)
    reader.fit(shallow, shallow.tensors["head"].mean(1, keepdim=True))
    assert torch.isfinite(predict(reader, [shallow, deep])).all()
