"""The registry and `build`: names, counts, initialisation, errors; every architecture in every variant."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from asym import names
from asym.models import build, count, get_arch, list_archs, plan, register
from asym.models.registry import _REGISTRY
from asym.nn import FiGLU, MaskedLayer, Variant, check_fixed, count_trainable, to_plain

SMALL = {"input_shape": (1, 8, 8), "classes": 10}

FAST = ("mlp", "mlp-8", "resnet8", "resnet20", "small-cnn")


def test_the_torch_free_names_are_those_of_the_registry():
    assert list(names.ARCHS) == list_archs()
    norms = {norm for name in list_archs() for norm in get_arch(name).norms}
    assert norms == set(names.NORMS)


def test_wildcards():
    assert list_archs("resnet*") == ["resnet8", "resnet20", "resnet32", "resnet56", "resnet110"]
    assert list_archs("mlp-?") == ["mlp-8"]
    assert list_archs("none*") == []


COUNTS = [
    ("mlp", 1.0, 935_434, 834_570),
    ("mlp-8", 1.0, 668_170, 651_706),
    ("mlp-16", 1.0, 1_198_602, 1_165_754),
    ("resnet8", 1.0, 78_042, 60_634),
    ("resnet8", 0.875, 59_944, 46_560),
    ("resnet20", 1.0, 272_474, 230_026),
    ("resnet20", 8.0, 17_289_866, 16_273_946),
    ("resnet32", 1.0, 466_906, 396_810),
    ("resnet56", 1.0, 855_770, 730_378),
    ("resnet110", 1.0, 1_730_714, 1_480_906),
    ("small-cnn", 1.0, 4_970, 4_322),
]


@pytest.mark.parametrize(("arch", "width", "standard", "masked"), COUNTS)
def test_published_parameter_counts(arch, width, standard, masked):
    entry = get_arch(arch)
    options = {"input_shape": entry.input_shape, "classes": 10, "width": width}
    assert count(arch, **options) == (standard, standard)
    assert count(arch, variant=Variant("w"), **options) == (masked, standard)
    assert width in entry.widths


@pytest.mark.parametrize(
    ("arch", "width", "standard", "masked"), [c for c in COUNTS if c[0] != "resnet110" and c[1] != 8]
)
def test_built_networks_have_the_counted_parameters(arch, width, standard, masked):
    options = {"input_shape": get_arch(arch).input_shape, "classes": 10, "width": width}
    assert count_trainable(build(arch, **options)) == standard
    model = build(arch, variant=Variant("w"), **options)
    assert count_trainable(model) == masked
    assert sum(p.numel() for p in model.parameters()) == standard


def test_published_variational_counts_are_mean_and_four_factors():
    """Mean and four rank-one factors of all linear layers, and the norms: MLP-8 and MLP-16 at 784 inputs."""
    for arch, standard, masked in (("mlp-8", 3_324_466, 3_242_146), ("mlp-16", 5_960_242, 5_796_002)):
        norms = 2 * 256 * int(arch[4:])
        for variant, published in (("standard", standard), ("w", masked)):
            trainable, _ = count(arch, variant=Variant(variant), input_shape=(1, 28, 28), classes=10)
            assert 5 * (trainable - norms) + norms == published


def test_published_variational_counts_of_resnets():
    """As above, for all convolutions and the head."""
    for arch, width, classes, published in (
        ("resnet20", 1.0, 10, (1_356_098, 1_143_858)),
        ("resnet110", 1.0, 10, (8_620_418, 7_371_378)),
    ):
        options = {"input_shape": (3, 32, 32), "classes": classes, "width": width}
        model = build(arch, **options)
        norms = sum(p.numel() for m in model.modules() if isinstance(m, nn.GroupNorm) for p in m.parameters())
        found = [count(arch, variant=Variant(v), **options)[0] for v in ("standard", "w")]
        assert tuple(5 * (n - norms) + norms for n in found) == published


@pytest.mark.parametrize("variant", names.VARIANTS)
@pytest.mark.parametrize("arch", FAST)
def test_every_architecture_in_every_variant(arch, variant):
    if (arch, variant) == ("small-cnn", "bias"):
        with pytest.raises(ValueError, match="SmallCNN has none"):
            build(arch, variant=Variant(variant), **SMALL)
        return
    model = build(arch, variant=Variant(variant), seed=1, **SMALL)
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    output = model(x)
    assert output.shape == (3, 10)
    assert output.isfinite().all()
    output.logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
    masked = [m for m in model.modules() if isinstance(m, MaskedLayer)]
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    assert len(masked) == (len(layers) if variant in ("w", "w-zero", "w-sigma") else 0)
    gates = [m for m in model.modules() if isinstance(m, FiGLU)]
    activations = [m for m in build(arch, **SMALL).modules() if isinstance(m, nn.ReLU | nn.GELU)]
    assert len(gates) == (len(activations) if variant in ("sigma", "w-sigma") else 0)
    assert check_fixed(model) == len(masked)
    assert count(arch, variant=Variant(variant), **SMALL)[0] == count_trainable(model)
    with torch.no_grad():
        assert torch.equal(to_plain(model)(x), model(x))


@pytest.mark.parametrize("arch", FAST)
def test_plans_say_what_is_built(arch):
    plans = plan(arch, variant=Variant("w"), **SMALL)
    model = build(arch, variant=Variant("w"), **SMALL)
    built = {name: m for name, m in model.named_modules() if isinstance(m, MaskedLayer)}
    assert list(plans) == list(built)
    for name, layer in built.items():
        found = plans[name]
        assert (found.n_fix, found.kappa, found.trainable) == (layer.n_fix, layer.kappa, layer.n_trainable)
        assert layer.name == name
    assert plan(arch, variant=Variant("sigma"), **SMALL) == {}


def parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize("arch", ["mlp", "resnet8", "small-cnn"])
def test_one_seed_gives_shared_parameters_the_same_start(arch):
    standard = parameters(build(arch, seed=4, **SMALL))
    scaled = parameters(build(arch, seed=4, variant=Variant("w-scale"), **SMALL))
    sigma = parameters(build(arch, seed=4, variant=Variant("sigma"), **SMALL))
    masked = build(arch, seed=4, variant=Variant("w"), **SMALL)
    started = build(arch, seed=4, variant=Variant("w-init"), **SMALL)
    assert all(torch.equal(sigma[name], value) for name, value in standard.items())
    for name, module in masked.named_modules():
        if isinstance(module, MaskedLayer):
            key = f"{name}.weight"
            assert torch.equal(module.weight[module.mask], scaled[key][module.mask])
            assert torch.equal(started.get_parameter(key), module.effective_weight)
            kaiming = get_arch(arch).scheme == "kaiming"
            assert torch.equal(standard[key], scaled[key]) != kaiming
        for key, value in module.named_parameters(name, recurse=False):
            if not key.endswith("weight") or not isinstance(module, MaskedLayer):
                assert torch.equal(value, standard[key])


def test_networks_of_a_population_share_constants_and_differ_in_the_rest():
    a, b = (build("resnet8", variant=Variant("w", mask_seed=3), seed=s, **SMALL) for s in (0, 1))
    for (name, x), y in zip(a.named_buffers(), b.buffers(), strict=True):
        assert torch.equal(x, y), name
    for x, y in zip(a.modules(), b.modules(), strict=True):
        if isinstance(x, MaskedLayer) and x.n_trainable:
            assert (x.weight[x.mask] != y.weight[y.mask]).all()


def test_the_w_resnet_starts_six_to_the_half_smaller():
    """The confound of the released code, and the control without it."""
    options = {"input_shape": (3, 32, 32), "classes": 10}
    standard, scaled = (build("resnet20", variant=Variant(v), **options) for v in ("standard", "w-scale"))
    name = "stages.2.2.conv2.weight"
    ratio = standard.get_parameter(name).std() / scaled.get_parameter(name).std()
    assert abs(ratio / 6**0.5 - 1) < 0.02


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = build("resnet8", variant=Variant("w"), **SMALL)
    build("timm/resnet10t", input_shape=(3, 32, 32), classes=4, variant=Variant("w"))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    second = build("resnet8", variant=Variant("w"), **SMALL)
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values()))


DIGEST = """
import hashlib, json, torch
from asym.models import build
from asym.nn import Variant
torch.set_num_threads(1)
found = {}
for arch in ("mlp", "resnet8", "small-cnn"):
    for variant in ("w", "sigma", "bias", "w-init"):
        if (arch, variant) == ("small-cnn", "bias"):
            continue
        model = build(arch, input_shape=(1, 8, 8), classes=10, variant=Variant(variant, mask_seed=2), seed=5)
        digest = hashlib.sha256()
        for name, value in model.state_dict().items():
            digest.update(name.encode() + value.numpy().tobytes())
        found[f"{arch} {variant}"] = digest.hexdigest()
text = json.dumps(found)
"""


def test_another_process_builds_the_same_bits():
    here: dict = {}
    exec(DIGEST, here)
    done = subprocess.run(
        [sys.executable, "-c", DIGEST + "print(text)"],
        env={"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    there = json.loads(done.stdout)
    assert there == json.loads(here["text"])
    assert len(set(there.values())) == len(there) == 11


@pytest.mark.parametrize("norm", names.NORMS)
def test_norms(norm):
    kinds = {
        "group": nn.GroupNorm,
        "batch": nn.modules.batchnorm._BatchNorm,
        "layer": nn.LayerNorm,
        "none": nn.Identity,
    }
    for arch in ("mlp", "resnet8"):
        if norm in get_arch(arch).norms:
            model = build(arch, norm=norm, **SMALL)
            assert model(torch.randn(4, 1, 8, 8)).isfinite().all()
            found = [m for m in model.modules() if isinstance(m, kinds[norm])]
            others = [
                m for k in ("group", "batch", "layer") if k != norm for m in model.modules() if isinstance(m, kinds[k])
            ]
            assert len(found) >= 3
            assert others == []
        else:
            with pytest.raises(ValueError, match=f"norm: '{norm}' for {arch}; choose from"):
                build(arch, norm=norm, **SMALL)


def test_activations():
    assert any(isinstance(m, nn.Tanh) for m in build("small-cnn", activation="tanh", **SMALL).modules())
    assert any(isinstance(m, nn.GELU) for m in build("mlp", **SMALL).modules())
    with pytest.raises(ValueError, match="activation: 'tanh' for resnet8; choose from relu"):
        build("resnet8", activation="tanh", **SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": "resnet21"}, "arch: 'resnet21' is unknown; did you mean resnet32, resnet20, resnet110"),
        ({"arch": "transformer9"}, "choose from mlp, mlp-8, .*timm/<name>, package.module:factory"),
        ({"arch": "timm/resnet19"}, "timm has no model 'resnet19'; did you mean timm/resnet18"),
        ({"arch": "timm/"}, "timm has no model ''"),
        ({"arch": "no_such_package:make"}, "cannot load 'no_such_package:make'"),
        ({"arch": "torch.nn:NoSuchThing"}, "cannot load 'torch.nn:NoSuchThing'"),
        ({"arch": ":make"}, "cannot load ':make'"),
        ({"arch": "math:pi"}, "'math:pi' is not callable"),
        ({"input_shape": (1, 8, 0)}, "input_shape"),
        ({"classes": 0}, "classes: 0"),
        ({"width": 0.0}, "width: 0.0"),
        ({"width": float("nan")}, "width: nan"),
        ({"depth": 4}, "depth: 4; the depth of resnet8 is fixed"),
        ({"arch": "mlp", "depth": 0}, "depth: 0"),
        ({"arch": "timm/resnet10t", "width": 2.0}, "width: 2.0; timm/resnet10t has a width of its own"),
        ({"arch": "timm/resnet10t", "norm": "group"}, "norm: 'group' for timm/resnet10t; choose from its own alone"),
        ({"variant": Variant("w", n_fix_scale=100.0)}, "n_fix_scale: 100 asks for"),
    ],
)
def test_bad_arguments_are_one_line_errors(options, message):
    with pytest.raises(ValueError, match=message) as error:
        build(**({"arch": "resnet8", **SMALL} | options))
    assert "\n" not in str(error.value)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="'mlp' is registered already"):
        register("mlp", rules=lambda width, depth: (), input_shape=(1, 28, 28))(nn.Identity)


def test_a_new_architecture_is_one_decorated_function():
    @register("toy", rules=lambda width, depth: (), input_shape=(1, 4, 4), norms=("none",))
    def toy(*, input_shape, classes, width, depth, norm, activation):
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, classes))

    try:
        model = build("toy", input_shape=(1, 4, 4), classes=3, variant=Variant("w"))
        assert check_fixed(model) == 2
        assert isinstance(build("toy", input_shape=(1, 4, 4), classes=3, variant=Variant("sigma"))[2], FiGLU)
    finally:
        del _REGISTRY["toy"]


# --- networks of others
