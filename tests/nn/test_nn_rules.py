"""Rules: which n_fix a layer gets at its own fan-in, and the errors."""

import math

import pytest
from torch import nn

from asym.nn.rules import LayerRule, plan_rules


def plan(model, rules=(), kappa=None, n_fix_scale=1.0):
    return plan_rules(model, rules, kappa=kappa, n_fix_scale=n_fix_scale)


def only(model, rule, **options):
    (found,) = plan(nn.ModuleDict({"layer": model}), [rule], **options).values()
    return found


def test_at_the_published_fan_in_the_table_holds():
    found = only(nn.Linear(784, 512), LayerRule("layer", 64, 1.0, fan_in=784))
    assert (found.name, found.rows, found.fan_in, found.n_fix, found.kappa) == ("layer", 512, 784, 64, 1.0)
    assert found.trainable == 512 * 720
    assert not found.frozen


@pytest.mark.parametrize(
    ("layer", "rule", "n_fix"),
    [
        (nn.Linear(64, 512), LayerRule("*", 64, 1.0, fan_in=784), 5),  # digits: 64 · 64/784 = 5.2
        (nn.Conv2d(1, 16, 3), LayerRule("*", 12, 2.0, fan_in=27), 4),  # digits: 12 · 9/27 = 4
        (nn.Linear(12, 200), LayerRule("*", 1, 1.0, fan_in=12), 3),  # raised: C(12, 2) = 66 < 200 ≤ C(12, 3)
        (nn.Linear(16, 40), LayerRule("*", 99, 1.0), 14),  # lowered: C(16, 15) = 16 < 40 ≤ C(16, 14)
        (nn.Linear(10, 2), LayerRule("*", 5, 1.0, fan_in=100), 1),  # 0.5 rounds to 1
        (nn.Linear(1000, 16), LayerRule("*", 8, 1.0), 8),  # no fan-in: not scaled
    ],
)
def test_other_fan_ins(layer, rule, n_fix):
    assert only(layer, rule).n_fix == n_fix


@pytest.mark.parametrize(
    ("layer", "n_fix"),
    [
        (nn.Linear(512, 512), 64),  # fan_in / 8 = 64 > log2 = 9
        (nn.Linear(48, 512), 9),  # log2 = 9 > 48/8
        (nn.Linear(20, 512), 5),  # log2 = 9, but at most 20/4 = 5
        (nn.Linear(6, 8), 2),  # at most 1, raised since C(6, 1) = 6 < 8
        (nn.Conv2d(3, 64, 7), 19),  # 147/8 = 18.4, rounded up
    ],
)
def test_the_rule_of_thumb(layer, n_fix):
    found = plan(nn.ModuleDict({"layer": layer}))["layer"]
    assert found.n_fix == n_fix
    assert found.kappa == 1.0


def test_channel_mode_counts_channels():
    found = only(nn.Conv2d(16, 32, 3), LayerRule("*", 8, 2.0, granularity="channel"))
    assert (found.fan_in, found.n_fix, found.trainable) == (16, 8, 32 * 8 * 9)


def test_frozen_on_purpose():
    stem = LayerRule("*", 27, 2.0, fan_in=27, allow_frozen=True)
    found = only(nn.Conv2d(3, 128, 3), stem)
    assert (found.frozen, found.n_fix, found.trainable) == (True, 27, 0)
    assert only(nn.Conv2d(1, 200, 3), stem).frozen  # also at fan-in 9, where 200 rows could never be distinct
    # half as many leave it trainable: the permission is for the frozen layer alone
    half = only(nn.Conv2d(3, 128, 3), stem, n_fix_scale=0.5)
    assert (half.frozen, half.n_fix) == (False, 14)


def test_a_frozen_layer_is_never_one_of_zeros():
    stem = LayerRule("0", 27, 2.0, fan_in=27, allow_frozen=True)
    found = plan(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)), [stem], kappa=0.0)
    assert {name: p.kappa for name, p in found.items()} == {"0": 2.0, "1": 0.0}


def test_the_first_rule_that_matches_counts_and_zero_leaves_a_layer_plain():
    model = nn.ModuleDict({"a": nn.Linear(40, 8), "b": nn.Linear(40, 8), "c": nn.Linear(40, 8)})
    found = plan(model, [LayerRule("a", 0, 0.0), LayerRule("[ab]", 7, 2.0)])
    assert {name: (p.n_fix, p.kappa) for name, p in found.items()} == {"b": (7, 2.0), "c": (5, 1.0)}


def test_kappa_and_scale_act_on_every_layer():
    model = nn.Sequential(nn.Linear(40, 8), nn.Linear(80, 8))
    found = plan(model, kappa=3.0, n_fix_scale=2.0)
    assert {name: (p.n_fix, p.kappa) for name, p in found.items()} == {"0": (10, 3.0), "1": (20, 3.0)}
    assert plan(model, n_fix_scale=0.01)["0"].n_fix == 1  # the fewest


def test_a_depthwise_convolution_with_too_many_rows_stays_plain_unless_named():
    model = nn.Sequential(nn.Conv2d(512, 512, 3, groups=512), nn.Conv2d(512, 64, 1))
    assert list(plan(model)) == ["1"]
    with pytest.raises(ValueError, match=r"rules: '0' at layer '0': .*512 rows of 9 entries cannot be distinct"):
        plan(model, [LayerRule("0", 4, 1.0)])


class OwnForward(nn.Linear):
    def forward(self, input):
        return super().forward(2 * input)


def hooked() -> nn.Linear:
    layer = nn.Linear(9, 4)
    layer.register_forward_hook(lambda module, args, output: 2 * output)
    return layer


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Sequential(nn.ReLU()), {}, "no nn.Linear or nn.Conv2d to mask"),
        (nn.Sequential(nn.Linear(9, 4)), {"rules": [LayerRule("1", 2, 1.0)]}, "rules: '1' matches no layer"),
        (nn.Sequential(nn.Linear(9, 4)), {"rules": [LayerRule("*", 0, 1.0)]}, "no layer of Sequential is left"),
        (
            nn.Sequential(nn.Linear(9, 4)),
            {"rules": [LayerRule("*", 3, 1.0)], "n_fix_scale": 3.0},
            "n_fix_scale: 3 asks for 9 of 9 in layer '0', which can fix at most 8",
        ),
        (nn.Sequential(OwnForward(9, 4)), {}, "'0' is a OwnForward with a forward of its own; leave it plain"),
        (
            nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2)}),
            {},
            "MultiheadAttention uses 'attention.out_proj' past its forward",
        ),
        (nn.ModuleDict({"layer": nn.TransformerEncoderLayer(8, 2)}), {}, "past its forward"),
        (
            nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(9, 4))),
            {},
            "the weight of '0' is computed from other parameters; leave it plain",
        ),
        (nn.Sequential(nn.LazyLinear(4)), {}, "'0' is lazy and has no size yet; run the model once"),
        (nn.Sequential(hooked()), {}, "'0' has hooks, which its replacement would lose"),
    ],
)
def test_what_cannot_be_planned_is_an_error(model, options, message):
    with pytest.raises(ValueError, match=message):
        plan(model, **options)


def test_the_remedy_that_an_error_names_works():
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2), "head": nn.Linear(8, 4)})
    assert list(plan(model, [LayerRule("attention.out_proj", n_fix=0)])) == ["head"]


@pytest.mark.parametrize(
    "fields",
    [
        {"n_fix": -1},
        {"kappa": -1.0},
        {"kappa": math.nan},
        {"fan_in": 0},
        {"granularity": "row"},
    ],
)
def test_rules_check_their_fields(fields):
    with pytest.raises(ValueError, match=f"{next(iter(fields))}: .* in the rule for 'p'"):
        LayerRule(**({"pattern": "p", "n_fix": 3, "kappa": 1.0} | fields))
