"""Graph networks: published counts, the layer by hand, masks, gates, symmetry, and what is refused."""

import pytest
import torch
from torch import nn

from asym.data import GraphInput, graph_data
from asym.models import build, count, get_arch
from asym.models.gnn import GraphLayer
from asym.nn import FiGLU, MaskedLayer, Variant
from asym.symmetry import activation_matching, invert, permutation_spec, permute, random_permutations

ARXIV = {"input_shape": (128,), "classes": 40}
SMALL = {"input_shape": (6,), "classes": 3, "width": 0.03125}


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def data():
    n = 40
    edges = torch.randint(0, n, (2, 90), generator=_generator())
    order = torch.randperm(n, generator=_generator())
    return graph_data(
        "toy", features=torch.randn(n, 6, generator=_generator()), edges=edges,
        labels=torch.arange(n) % 3, train=order[:20], val=order[20:30], test=order[30:], class_names="abc",
    )  # fmt: skip


@pytest.mark.parametrize("arch", ["gnn", "gnn-linear"])
def test_published_parameter_counts(arch):
    entry = get_arch(arch)
    assert (entry.input_shape, entry.classes, entry.widths) == ((128,), 40, (1.0,))
    assert count(arch, **ARXIV) == (176_424, 176_424)
    assert count(arch, variant=Variant("w"), **ARXIV) == (171_576, 176_424)


def test_the_layer_by_hand():
    """Two neighbours: each averages to the other, so that both see the sum of the two."""
    layer = GraphLayer(1, 1, "none", "identity")
    with torch.no_grad():
        layer.linear.weight.fill_(3.0)
        layer.linear.bias.fill_(0.5)
    averaging = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    out = layer(torch.tensor([[1.0], [2.0], [5.0]]), averaging)
    assert out.tolist() == [[9.5], [9.5], [15.5]]  # the third node has no neighbour, and its own feature counts


def test_the_order_of_parts_and_the_nodes_that_answer(data):
    network = build("gnn", **SMALL)
    x, averaging = data.features, data.averaging.to_dense()
    for layer in network.layers:
        h = layer.linear(averaging @ x + x)
        h = (h - h.mean(0)) / (h.var(0, correction=0) + layer.norm.eps).sqrt()  # BatchNorm over all nodes
        x = nn.functional.gelu(h)
    logits = network(data.inputs(data.test))
    torch.testing.assert_close(logits, network.head(x)[data.test.nodes], rtol=1e-4, atol=1e-5)
    everyone = network(GraphInput(data.features, averaging))
    torch.testing.assert_close(everyone[data.test.nodes], logits, rtol=1e-4, atol=1e-5)


def test_layers_of_one_shape_have_masks_and_constants_of_their_own():
    network = build("gnn", variant=Variant("w"), **ARXIV)
    masked = {name: m for name, m in network.named_modules() if isinstance(m, MaskedLayer)}
    assert {(m.n_fix, m.kappa) for m in masked.values()} == {(6, 0.5)}
    assert len(masked) == 4
    a, b = (masked[f"layers.{i}.linear"] for i in (1, 2))
    assert not torch.equal(a.mask, b.mask)
    assert not torch.equal(a.fixed, b.fixed)
    assert len(a.mask.unique(dim=0)) == 256
    digits = build("gnn", variant=Variant("w"), input_shape=(64,), classes=10)
    assert [m.n_fix for m in digits.modules() if isinstance(m, MaskedLayer)] == [3, 6, 6, 6]


@pytest.mark.parametrize("variant", ["sigma", "w-sigma"])
def test_the_published_gate_is_nearly_half_of_its_input(variant):
    network = build("gnn", variant=Variant(variant), **ARXIV)
    gates = [m for m in network.modules() if isinstance(m, FiGLU)]
    assert [gate.scale for gate in gates] == [pytest.approx(0.01 / 16)] * 3
    assert not torch.equal(gates[0].fixed, gates[1].fixed)
    x = torch.randn(500, 256, generator=_generator())
    ratio = gates[0](x) / x
    assert (ratio - 0.5).std() == pytest.approx(0.0025, rel=0.05)  # σ(z) ≈ ½ + z/4 with z of deviation .01
    gelu = nn.functional.gelu(x) / x
    assert (gelu - 0.5).std() > 0.2  # the activation that it stands in for is not


def test_without_activation_the_network_is_affine(data):
    """f(2x) − f(x) = f(x) − f(0) in evaluation mode; with GELU it is not."""
    for arch, affine in (("gnn-linear", True), ("gnn", False)):
        network = build(arch, **SMALL).eval()
        with torch.no_grad():
            zero, one, two = (network(GraphInput(data.features * k, data.averaging)) for k in (0.0, 1.0, 2.0))
        assert torch.allclose(two - one, one - zero, rtol=1e-3, atol=1e-4) == affine
    with pytest.raises(ValueError, match="has no activation module"):
        build("gnn-linear", variant=Variant("sigma"), **SMALL)


@pytest.mark.parametrize("arch", ["gnn", "gnn-linear"])
def test_each_layer_can_be_permuted_and_nothing_else(arch, data):
    network = build(arch, **SMALL).eval()
    spec = permutation_spec(network, data.example())
    assert [group.size for group in spec.groups.values()] == [8, 8, 8]
    moved = {axis for group in spec.groups.values() for axis in group.axes}
    assert ("layers.0.linear.weight", 1) not in moved
    assert ("head.weight", 0) not in moved
    assert spec == permutation_spec(network, data.inputs(data.train))  # the small stand-in says what the graph says
    assert not permutation_spec(build(arch, variant=Variant("w"), **SMALL), data.example()).groups


def test_activation_matching_finds_a_permuted_network_on_the_sparse_graph(data):
    network = build("gnn", seed=1, **SMALL).eval()
    spec = permutation_spec(network, data.example())
    perms = random_permutations(spec, _generator(3))
    shuffled = permute(spec, perms, network.state_dict())
    match = activation_matching(network, spec, network.state_dict(), shuffled, [data.inputs(data.train)])
    back = invert(spec, perms)
    assert all(torch.equal(match.perms[name], back[name]) for name in perms)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_shape": (1, 8, 8)}, r"input_shape: \(1, 8, 8\) for gnn; must be \(features\), each at least 1"),
        ({"arch": "mlp", "input_shape": (64,)}, r"input_shape: \(64,\) for mlp; must be \(channels, height, width\)"),
        ({"input_shape": (0,)}, "input_shape"),
        ({"norm": "group"}, "norm: 'group' for gnn; choose from batch, layer, none"),
        ({"arch": "gnn-linear", "activation": "gelu"}, "activation: 'gelu' for gnn-linear; choose from identity"),
        ({"width": 0.001}, "width: got 0.001"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        build(**({"arch": "gnn", **SMALL} | options))
