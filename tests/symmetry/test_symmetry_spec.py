"""Specs of the table's networks: the right groups, proved, and every wrong spec found out."""

import dataclasses
from functools import cache, partial

import pytest
import timm
import torch
from symmetry_nets import CASES, Loop, Residual, mlp
from torch import Tensor, nn
from torchvision.models.vgg import VGG, make_layers

from asym.models import build
from asym.nn import FiGLU, Variant, asymmetrize, to_plain
from asym.symmetry import (
    PermutationSpec,
    SpecError,
    UnknownOperationError,
    permutation_spec,
    permute,
    random_permutations,
)
from asym.symmetry.layout import Concat, Fixed, Permuted, Product, groups_of

ALL = pytest.mark.parametrize("name", CASES)


@cache
def spec_of(name: str) -> PermutationSpec:
    return permutation_spec(CASES[name].model(), CASES[name].input())


@ALL
def test_groups_sizes_and_parents(name: str) -> None:
    spec = spec_of(name)
    assert {g: group.size for g, group in spec.groups.items()} == CASES[name].groups
    assert {g: group.parent for g, group in spec.groups.items() if group.parent} == CASES[name].parents


@ALL
def test_a_random_permutation_moves_parameters_but_not_the_function(name: str) -> None:
    model, x, spec = CASES[name].model(), CASES[name].input(), spec_of(name)
    generator = torch.Generator().manual_seed(4)
    state = {
        k: torch.randn(t.shape, generator=generator, dtype=torch.float64).abs() for k, t in model.state_dict().items()
    }
    for alias, first in spec.tied.items():
        state[alias] = state[first]
    perms = random_permutations(spec, generator)
    moved = permute(spec, perms, state)
    x = x.double() if x.is_floating_point() else x
    before, after = (torch.func.functional_call(model.double(), s, (x,), tie_weights=False) for s in (state, moved))
    torch.testing.assert_close(after, before, rtol=1e-10, atol=1e-10 * float(before.abs().max()))
    assert any(not torch.equal(moved[k], state[k]) for k in state)


def _pinned(spec: PermutationSpec, tensor: str, dim: int) -> PermutationSpec:
    """The spec with one axis of one tensor forgotten."""
    axes = list(spec.tensors[tensor])
    axes[dim] = Fixed(axes[dim].size)
    return dataclasses.replace(spec, tensors={**spec.tensors, tensor: tuple(axes)})


@ALL
def test_forgetting_any_axis_is_found_out(name: str) -> None:
    model, x, spec = CASES[name].model(), CASES[name].input(), spec_of(name)
    for tensor, axes in spec.tensors.items():
        if tensor in spec.tied or tensor in spec.tied.values():
            continue  # the other name still moves: that is the next test
        for dim, axis in enumerate(axes):
            if not groups_of(axis):
                continue
            with pytest.raises(ValueError, match="spec: ") as found:
                _pinned(spec, tensor, dim).prove(model, x)
            assert any(repr(group) in str(found.value) for group in groups_of(axis))


def test_forgetting_one_name_of_a_tied_tensor_is_found_out() -> None:
    spec = spec_of("language")
    assert spec.tied == {"head.weight": "embed.weight"}
    with pytest.raises(SpecError, match="'embed'"):
        _pinned(spec, "head.weight", 1).prove(CASES["language"].model(), CASES["language"].input())


def test_a_wrong_group_behind_a_zero_is_found_out() -> None:
    """A branch that starts at zero hides what happens inside; the proof draws generic parameters."""
    model = Residual(nn.BatchNorm2d).eval()
    nn.init.zeros_(model.an2.weight)
    x = torch.randn(2, 2, 6, 6)
    with pytest.raises(SpecError, match="groups at fault: 'a1'"):
        _pinned(permutation_spec(model, x), "a2.weight", 1).prove(model, x)


def test_moving_an_output_is_found_out() -> None:
    model, x = mlp(nn.Identity, nn.Identity), torch.randn(2, 3)
    spec = permutation_spec(model, x)
    wrong = {
        **spec.tensors,
        "6.weight": (Permuted("out", 2), spec.tensors["6.weight"][1]),
        "6.bias": (Permuted("out", 2),),
    }
    with pytest.raises(SpecError, match=r"groups at fault: 'out'"):
        PermutationSpec(wrong, {**spec.parents, "out": None}).prove(model, x)


def test_moving_heads_of_queries_apart_is_found_out() -> None:
    """Features of queries and keys must move together inside each head."""
    spec, case = spec_of("transformer"), CASES["transformer"]
    axes = spec.tensors["qkv.weight"]
    assert isinstance(axes[0], Concat)
    query, _, value = axes[0].pieces
    apart = Product((Permuted("qkv.heads", 2), Permuted("keys", 3)))
    wrong = {}
    for name in ("qkv.weight", "qkv.bias"):
        wrong[name] = (Concat((query, apart, value)), *spec.tensors[name][1:])
    bad = PermutationSpec({**spec.tensors, **wrong}, {**spec.parents, "keys": "qkv.heads"}, spec.buffers)
    with pytest.raises(SpecError, match=r"'qkv.query_key' .*'keys'"):
        bad.prove(case.model(), case.input())


def test_prove_compares_tensors_with_the_model() -> None:
    model, x = mlp(nn.Identity, nn.Identity), torch.randn(2, 3)
    spec = permutation_spec(model, x)
    with pytest.raises(ValueError, match=r"tensor '1\.weight' is not in the model"):
        permutation_spec(mlp(nn.LayerNorm, nn.LayerNorm), x).prove(model, x)
    with pytest.raises(ValueError, match=r"'0.weight' has axes of sizes \(5, 3\), in the model \(5, 4\)"):
        spec.prove(nn.Sequential(nn.Linear(4, 5), nn.Identity(), nn.GELU(), nn.Linear(5, 4), *model[4:]), x)
    part = {name: axes for name, axes in spec.tensors.items() if name != "0.bias"}
    with pytest.raises(ValueError, match=r"parameters \['0.bias'\] are not covered"):
        dataclasses.replace(spec, tensors=part).prove(model, x)
    with pytest.raises(ValueError, match="group 'ghost' has no axis"):
        dataclasses.replace(spec, parents={**spec.parents, "ghost": None}).prove(model, x)


def test_contradictory_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="'w' has group 'g', which parents does not list"):
        str(PermutationSpec({"w": (Permuted("g", 2),)}, {}))
    with pytest.raises(ValueError, match="group 'g' has 2 positions, 3 in 'v'"):
        str(PermutationSpec({"w": (Permuted("g", 2),), "v": (Permuted("g", 3),)}, {"g": None}))


def test_prove_and_tracing_leave_the_model_alone() -> None:
    model = Residual(nn.BatchNorm2d).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    permutation_spec(model, torch.randn(2, 2, 6, 6))
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_print_reads_well() -> None:
    spec = permutation_spec(mlp(nn.BatchNorm1d, nn.Identity), torch.randn(2, 3))
    lines = str(spec).splitlines()
    assert lines[0] == "2 permutation groups (11 tensors)"
    assert lines[1] == "  0      5  0.{weight,bias}[0] 1.{weight,bias,running_mean,running_var}[0] 3.weight[1]"
    assert lines[2] == "  3      4  3.{weight,bias}[0] 6.weight[1]"
    text = str(spec_of("transformer"))
    assert "qkv.query_key      3  for each of qkv.heads: qkv.{weight,bias}[0]{[0:6](2×·),[6:12](2×·)}" in text
    assert str(spec_of("vgg")).splitlines()[2].endswith("3.{weight,bias}[0] 7.weight[1](·×4)")
    assert str(permutation_spec(nn.Linear(3, 2), torch.randn(1, 3))) == "no permutation symmetry (2 tensors)"


# Networks of the project and of others


def test_resnet20_has_12_groups() -> None:
    x = torch.randn(2, 3, 8, 8)
    for norm in ("group", "batch"):
        spec = permutation_spec(build("resnet20", input_shape=(3, 8, 8), classes=10, norm=norm), x)
        assert sorted(group.size for group in spec.groups.values()) == [16] * 4 + [32] * 4 + [64] * 4
        assert list(spec.groups)[:2] == ["stem.conv", "stages.0.0.conv1"]
        if norm == "batch":
            assert ("stem.norm.running_var", 0) in spec.groups["stem.conv"].axes
            assert "stem.norm.running_var" in spec.buffers


def test_mlp_has_3_groups() -> None:
    spec = permutation_spec(build("mlp", input_shape=(1, 28, 28), classes=10), torch.randn(2, 1, 28, 28))
    assert {name: group.size for name, group in spec.groups.items()} == {f"hidden.{i}.linear": 512 for i in range(3)}


@pytest.mark.parametrize("variant", ["w", "w-zero", "sigma"])
def test_asymmetric_networks_have_none_and_their_plain_form_does(variant: str) -> None:
    x = torch.randn(2, 1, 8, 8)
    model = build("small-cnn", input_shape=(1, 8, 8), classes=10, variant=Variant(variant))
    assert permutation_spec(model, x).groups == {}
    if variant != "sigma":
        assert len(permutation_spec(to_plain(model), x).groups) == 3


def test_a_single_masked_layer_pins_only_its_own_axes() -> None:
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    x = torch.randn(2, 16)
    assert list(permutation_spec(model, x).groups) == ["0", "2"]
    model[0] = asymmetrize(nn.Sequential(model[0]), "w")[0]
    assert list(permutation_spec(model, x).groups) == ["2"]
    gated = mlp(nn.LayerNorm, nn.LayerNorm)
    gated[2] = FiGLU(5, scale=1.0, seed=0, name="gate")
    assert list(permutation_spec(gated, torch.randn(2, 3)).groups) == ["3"]


def _torchvision_vgg() -> nn.Module:
    model = VGG(make_layers([4, "M", 6, "M"], batch_norm=True), num_classes=10, init_weights=False)
    model.classifier = nn.Sequential(nn.Linear(6 * 49, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 10))
    return model


FOREIGN = {
    "timm resnet18": (lambda: timm.create_model("resnet18", num_classes=4), (3, 32, 32), 12),
    "timm vit": (
        lambda: timm.models.VisionTransformer(
            32, 8, num_classes=4, embed_dim=24, depth=2, num_heads=3, init_values=1e-5
        ),
        (3, 32, 32),
        9,
    ),
    "timm vit with class attention pooling and norms of queries and keys": (
        lambda: timm.models.VisionTransformer(
            32, 8, num_classes=4, embed_dim=24, depth=1, num_heads=3, qk_norm=True, global_pool="map", class_token=False
        ),
        (3, 32, 32),
        11,
    ),
    "timm convnext": (
        lambda: timm.models.ConvNeXt(num_classes=4, depths=(1, 1, 1, 1), dims=(8, 12, 16, 20)),
        (3, 32, 32),
        8,
    ),
    "timm densenet": (
        lambda: timm.models.densenet.DenseNet(growth_rate=4, block_config=(2, 2), num_classes=4),
        (3, 32, 32),
        10,
    ),
    "timm mixer": (
        lambda: timm.models.mlp_mixer.MlpMixer(img_size=16, patch_size=8, num_classes=4, embed_dim=16, num_blocks=2),
        (3, 16, 16),
        5,
    ),
    "torchvision vgg": (_torchvision_vgg, (3, 32, 32), 3),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_networks_that_others_wrote(name: str) -> None:
    make, shape, count = FOREIGN[name]
    assert len(permutation_spec(make(), torch.randn(2, *shape)).groups) == count


# What is asked for, and what goes wrong


class Fourier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(self.inner(x)).abs()


def test_an_unknown_operation_is_named() -> None:
    with pytest.raises(
        UnknownOperationError, match=r"no rule for operation 'fft_fft' at node 'fft_fft' \(in module ''"
    ):
        permutation_spec(Fourier(), torch.randn(2, 3))


def test_an_unknown_operation_on_inputs_alone_does_not_matter() -> None:
    class Front(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(nn.Identity, nn.Identity)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(torch.fft.fft(x).abs())

    assert len(permutation_spec(Front(), torch.randn(2, 3)).groups) == 2


def test_order_sensitive_operations_pin() -> None:
    class Rolled(nn.Module):
        def __init__(self, act) -> None:
            super().__init__()
            self.one, self.act, self.two = nn.Linear(3, 4), act, nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.act(self.one(x)))

    x = torch.randn(2, 3)
    for act in (partial(torch.roll, shifts=1, dims=-1), partial(torch.cumsum, dim=-1), lambda h: h + torch.arange(4)):
        assert permutation_spec(Rolled(act), x).groups == {}
    assert len(permutation_spec(Rolled(partial(torch.softmax, dim=-1)), x).groups) == 1
    # A slice leaves what it takes and what it drops to move apart.
    cut = permutation_spec(Rolled(lambda h: torch.cat([h[:, :1], h[:, 1:].relu()], -1)), x)
    assert [group.size for group in cut.groups.values()] == [3]


def test_pin_and_carry() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2)
            self.register_buffer("centre", torch.randn(4))

        def forward(self, x: Tensor) -> Tensor:
            return self.two((self.one(x) - self.get_buffer("centre")).relu())

    model, x = Kept(), torch.randn(2, 3)
    assert permutation_spec(model, x).groups == {}
    carried = permutation_spec(model, x, carry=("centre",))
    assert carried.groups["one"].axes == (("one.weight", 0), ("one.bias", 0), ("two.weight", 1), ("centre", 0))
    assert permutation_spec(model, x, carry=("centre",), pin=("*.bias",)).groups == {}


def test_parameters_that_nothing_reads_stay() -> None:
    model = Loop()
    model.register_parameter("unused", nn.Parameter(torch.randn(5)))
    assert permutation_spec(model, torch.randn(2, 3)).tensors["unused"] == (Fixed(5),)
