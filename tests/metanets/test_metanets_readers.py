"""All readers by one interface: counts, symmetries, add-ons, training, refusals."""

import pytest
import torch
from chain_nets import chain, random_stack

from asym import names
from asym.metanets import (
    DMC,
    NFN,
    READERS,
    DeepSets,
    FlatMLP,
    Reader,
    Stack,
    StatNN,
    accumulate,
    build,
    count,
    options_of,
    predict,
    take,
)
from asym.models import build as build_network
from asym.populations import Layout
from asym.seeds import torch_generator
from asym.symmetry.chain import Chain, ChainLayer, chain_of
from asym.symmetry.scaling import permute_units, random_factors, random_orders, scale_units

CNN = chain("relu cnn")
LIMIT = 1e-6
PERMUTATIONS = {"stats", "deepsets", "nfn-np", "nfn-hnp", "gmn", "gmn-b", "scale-gmn", "scale-gmn-b"}
SCALINGS = {"scale-gmn", "scale-gmn-b"}
MIXING = {"stats", "dmc", "deepsets", "gmn", "gmn-b", "scale-gmn", "scale-gmn-b"}
GRADIENT = [name for name in READERS if "boost" not in name]


def big_enough(name: str) -> Chain:
    """DMC needs 256 weights."""
    return (
        chain_of(build_network("small-cnn", input_shape=(1, 8, 8), classes=3, width=0.5), torch.zeros(2, 1, 8, 8))
        if name == "dmc"
        else CNN
    )


def errors(model, stack, seed=0):
    """Changes by a permutation and by a scaling, divided by the spread over networks."""
    lead, generator = (len(stack),), torch_generator(seed, "act")
    y = predict(model, stack)
    moved = permute_units(stack.chain, random_orders(stack.chain, lead, generator), stack.tensors)
    scaled = scale_units(stack.chain, random_factors(stack.chain, lead, generator, ratio=64.0), stack.tensors)
    return [float((predict(model, stack.replace(t)) - y).abs().max() / y.std()) for t in (moved, scaled)]


def test_names_are_those_that_flags_accept():
    assert list(names.METANETS) == list(READERS)


def resnet8_like() -> Chain:
    """A chain with as many weights and tensors as a ResNet-8: 78,042 in 29 tensors."""
    layers = [ChainLayer(f"l{i}", f"l{i}.weight", f"l{i}.bias", "linear", 1, 1) for i in range(14)]
    # 28 tensors of one entry, then a layer without a bias with the rest
    return Chain((*layers, ChainLayer("last", "last.weight", None, "linear", 1, 78_042 - 28)))


def test_published_parameter_counts():
    like = resnet8_like()
    counts = {StatNN: 119_297, FlatMLP: 4_994_945, DMC: 105_357, DeepSets: 8_897}
    for kind, published in counts.items():
        assert sum(p.numel() for p in kind(like).parameters()) == published
    masked = FlatMLP(like, trained={"last.weight": 60_634 - 28})
    assert sum(p.numel() for p in masked.parameters()) == 3_880_833
    zoo = chain_of(build_network("small-cnn", input_shape=(1, 28, 28), classes=10), torch.zeros(2, 1, 28, 28))
    assert sum(p.numel() for p in StatNN(zoo, width=1000, norm=False).parameters()) == 1_059_001
    nfn = NFN(zoo)
    assert sum(p.numel() for p in nfn.head.parameters()) == 1_253_001
    assert sum(p.numel() for p in NFN(zoo, group="np").head.parameters()) == 1_253_001
    # Σ over sets S of (inputs × outputs): 50², 19², 19², 20², 9², 9², and one bias an output
    assert sum(p.numel() for p in nfn.layers[0].parameters()) == 16 * 3784 + 16 * 50


@pytest.mark.parametrize("name", READERS)
def test_one_interface(name):
    chain = big_enough(name)
    stack = random_stack(chain, 30, dtype=torch.float32, hyper=torch.randn(30, 2, generator=torch_generator(0, "h")))
    reader = build(name, chain, out=2)
    assert isinstance(reader, Reader)
    targets = torch.rand(30, 2, generator=torch_generator(0, "y"))
    if not reader.by_gradient:
        with pytest.raises(ValueError, match="call fit"):
            reader(stack)
        reader.fit(stack, targets)
    else:
        reader.observe(stack)
        assert accumulate(reader, stack, targets, torch.nn.functional.mse_loss) > 0
        used = [p for p in reader.parameters() if p.grad is not None]
        assert used
        assert all(torch.isfinite(p.grad).all() for p in used)
    y = predict(reader, stack)
    assert y.shape == (30, 2)
    assert y.dtype == torch.float32
    assert float(y.std()) > 0
    assert {"gauge", "augment", "shuffle", "out"} <= options_of(name)


@pytest.mark.parametrize("name", GRADIENT)
def test_symmetries_of_each_reader_before_and_after_training(name):
    chain = big_enough(name)
    stack = random_stack(chain)
    reader = build(name, chain).double()
    reader.observe(stack)
    optimizer = torch.optim.AdamW(reader.parameters(), lr=1e-3)
    targets = torch.rand(6, 1, generator=torch_generator(0, "y"), dtype=torch.float64)
    for _ in range(2):
        permuted, scaled = errors(reader, stack)
        assert (permuted < LIMIT) == (name in PERMUTATIONS)
        assert (scaled < LIMIT) == (name in SCALINGS)
        for _ in range(2):
            optimizer.zero_grad()
            accumulate(reader, stack, targets, torch.nn.functional.mse_loss)
            optimizer.step()


@pytest.mark.parametrize("name", GRADIENT)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_gauge_makes_every_reader_forget_scalings(name, activation):
    chain = big_enough(name).with_activations(activation)
    stack = random_stack(chain)
    reader = build(name, chain, gauge=True).double()
    assert errors(reader, stack)[1] < LIMIT


def test_observed_moments_standardise():
    stack = random_stack(CNN, 50)
    reader = build("flat", CNN).double()
    reader.observe(stack)
    x = reader.standardise(stack.flat())
    torch.testing.assert_close(x.mean(0), torch.zeros_like(x[0]), atol=1e-12, rtol=0)
    torch.testing.assert_close(x.std(0), torch.ones_like(x[0]))


def test_augmentation_draws_in_training_alone_and_from_its_seed():
    stack = random_stack(CNN)
    for options in ({"augment": 4.0}, {"shuffle": True}):
        one, two = (build("flat", CNN, **options).double() for _ in range(2))
        y = one(stack)
        assert torch.equal(y, two(stack))
        assert not torch.equal(y, one(stack))
        assert torch.equal(predict(one, stack), predict(build("flat", CNN).double(), stack))
        assert one.training
    safe = build("scale-gmn", CNN, width=8, augment=64.0, shuffle=True).double()
    torch.testing.assert_close(safe(stack), predict(safe, stack), rtol=1e-9, atol=1e-9)


def test_pieces_give_the_gradient_of_the_whole():
    stack = random_stack(CNN, 7)
    targets = torch.rand(7, 1, generator=torch_generator(0, "y"), dtype=torch.float64)
    found = []
    for piece in (7, 3):
        reader = build("scale-gmn", CNN, width=4).double()
        loss = accumulate(reader, stack, targets, torch.nn.functional.mse_loss, piece=piece)
        found.append([torch.tensor(loss), *(p.grad for p in reader.parameters() if p.grad is not None)])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, check_dtype=False)
    with pytest.raises(ValueError, match="piece: 0"):
        accumulate(reader, stack, targets, torch.nn.functional.mse_loss, piece=0)
    with pytest.raises(ValueError, match="targets: 6 for 7"):
        accumulate(reader, stack, targets[:6], torch.nn.functional.mse_loss)


@pytest.mark.parametrize("name", GRADIENT)
def test_readers_that_mix_do_and_the_rest_refuse(name):
    chains = [
        big_enough("dmc"),
        chain_of(build_network("small-cnn", input_shape=(1, 8, 8), classes=3, width=0.75), torch.zeros(2, 1, 8, 8)),
    ]
    stacks = [random_stack(one, 3, dtype=torch.float32) for one in chains]
    if name in MIXING:
        assert predict(build(name, chains), stacks).shape == (6, 1)
    else:
        with pytest.raises(ValueError, match="reads networks of one architecture, got 2"):
            build(name, chains)
    one = build(name, chains[0])
    with pytest.raises(
        ValueError, match=r"stack: networks of \(1, 12, 12, 12, 3\) units.*was made for \(1, 8, 8, 8, 3\)"
    ):
        one(stacks[1])


def test_taking_networks_from_several_stacks():
    stacks = [random_stack(CNN, 3), random_stack(chain("siren"), 4)]
    assert count(stacks) == 7
    index = torch.tensor([5, 0, 6, 2])
    found, order = take(stacks, index)
    assert [len(stack) for stack in found] == [2, 2]
    assert index[order].tolist() == [0, 2, 5, 6]
    assert torch.equal(found[1].tensors["a.bias"], stacks[1].tensors["a.bias"][[2, 3]])
    with pytest.raises(ValueError, match="places must be in 0 … 6"):
        take(stacks, torch.tensor([7]))


def test_a_populations_matrix_becomes_a_stack():
    network = build_network("small-cnn", input_shape=(1, 8, 8), classes=3, width=0.25)
    layout = Layout.trainable(network)
    rows = torch.randn(4, layout.size, generator=torch_generator(0, "rows"))
    stack = Stack.from_rows(CNN, layout, rows)
    assert torch.equal(stack.flat().sort(1).values, rows.sort(1).values)
    assert torch.equal(stack.rows(slice(1, 3)).flat(), stack.flat()[1:3])
    with pytest.raises(ValueError, match="rows: 5 entries each"):
        Stack.from_rows(CNN, layout, rows[:, :5])


def test_stacks_are_checked():
    stack = random_stack(CNN)
    broken = {name: tensor.clone() for name, tensor in stack.tensors.items()}
    broken["head.bias"][4, 0] = float("inf")
    with pytest.raises(ValueError, match=r"'head.bias' has NaN or infinite entries in 1 of 6 networks.*network 4"):
        Stack(CNN, broken)
    with pytest.raises(ValueError, match="is missing"):
        Stack(CNN, {"head.bias": stack.tensors["head.bias"]})
    with pytest.raises(ValueError, match="hyper: 2 rows for 6 networks"):
        Stack(CNN, stack.tensors, hyper=torch.zeros(2, 1))
    with pytest.raises(ValueError, match="no tensor of the chain"):
        Stack(CNN, stack.tensors, masks={"head.bias": torch.ones(4, dtype=torch.bool)})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("scalegmn", {}, "reader: 'scalegmn'; choose from"),
        ("flat", {"depth": 3}, "flat has no option 'depth'"),
        ("nfn-hnp", {"group": "np"}, "no option 'group'"),
        ("nfn-hnp", {"channels": ()}, "channels"),
        ("flat", {"augment": 0.5}, "augment: 0.5"),
        ("stats-boost", {"library": "catboost"}, "library: 'catboost'"),
        ("dmc", {}, "at least 256 weights"),
    ],
)
def test_bad_input(name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, chain("siren") if name == "dmc" else CNN, **options)


def test_the_seed_decides_start_values_and_nothing_else_is_drawn():
    state = torch.get_rng_state()
    a, b, c = (build("scale-gmn", CNN, seed=seed, width=4) for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    stack = random_stack(CNN, dtype=torch.float32)
    assert torch.equal(a(stack), b(stack))
    assert not torch.equal(a(stack), c(stack))
