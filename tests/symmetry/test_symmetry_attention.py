"""The group of transformer blocks, on the transformer's own function in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asym.models import build
from asym.models.transformer import Transformer
from asym.symmetry.attention import FACTORS, RESIDUAL_FACTORS, act, random_element
from asym.symmetry.attention_more import EXTRA, NAMES, RESIDUAL_NAMES, rotation, sizes_of, transform
from asym.symmetry.encoder import SCHEMES, Sizes, encoder_of, join, split

CASES = [Sizes(6, 2, 3, 3, 8), Sizes(5, 3, 2, 4, 7), Sizes(4, 1, 4, 2, 3), Sizes(8, 4, 2, 2, 5)]


def network(size, *, residual=False, causal=False, depth=2, eps=0.0, seed=0):
    """A transformer of any sizes, float64, large weights, norms without ε, so that equalities are exact."""
    torch.manual_seed(seed)
    net = Transformer(
        (1, 8, 8), 3, blocks=depth, heads=size.heads, dim=size.dim, hidden=size.hidden, residual=residual,
        affine=False, activation="relu", head_layers=2, key_dim=size.key, value_dim=size.value, causal=causal,
    ).double()  # fmt: skip
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.7)
    for module in net.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = eps
    return net.requires_grad_(False)


def outputs(net, encoder, blocks, x):
    return torch.func.functional_call(net, join(encoder, blocks), (x,))


def setting(size, **options):
    net = network(size, **options)
    encoder = encoder_of(dict(net.named_parameters()), size.heads)
    x = torch.randn(4, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return net, encoder, split(encoder, net.state_dict()), x


def moved(name, size, *, times=10, **options):
    """Largest change of the output, in units of its size, over some random elements."""
    net, encoder, blocks, x = setting(size, **options)
    before, generator = net(x), torch.Generator().manual_seed(2)
    after = [outputs(net, encoder, transform(name, blocks, generator), x) for _ in range(times)]
    return max(float((y - before).abs().max() / before.abs().max()) for y in after)


@pytest.mark.parametrize("size", CASES, ids=str)
def test_split_and_join_are_inverse_and_mean_what_they_say(size):
    net, encoder, blocks, _ = setting(size)
    assert encoder.size == size == sizes_of(blocks[0])
    state = net.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in join(encoder, blocks).items())
    block, y = blocks[0], torch.randn(2, 5, size.dim, dtype=torch.float64)
    assert {s: tuple(t.shape) for s, t in block.items()} == size.shapes
    scores = torch.einsum("ntp,hpc,hqc,nuq->nhtu", y, block["Q"], block["K"], y) / math.sqrt(size.key)
    z = torch.einsum("nhtu,nup,hpc,hcq->ntq", scores.softmax(-1), y, block["V"], block["O"])
    torch.testing.assert_close(net.blocks[0].attention(y), z)
    out = (y @ block["A"] + block["a"]).relu() @ block["B"] + block["b"]
    torch.testing.assert_close(net.blocks[0].down(net.blocks[0].up(y).relu()), out)


@pytest.mark.parametrize("name", NAMES)
def test_each_symmetry_keeps_the_function(name):
    for size in CASES:
        assert moved(name, size) < 1e-12
    assert moved(name, CASES[0], causal=True) < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_residual_connections_leave_some_and_forbid_the_others(name):
    change = moved(name, CASES[0], residual=True)
    assert (change < 1e-12) if name in RESIDUAL_NAMES else (change > 1e-3)


def test_scale_symmetries_of_norms_hold_up_to_epsilon():
    for name in ("norm-scale", "next-scale"):
        assert 1e-9 < moved(name, CASES[0], eps=1e-5) < 1e-2
    assert moved("relu-scale", CASES[0], eps=1e-5) < 1e-12


@pytest.mark.parametrize("factor", FACTORS)
def test_each_factor_moves_only_what_it_should(factor):
    _, _, blocks, _ = setting(CASES[1])
    image = transform(factor, blocks, torch.Generator().manual_seed(0))[0]
    changed = {symbol for symbol in image if not torch.allclose(image[symbol], blocks[0][symbol])}
    expected = {"heads": "QKVO", "query-key": "QK", "value-out": "VO", "out": "OA", "hidden": "AaB"}
    assert changed == set(expected[factor])


def test_wrong_actions_fail():
    net, encoder, blocks, x = setting(CASES[0])
    before = net(x)

    def change(**tensors):
        return float((outputs(net, encoder, [{**blocks[0], **tensors}, blocks[1]], x) - before).abs().max())

    block, s = blocks[0], torch.linspace(0.5, 2, 8, dtype=torch.float64)
    balanced = {"A": block["A"] * s, "a": block["a"] * s, "B": block["B"] / s[:, None]}
    assert change(**balanced) < 1e-12
    assert change(**balanced | {"B": block["B"]}) > 1e-3  # unbalanced scaling
    assert change(**balanced | {"a": block["a"]}) > 1e-3
    minus = -s
    assert change(A=block["A"] * minus, a=block["a"] * minus, B=block["B"] / minus[:, None]) > 1e-3  # not positive
    element = random_element(CASES[0], (), torch.Generator().manual_seed(0), factors=("query-key",))
    wrong = {"K": block["K"] @ element.query_key}  # M in place of its inverse
    assert change(**act(element, block)) < 1e-12
    assert change(**{**act(element, block), **wrong}) > 1e-3
    perm = torch.tensor([1, 0])
    assert change(**{k: block[k][perm] for k in "QKVO"}) < 1e-12
    assert change(**{k: block[k][perm] for k in "QK"}) > 1e-3  # queries and keys without their values and outputs


def test_an_element_for_each_network_and_all_its_channels():
    size, generator = CASES[1], torch.Generator().manual_seed(0)
    element = random_element(size, (3,), generator)
    many = {s: torch.randn(3, 2, *shape, dtype=torch.float64) for s, shape in size.shapes.items()}
    image = act(element, many)
    for n in range(3):
        alone = type(element)(*(value[n] for value in vars(element).values()))
        for c in range(2):
            single = act(alone, {symbol: tensor[n, c] for symbol, tensor in many.items()})
            for symbol, tensor in single.items():
                torch.testing.assert_close(image[symbol][n, c], tensor)


def test_hand_worked():
    size = Sizes(2, 2, 1, 1, 2)
    element = random_element(size, (), torch.Generator(), factors=())
    element = type(element)(
        torch.tensor([1, 0]), torch.tensor([[[2.0]], [[4.0]]]), torch.tensor([[[5.0]], [[10.0]]]),
        torch.tensor([1, 0]), torch.tensor([1, 0]),
    )  # fmt: skip
    block = {s: torch.arange(1.0, 1 + math.prod(shape)).reshape(shape) for s, shape in size.shapes.items()}
    image = act(element, block)
    assert image["Q"].flatten().tolist() == [12, 16, 2, 4]  # heads swapped, then each times its own M
    assert image["K"].flatten().tolist() == [0.75, 1, 0.5, 1]
    assert image["V"].flatten().tolist() == [30, 40, 5, 10]
    assert torch.allclose(image["O"].flatten(), torch.tensor([0.4, 0.3, 0.4, 0.2]))
    assert image["A"].tolist() == [[4, 3], [2, 1]]
    assert (image["a"].tolist(), image["B"].tolist(), image["b"].tolist()) == ([2, 1], [[3, 4], [1, 2]], [1, 2])


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.floats(1, 100), st.integers(0, 2**31))
def test_well_conditioned_draws_and_published_ones(width, condition, seed):
    size, generator = Sizes(3, 2, width, width, 2), torch.Generator().manual_seed(seed)
    assert random_element(size, (4,), generator, condition=condition).condition <= condition * 1.001
    element = random_element(size, (4,), generator, spread=10.0)
    assert element.query_key.abs().max() <= 10
    assert element.query_key.std() > 2 if width > 3 else True
    r = rotation(width, (2,), generator)
    torch.testing.assert_close(r @ r.mT, torch.eye(width, dtype=torch.float64).expand(2, width, width))
    torch.testing.assert_close(r.sum(-1), torch.ones(2, width, dtype=torch.float64))


def test_published_group_and_the_rest_explain_all_that_a_block_allows():
    """h (d_k² + d_v²) + 3 D_A + (D − 1)(D − 2)/2 + 3 + h (2 d_k + 2 d_v) directions, where h d_v ≥ D − 1."""
    size = Sizes(5, 2, 2, 2, 6)
    net = network(size, depth=1)
    names = [name for name, _ in net.named_parameters() if name.startswith("blocks")]
    start = {name: p.detach() for name, p in net.named_parameters()}

    x = torch.randn(12, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def f(parameters):
        inner = {name.removeprefix("blocks.0."): p for name, p in parameters.items()}
        return net.norm(torch.func.functional_call(net.blocks[0], inner, (x,))).flatten()

    jacobian = torch.func.jacrev(f)({name: start[name] for name in names})
    matrix = torch.cat([jacobian[name].flatten(1) for name in names], 1)
    singular = torch.linalg.svdvals(matrix)
    null = matrix.shape[1] - int((singular > 1e-9 * singular[0]).sum())
    assert null == 2 * (4 + 4) + 3 * 6 + 4 * 3 // 2 + 3 + 2 * (4 + 4) == 59
    assert 2 * (4 + 4) == 16  # what the published group explains of them


def test_published_names_of_tensors():
    ours = build("transformer-plain", input_shape=(1, 8, 8), classes=3, width=0.25).state_dict()
    names = dict(zip(SCHEMES["blocks"].values(), SCHEMES["encoder"].values()))
    published = {}
    for name, tensor in ours.items():
        kind, _, rest = name.partition(".")
        if kind == "blocks":
            number, _, inner = rest.partition(".")
            published[f"encoder.{number}.{names[inner]}"] = tensor
        else:
            published[{"embed": "embedding.conv1", "head": "classifier"}[kind] + f".{rest}"] = tensor
    a, b = encoder_of(ours, 2), encoder_of(published, 2)
    assert a.size == b.size
    for one, other in zip(split(a, ours), split(b, published)):
        assert all(torch.equal(one[s], other[s]) for s in one)
    assert [b.count(part) for part in b.parts] == [a.count(part) for part in a.parts]
    assert sum(a.count(part) for part in a.parts) == sum(t.numel() for t in ours.values())


def test_bad_input_is_named():
    state = dict(build("transformer-plain", input_shape=(1, 8, 8), classes=3, width=0.25).named_parameters())
    with pytest.raises(ValueError, match=r"heads: 3 do not divide the 8 rows of 'blocks\.0\.attention"):
        encoder_of(state, 3)
    with pytest.raises(ValueError, match=r"'blocks\.1\.up\.bias' is missing"):
        encoder_of({k: v for k, v in state.items() if k != "blocks.1.up.bias"}, 2)
    with pytest.raises(ValueError, match=r"'blocks.1.up.bias' has shape \(3,\), expected \(16,\)"):
        encoder_of({**state, "blocks.1.up.bias": torch.zeros(3)}, 2)
    with pytest.raises(ValueError, match="no blocks found"):
        encoder_of({"conv.weight": torch.zeros(2)}, 2)
    with pytest.raises(ValueError, match="without biases in its attention"):
        encoder_of({**state, "blocks.0.attention.query.bias": torch.zeros(8)}, 2)
    encoder = encoder_of(state, 2)
    with pytest.raises(ValueError, match="got nothing"):
        split(encoder, {})
    with pytest.raises(ValueError, match="blocks: 1, the encoder has 2"):
        join(encoder, split(encoder, state)[:1])
    generator = torch.Generator()
    for options, message in (
        ({"factors": ("scale",)}, "factors: 'scale'; choose from heads"),
        ({"condition": 0.5}, "condition: 0.5"),
        ({"spread": 0.0}, "spread: 0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            random_element(encoder.size, (), generator, **options)
    with pytest.raises(ValueError, match="name: 'nothing'; choose from heads"):
        transform("nothing", split(encoder, state), generator)
    with pytest.raises(ValueError, match="block: Q has shape"):
        act(random_element(Sizes(3, 2, 4, 4, 16), (), generator), split(encoder, state)[0])
    with pytest.raises(ValueError, match="heads: 3 do not divide dim 8"):
        Transformer(
            (1, 8, 8), 3, blocks=1, heads=3, dim=8, hidden=8, residual=False, affine=False, activation="relu",
            head_layers=2,
        )  # fmt: skip


def test_names_are_all_there():
    assert set(RESIDUAL_FACTORS) < set(FACTORS)
    assert set(RESIDUAL_NAMES) < set(NAMES) == {*FACTORS, *EXTRA}
