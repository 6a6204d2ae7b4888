"""The MLPs: layout, tables, other widths and depths."""

import pytest
import torch
from torch import nn

from asym.models import build, plan
from asym.models.mlp import rules
from asym.nn import FiGLU, Variant

MNIST = {"input_shape": (1, 28, 28), "classes": 10}


def table(arch: str = "mlp", **options) -> list[tuple[int, float]]:
    plans = plan(arch, variant=Variant("w"), **(MNIST | options))
    return [(p.n_fix, p.kappa) for p in plans.values()]


def test_layout():
    model = build("mlp", **MNIST)
    assert [tuple(m.weight.shape) for m in model.modules() if isinstance(m, nn.Linear)] == [
        (512, 784),
        (512, 512),
        (512, 512),
        (10, 512),
    ]
    assert [type(m).__name__ for m in model.hidden[0].children()] == ["Linear", "LayerNorm", "GELU"]
    assert next(iter(dict(model.named_parameters()))) == "hidden.0.linear.weight"
    assert set(dict(model.named_modules())) >= {"hidden.2.norm", "hidden.2.act", "head"}


def test_the_function_is_that_of_the_formula():
    model = build("mlp", **MNIST).double()
    x = torch.randn(2, 1, 28, 28, dtype=torch.double)
    h = x.flatten(1)
    for block in model.hidden:
        h = h @ block.linear.weight.T + block.linear.bias
        h = (h - h.mean(1, keepdim=True)) / (h.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
        h = nn.functional.gelu(h)
    torch.testing.assert_close(model(x), h @ model.head.weight.T + model.head.bias)


def test_published_table():
    assert table() == [(64, 1.0), (64, 1.0), (64, 0.5), (256, 0.25)]


def test_digits_scale_the_first_layer_alone():
    assert table(input_shape=(1, 8, 8)) == [(5, 1.0), (64, 1.0), (64, 0.5), (256, 0.25)]


def test_width_scales_the_table_by_its_root():
    assert table(width=4.0) == [(128, 1.0), (128, 1.0), (128, 0.5), (512, 0.25)]
    assert table(width=0.5) == [(45, 1.0), (45, 1.0), (45, 0.5), (181, 0.25)]
    # 64 hidden units: 256/√8 = 91 would leave nothing of the head
    assert table(width=0.125)[-1] == (63, 0.25)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_depth(depth):
    model = build("mlp", depth=depth, **MNIST)
    assert len(model.hidden) == depth
    expected = [(64, 1.0)] * min(depth, 2) + [(64, 0.5)] * max(depth - 2, 0) + [(256, 0.25)]
    assert table(depth=depth) == expected
    assert len(rules(1.0, depth)) == depth + 1


def test_sigma_has_unscaled_gates():
    gates = [m for m in build("mlp", variant=Variant("sigma"), **MNIST).modules() if isinstance(m, FiGLU)]
    assert [(g.width, g.scale) for g in gates] == [(512, 1.0)] * 3
    assert len({float(g.fixed[0, 0]) for g in gates}) == 3


@pytest.mark.parametrize("arch", ["mlp-8", "mlp-16"])
def test_bayesian_mlps(arch):
    depth = int(arch[4:])
    model = build(arch, **MNIST)
    assert [type(m).__name__ for m in model.hidden[0].children()] == ["Linear", "LayerNorm", "ReLU"]
    assert len(model.hidden) == depth
    assert table(arch) == [(8, 0.5)] * (depth + 1)
    assert table(arch, input_shape=(3, 32, 32)) == [(8, 0.5)] * (depth + 1)
