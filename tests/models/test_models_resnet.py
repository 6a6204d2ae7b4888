"""The ResNets: layout, tables, widths, frozen stems."""

import pytest
import torch
from torch import nn

from asym.models import build, plan
from asym.models.resnet import stage_channels
from asym.nn import FiGLU, Variant

CIFAR = {"input_shape": (3, 32, 32), "classes": 10}


def table(arch: str = "resnet20", **options) -> dict[str, int]:
    plans = plan(arch, variant=Variant("w"), **(CIFAR | options))
    return {name: p.n_fix for name, p in plans.items()}


def test_layout():
    model = build("resnet20", **CIFAR)
    shortcuts = [n for n, m in model.named_modules() if n.endswith("shortcut") and not isinstance(m, nn.Identity)]
    assert shortcuts == ["stages.1.0.shortcut", "stages.2.0.shortcut"]
    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert len(convs) == 19 + 2
    assert all(m.bias is None for m in convs)
    norms = [m for m in model.modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == len(convs)
    assert all(m.num_groups == 1 for m in norms)
    assert sum(isinstance(m, nn.ReLU) for m in model.modules()) == 19
    assert not any(m.inplace for m in model.modules() if isinstance(m, nn.ReLU))
    assert [tuple(p.shape) for p in model.head.parameters()] == [(10, 64), (10,)]


def test_resnet8_has_29_tensors():
    assert len(list(build("resnet8", **CIFAR).parameters())) == 29


def test_shapes_along_the_way():
    model = build("resnet20", **CIFAR)
    x = model.act(model.stem(torch.zeros(2, 3, 32, 32)))
    assert x.shape == (2, 16, 32, 32)
    shapes = []
    for stage in model.stages:
        x = stage(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(16, 32, 32), (32, 16, 16), (64, 8, 8)]


def test_a_block_is_that_of_the_formula():
    block = build("resnet20", **CIFAR).double().stages[1][0]
    x = torch.randn(2, 16, 8, 8, dtype=torch.double)
    h = block.norm1(nn.functional.conv2d(x, block.conv1.weight, stride=2, padding=1)).relu()
    h = block.norm2(nn.functional.conv2d(h, block.conv2.weight, padding=1))
    s = block.shortcut.norm(nn.functional.conv2d(x, block.shortcut.conv.weight, stride=2))
    torch.testing.assert_close(block(x), (h + s).relu())


@pytest.mark.parametrize(("arch", "blocks"), [("resnet8", 1), ("resnet32", 5), ("resnet56", 9), ("resnet110", 18)])
def test_depths(arch, blocks):
    model = build(arch, **CIFAR)
    assert [len(stage) for stage in model.stages] == [blocks] * 3
    weighted = [m for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and "shortcut" not in n]
    assert len(weighted) == int(arch[6:])


def test_published_tables():
    one, eight = table(), table(width=8.0)
    expected = {
        "stem.conv": (12, 27),
        "stages.0.0.conv1": (36, 108),
        "stages.0.2.conv2": (36, 108),
        "stages.1.0.conv1": (54, 162),
        "stages.1.0.shortcut.conv": (6, 18),
        "stages.1.2.conv2": (54, 162),
        "stages.2.0.conv1": (72, 216),
        "stages.2.0.shortcut.conv": (8, 24),
        "stages.2.2.conv2": (72, 216),
        "head": (8, 24),
    }
    assert {name: (one[name], eight[name]) for name in expected} == expected
    assert set(one.values()) == {12, 36, 54, 6, 72, 8}
    assert {p.kappa for p in plan("resnet20", variant=Variant("w"), **CIFAR).values()} == {2.0}
    assert table("resnet110")["stages.1.17.conv2"] == 54


def test_the_stem_of_width_8_is_frozen_on_purpose_and_no_other_layer():
    plans = plan("resnet20", variant=Variant("w"), width=8.0, **CIFAR)
    assert [name for name, p in plans.items() if p.frozen] == ["stem.conv"]
    gray = plan("resnet20", variant=Variant("w"), width=8.0, input_shape=(1, 8, 8), classes=10)
    assert (gray["stem.conv"].frozen, gray["stem.conv"].n_fix) == (True, 9)


def test_the_published_convolution_count_of_36_in_the_stem_is_not_reached():
    """Other widths keep the stem trainable: 12 · √width below 27, then the most that leaves rows distinct."""
    assert table(width=4.0)["stem.conv"] == 24
    assert table(width=6.0)["stem.conv"] == 25
    assert not any(p.frozen for p in plan("resnet20", variant=Variant("w"), width=4.0, **CIFAR).values())


def test_other_widths_and_inputs():
    assert table(width=4.0)["stages.0.1.conv1"] == 72
    assert table(width=0.5)["stages.0.1.conv1"] == 25
    digits = table(input_shape=(1, 8, 8))
    assert digits["stem.conv"] == 4
    assert {k: v for k, v in digits.items() if k != "stem.conv"} == {
        k: v for k, v in table().items() if k != "stem.conv"
    }
    assert stage_channels(0.875) == (14, 28, 56)
    with pytest.raises(ValueError, match=r"width: got 0.01, which leaves no unit of 16; the least is 0.0625"):
        stage_channels(0.01)


def test_resnet8_fixes_whole_channels():
    plans = plan("resnet8", variant=Variant("w"), **CIFAR)
    assert {name: (p.n_fix, p.granularity) for name, p in plans.items()} == {
        "stem.conv": (3, "channel"),
        **{f"stages.{i}.0.conv{j}": (8, "channel") for i in range(3) for j in (1, 2)},
        "stages.1.0.shortcut.conv": (8, "channel"),
        "stages.2.0.shortcut.conv": (8, "channel"),
        "head": (8, "entry"),
    }
    assert [name for name, p in plans.items() if p.frozen] == ["stem.conv"]
    model = build("resnet8", variant=Variant("w"), **CIFAR)
    by_channel = model.stages[2][0].conv1.mask.flatten(2)
    assert torch.equal(by_channel.any(2), by_channel.all(2))
    assert plan("resnet8", variant=Variant("w"), input_shape=(1, 8, 8), classes=10)["stem.conv"].frozen


def test_w_zero_of_resnet8_still_sees_its_input():
    """Its stem is frozen: were that zero, all images would look the same."""
    model = build("resnet8", variant=Variant("w-zero"), **CIFAR)
    a, b = model(torch.randn(2, 3, 32, 32))
    assert (a - b).abs().max() > 1e-3
    assert not model.stages[0][0].conv1.fixed.any()


def test_sigma_gates_have_the_root_scale():
    gates = {
        n: m for n, m in build("resnet8", variant=Variant("sigma"), **CIFAR).named_modules() if isinstance(m, FiGLU)
    }
    assert {n: (g.width, round(g.scale, 6), g.channel_dim) for n, g in gates.items()} == {
        "act": (16, 0.25, 1),
        "stages.0.0.act1": (16, 0.25, 1),
        "stages.0.0.act2": (16, 0.25, 1),
        "stages.1.0.act1": (32, 0.176777, 1),
        "stages.1.0.act2": (32, 0.176777, 1),
        "stages.2.0.act1": (64, 0.125, 1),
        "stages.2.0.act2": (64, 0.125, 1),
    }


def test_channels_last_and_bfloat16():
    model, x = build("resnet8", variant=Variant("w"), **CIFAR), torch.randn(2, 3, 32, 32)
    expected = model(x)
    model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.contiguous(memory_format=torch.channels_last)), expected, rtol=1e-3, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(x)
    assert (rounded.float() - expected).norm() < 0.1 * expected.norm()


def test_what_a_hook_on_a_norm_sees_is_not_overwritten():
    model = build("resnet8", **CIFAR)
    seen = []
    model.stem.norm.register_forward_hook(lambda module, args, output: seen.append(output))
    model(torch.randn(2, 3, 32, 32))
    assert seen[0].min() < 0
