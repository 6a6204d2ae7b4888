"""ScaleGMN keeps its laws, with dead units and zero kernels, before and after training; what breaks one is seen."""

import pytest
import torch
from chain_nets import chain, nets, random_stack, run, train

from asym.metanets import ScaleGMN, Stack, matched_width
from asym.metanets.scale_gmn.dense import Round
from asym.seeds import torch_generator
from asym.symmetry.scaling import permute_units, random_factors, random_orders, scale_units

CHAINS = {name: chain(name) for name in nets()}
LIMIT = 1e-6


def make(name, width=8, seed=0, **options):
    torch.manual_seed(seed)
    return ScaleGMN(CHAINS[name], width=width, **options).double().eval()


def act(stack, *, ratio=64.0, permute=True, scale=True, seed=3):
    """The stack after random factors and permutations, and those."""
    chain, lead, generator = stack.chain, (len(stack),), torch_generator(seed, "act")
    factors = random_factors(chain, lead, generator, ratio=ratio if scale else 1.0, like=stack.like)
    if not scale:
        factors = [torch.ones_like(q) for q in factors]
    orders = random_orders(chain, lead, generator)
    tensors = scale_units(chain, factors, stack.tensors)
    return stack.replace(permute_units(chain, orders, tensors) if permute else tensors)


def error(model, stack, **options):
    """Largest change of an output by the action, divided by the spread of outputs over networks."""
    with torch.no_grad():
        before, after = model(stack), model(act(stack, **options))
    spread = before.std(0)
    assert (spread > 1e-8 * before.abs().max()).all()
    return float(((after - before).abs().max(0).values / spread).max())


@pytest.mark.parametrize("name", CHAINS)
def test_the_action_keeps_the_input_networks_function(name):
    network, shape = nets()[name]
    stack = random_stack(CHAINS[name])
    moved = act(stack)
    x = torch.randn(3, *shape, generator=torch_generator(0, "x"), dtype=torch.float64)
    for i in range(len(stack)):
        a, b = (run(network.double(), dict(s.tensors), i, x) for s in (stack, moved))
        assert float((a - b).abs().max() / a.abs().max()) < 1e-12


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_invariance_before_and_after_training(name, direction):
    model, stack = make(name, direction=direction), random_stack(CHAINS[name])
    assert error(model, stack) < LIMIT
    train(model, stack)
    assert error(model, stack, permute=False) < LIMIT
    assert error(model, stack, scale=False) < LIMIT
    assert error(model, stack, ratio=2.0) < LIMIT
    assert error(model, stack) < LIMIT


@pytest.mark.parametrize(
    "options",
    [
        {"readout": "full", "receiver": True},
        {"readout": "mean", "mean": True, "projection": "shared"},
        {"readout": "full", "edge_updates": False, "skip": False, "norm": False},
        {"readout": "full", "sign": "canonicalise"},
        {"direction": "bidirectional", "backward": "pinv", "readout": "full"},
        {"direction": "bidirectional", "backward": "reciprocal"},
        {"direction": "bidirectional", "squash": True, "receiver": True, "readout": "mean"},
        {"rounds": 2, "readout": "full", "out": 3},
    ],
)
@pytest.mark.parametrize("name", ["relu cnn", "mixed"])
def test_every_option_keeps_the_law(options, name):
    model, stack = make(name, **options), random_stack(CHAINS[name])
    assert model(stack).shape == (6, options.get("out", 1))
    assert error(model, stack) < LIMIT


def test_must_fail_the_permutation_only_network_under_scaling():
    for name in ("relu cnn", "tanh cnn"):
        model, stack = make(name, law="permutation"), random_stack(CHAINS[name])
        assert error(model, stack, scale=False) < LIMIT
        assert error(model, stack, permute=False) > 1e-2


def test_backward_messages_and_gradients_stay_finite_where_weight_decay_left_next_to_nothing():
    """Weights down to 1e-45: a quotient of what is read and a unit's own state has no bound, and its gradient none."""
    chain = CHAINS["relu cnn"]
    generator = torch_generator(0, "decayed")
    tensors = {}
    for name, tensor in random_stack(chain, 24, dtype=torch.float32).tensors.items():
        small = 10.0 ** -(45 * torch.rand(tensor.shape, generator=generator))
        decayed = tensor * small * (1e-3 if name.endswith("weight") else 1e-8)
        tensors[name] = tensor if name.startswith("head") else decayed
    model = make("relu cnn", direction="bidirectional").float().train()
    for k in range(24):
        out = model(Stack(chain, {name: tensor[k : k + 1] for name, tensor in tensors.items()}))
        assert torch.isfinite(out).all()
        model.zero_grad()
        out.sum().backward()
        grads = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        assert torch.isfinite(grads).all()
        assert float(grads.abs().max()) < 1e3


def test_must_fail_the_released_backward_messages_for_positive_scaling():
    model, stack = make("relu cnn", direction="bidirectional", backward="shipped"), random_stack(CHAINS["relu cnn"])
    assert error(model, stack, scale=False) < LIMIT
    assert error(model, stack, permute=False) > 1e-2
    signs = make("tanh cnn", direction="bidirectional", backward="shipped")
    assert error(signs, random_stack(CHAINS["tanh cnn"])) < LIMIT


@torch.no_grad()
def test_must_fail_the_wrong_group():
    relu = CHAINS["relu cnn"]
    model = ScaleGMN(relu.with_activations("tanh"), width=8).double().eval()
    stack = random_stack(relu.with_activations("tanh"))
    scaled = scale_units(relu, random_factors(relu, (6,), torch_generator(0, "q")), stack.tensors)
    y = model(stack)
    assert float((model(stack.replace(scaled)) - y).abs().max() / y.std()) > 1e-2
    reads_scale = make("relu cnn")
    stack = random_stack(relu)
    flips = [torch.where(q > 1, 1.0, -1.0) for q in random_factors(relu, (6,), torch_generator(0, "q"))]
    flipped = scale_units(relu.with_activations("tanh"), [q.double() for q in flips], stack.tensors)
    y = reads_scale(stack)
    assert float((reads_scale(stack.replace(flipped)) - y).abs().max() / y.std()) > 1e-2


def test_must_fail_a_position_that_is_added_to_hidden_units():
    model, stack = make("relu cnn"), random_stack(CHAINS["relu cnn"])
    model.encoder.additive = True
    assert error(model, stack, permute=False) > 1e-2


@torch.no_grad()
def test_units_may_not_move_where_they_are_inputs_or_outputs():
    model, stack = make("relu cnn", readout="full"), random_stack(CHAINS["relu cnn"])
    head, bias = stack.chain.layers[-1].weight, stack.chain.layers[-1].bias
    turned = stack.replace(dict(stack.tensors) | {k: stack.tensors[k].flip(1) for k in (head, bias)})
    y = model(stack)
    assert float((model(turned) - y).abs().max() / y.std()) > 1e-3


@pytest.mark.parametrize("name", ["relu cnn", "mixed", "siren"])
@torch.no_grad()
def test_states_scale_with_their_units(name):
    model, stack = make(name, readout="full"), random_stack(CHAINS[name])
    lead, chain = (len(stack),), stack.chain
    factors = random_factors(chain, lead, torch_generator(5, "q"), ratio=16.0)
    before, after = (model.states(s)[0] for s in (stack, stack.replace(scale_units(chain, factors, stack.tensors))))
    for h, g, q in zip(before[1:-1], after[1:-1], factors):
        expected = h * q.t()[..., None]
        torch.testing.assert_close(g, expected, rtol=1e-9, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("name", ["relu cnn", "mixed", "siren"])
@torch.no_grad()
def test_new_weights_follow_the_action(name, direction):
    model, stack = make(name, output="weights", direction=direction), random_stack(CHAINS[name])
    edited, moved_first = model.edit(stack), model.edit(act(stack))
    moved_after = act(edited)
    step = max(float((edited.tensors[k] - stack.tensors[k]).abs().max()) for k in stack.tensors)
    assert step > 1e-4
    for key, value in moved_after.tensors.items():
        scale = value.abs().max()
        torch.testing.assert_close(moved_first.tensors[key], value, rtol=1e-8, atol=1e-10 * float(scale))
    plain = make(name, output="weights", law="permutation")
    a, b = plain.edit(act(stack)), act(plain.edit(stack))
    assert max(float((a.tensors[k] - b.tensors[k]).abs().max()) for k in a.tensors) > 1e-4
    with pytest.raises(ValueError, match="call `edit`"):
        model(stack)
    with pytest.raises(ValueError, match="output='weights'"):
        make(name).edit(stack)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_the_derivative_by_a_factor_is_zero(direction):
    model, stack = make("relu cnn", direction=direction), random_stack(CHAINS["relu cnn"])
    logs = [
        torch.zeros(len(stack), layer.outputs, dtype=torch.float64, requires_grad=True) for layer in stack.chain.hidden
    ]
    scaled = stack.replace(scale_units(stack.chain, [q.exp() for q in logs], stack.tensors))
    along = torch.autograd.grad(model(scaled).sum(), logs)
    weights = {k: v.clone().requires_grad_() for k, v in stack.tensors.items()}
    size = torch.autograd.grad(model(stack.replace(weights)).sum(), list(weights.values()))
    assert max(float(g.abs().max()) for g in along) < 1e-10 * max(float(g.abs().max()) for g in size)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_what_the_schedule_leaves_out_changes_nothing(direction, monkeypatch):
    model, stack = make("relu cnn", direction=direction, readout="outputs"), random_stack(CHAINS["relu cnn"])
    lean = model(stack)

    def everything(wires, rounds, read, *, both, edge_updates, weights):
        layers = len(wires.sources)
        edges = frozenset(range(1, layers + 1))
        nodes = frozenset(range(layers + 1))
        return [
            Round(nodes, edges, edges if both else frozenset(), edges if i < rounds - 1 else frozenset())
            for i in range(rounds)
        ]

    monkeypatch.setattr("asym.metanets.scale_gmn.model.schedule", everything)
    torch.testing.assert_close(model(stack), lean, rtol=0, atol=0)


def test_published_parameter_counts():
    from asym.metanets import chain_of
    from asym.models import build

    zoo = chain_of(build("small-cnn", input_shape=(1, 28, 28), classes=10), torch.zeros(2, 1, 28, 28))
    published = {"projection": "shared", "skip": False, "readout": "outputs", "width": 128}
    counts = {
        1_356_801: {},
        2_263_809: {"direction": "bidirectional", "backward": "shipped"},
        762_881: {"law": "permutation"},
        1_076_481: {"law": "permutation", "direction": "bidirectional"},
    }
    with torch.device("meta"):
        for count, options in counts.items():
            model = ScaleGMN(zoo, **published, **options)
            assert sum(p.numel() for p in model.parameters()) == count
        width = matched_width(zoo, 1_356_801, law="permutation", **{k: v for k, v in published.items() if k != "width"})
        model = ScaleGMN(zoo, **(published | {"width": width}), law="permutation")
        assert abs(sum(p.numel() for p in model.parameters()) / 1_356_801 - 1) < 0.02


@pytest.mark.parametrize(
    "options",
    [{}, {"direction": "bidirectional"}, {"direction": "bidirectional", "backward": "shipped"}, {"skip": False}],
)
def test_outputs_and_gradients_are_those_of_the_plain_form(options):
    from benchmarks.metanets_reference import PlainScaleGMN

    model, stack = make("relu cnn", **options), random_stack(CHAINS["relu cnn"])
    plain = PlainScaleGMN(model)
    torch.testing.assert_close(model(stack), plain(stack), rtol=1e-10, atol=1e-12)
    parameters = [p for p in model.parameters() if p.numel()]
    ours, theirs = (torch.autograd.grad(f(stack).square().sum(), parameters, allow_unused=True) for f in (model, plain))
    for a, b in zip(ours, theirs):
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11)
        else:
            assert b is None or float(b.abs().max()) == 0


@torch.no_grad()
def test_one_batch_of_several_architectures():
    several = [CHAINS["relu cnn"], CHAINS["tanh cnn"], CHAINS["mixed"], CHAINS["siren"]]
    torch.manual_seed(0)
    model = ScaleGMN(several, width=8, rounds=3, direction="bidirectional").double().eval()
    stacks = [random_stack(one, 4, seed=i) for i, one in enumerate(several)]
    together = model(stacks)
    torch.testing.assert_close(together, torch.cat([model(stack) for stack in stacks]))
    moved = model([act(stack) for stack in stacks])
    assert float((moved - together).abs().max() / together.std()) < LIMIT
    # The same weights under another activation are another network:
    other = Stack(CHAINS["tanh cnn"], stacks[0].tensors)
    assert float((model(other) - model(stacks[0])).abs().max()) > 1e-4


def test_float32_keeps_the_law_to_its_precision():
    model, stack = (
        make("relu cnn", direction="bidirectional").float(),
        random_stack(CHAINS["relu cnn"], dtype=torch.float32),
    )
    assert error(model, stack, ratio=4.0) < 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "both"}, "direction: 'both'; choose from forward, bidirectional"),
        ({"backward": "inverse"}, "backward: 'inverse'"),
        ({"readout": "last"}, "readout: 'last'"),
        ({"sign": "abs"}, "sign: 'abs'"),
        ({"law": "sign"}, "law: 'sign'"),
        ({"width": 0}, "width: 0; must be at least 1"),
        ({"rounds": 0}, "rounds: 0"),
        ({"dropout": 1.0}, "dropout: 1.0"),
        ({"out": 0}, "out: 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        ScaleGMN(CHAINS["relu cnn"], **options)


def test_a_readout_that_cannot_mix_says_so():
    with pytest.raises(ValueError, match="choose 'mean' to mix"):
        ScaleGMN([CHAINS["relu cnn"], CHAINS["siren"]], readout="outputs")


def test_dropout_draws_in_training_alone():
    model, stack = make("relu cnn", dropout=0.5), random_stack(CHAINS["relu cnn"])
    assert torch.equal(model(stack), model(stack))
    model.train()
    assert not torch.equal(model(stack), model(stack))
