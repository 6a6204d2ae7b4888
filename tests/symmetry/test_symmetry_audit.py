"""The audit on networks whose symmetries can be counted by hand, and on wrong claims that it must not confirm."""

import math

import pytest
import torch
from torch import Tensor, nn

from asym.models import build
from asym.nn import Variant, WAsymLinear
from asym.symmetry.audit import _confirmed, _orthonormal, continuous_symmetries
from asym.symmetry.audit_discrete import Exchanger, automorphisms, exchanges, sign_flips
from asym.symmetry.audit_rank import spectral_rank
from asym.symmetry.audit_system import Form, System


def perceptron(m: int, activation: nn.Module, into: int = 5, out: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(into, m), activation, nn.Linear(m, out))


def families(audit) -> dict[str, int]:
    assert all(f.confirmed == f.predicted for f in audit.families)
    return {f.name: f.predicted for f in audit.families}


def test_the_rank_of_a_known_matrix_and_its_gap():
    torch.manual_seed(0)
    low = torch.randn(40, 3).double() @ torch.randn(3, 8).double()
    rank, factor = spectral_rank([low[:20], low[20:]])
    assert (rank.rank, rank.nullity, rank.saturated, rank.rows) == (3, 5, True, 40)
    assert rank.gap > 1e8
    assert rank.kept > 1e-3
    v = torch.randn(8).double()
    torch.testing.assert_close((factor @ v).norm(), (low @ v).norm())
    full, _ = spectral_rank([torch.randn(20, 8).double()])
    assert (full.nullity, full.saturated) == (0, False)


def test_a_rank_that_grows_with_more_rows_is_not_trusted_too_early():
    block = torch.zeros(20, 4, dtype=torch.float64)
    block[:, :2] = torch.randn(20, 2).double()
    later = torch.randn(20, 4).double()
    rank, _ = spectral_rank([block, later, later])
    assert (rank.rank, rank.saturated, rank.rows) == (4, True, 60)


def test_a_system_of_equations():
    system = System()
    a, b = system.new(torch.eye(2), "a"), system.new(torch.eye(2), "b")
    system.require_zero(a - b)
    system.require_zero(Form(a.idx[:1], torch.ones(1, 1)), stage=1)
    basis = system.solve()
    assert basis.shape == (4, 1)
    assert basis.toarray().ravel().tolist() == pytest.approx([0, 1, 0, 1])
    assert system.solve(["a"]).shape[1] == 0  # b has to move along


@pytest.mark.parametrize("m", [3, 5, 8])
def test_a_relu_layer_of_m_units_has_m_scalings_and_all_exchanges(m):
    audit = continuous_symmetries(perceptron(m, nn.ReLU()), (5,))
    assert families(audit) == {"unit scaling": m}
    assert (audit.predicted, audit.found, audit.unexplained) == (m, m, 0)
    assert audit.rank.gap > 1e6
    assert audit.rank.saturated
    (group,) = exchanges(perceptron(m, nn.ReLU()), (5,))
    assert (group.predicted, group.found) == (m * (m - 1) // 2,) * 2
    assert group.predicted_log10 == pytest.approx(math.log10(math.factorial(m)))


@pytest.mark.parametrize("activation", [nn.GELU(), nn.SiLU(), nn.Tanh()])
def test_other_activations_have_no_scaling(activation):
    audit = continuous_symmetries(perceptron(5, activation), (5,))
    assert (audit.predicted, audit.found) == (0, 0)


@pytest.mark.parametrize("m", [3, 5])
def test_signs_of_tanh_units_and_of_no_others(m):
    assert sign_flips(perceptron(m, nn.Tanh()), (5,)) == (m, m)
    assert sign_flips(perceptron(m, nn.ReLU()), (5,)) == (0, 0)
    assert sign_flips(perceptron(m, nn.GELU()), (5,)) == (0, 0)


@pytest.mark.parametrize(("into", "hidden"), [(4, 2), (5, 3)])
def test_two_linear_layers_have_a_general_linear_group(into, hidden):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(into, hidden), nn.Linear(hidden, 4))
    assert families(continuous_symmetries(model, (into,))) == {"linear GL": hidden**2 + hidden}


class Raw(nn.Module):
    """Multi-head attention without biases, observed as it is."""

    def __init__(self, dim: int, heads: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k = (nn.Linear(dim, heads * d_k, bias=False) for _ in range(2))
        self.v, self.o = nn.Linear(dim, heads * d_v, bias=False), nn.Linear(heads * d_v, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(("dim", "heads", "d_k", "d_v"), [(5, 2, 2, 2), (6, 2, 3, 2), (6, 1, 2, 4)])
def test_raw_attention_has_two_general_linear_groups_a_head(dim, heads, d_k, d_v):
    audit = continuous_symmetries(Raw(dim, heads, d_k, d_v), (4, dim))
    assert families(audit) == {"query-key GL": heads * d_k**2, "value-output GL": heads * d_v**2}
    assert audit.found == heads * (d_k**2 + d_v**2)


@pytest.mark.parametrize("m", [4, 6])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_layer_norm_ignores_scale_and_mean(m, activation):
    net = build("mlp", input_shape=(1, 2, 2), classes=3, width=m / 512, depth=2, activation=activation)
    expected = {"norm scale": 2, "norm shift": (4 + 1) + (m + 1)}
    expected |= {"unit scaling": 2 * m} if activation == "relu" else {}
    audit = continuous_symmetries(net, (1, 2, 2))
    assert families(audit) == expected
    assert audit.unexplained == 0


@pytest.mark.parametrize("statistics", [True, False])
def test_batch_norm_ignores_scale_and_shift_of_each_channel(statistics):
    net = build("mlp", input_shape=(1, 2, 2), classes=3, width=5 / 512, depth=1, norm="batch")
    audit = continuous_symmetries(net, (1, 2, 2), batch_statistics=statistics)
    assert (audit.predicted, audit.found, audit.unexplained) == (10, 10, 0)


def plain_dimension(d: int, hidden: int, patch: int) -> int:
    """One block of `transformer-plain` with two heads and its embedding, next norm and head.

    GL 2 · 2 d_k²; scale of O and of the second layer; rotations of what the second and the last norm read; shifts of
    embedding, O and second layer; weights on the zero sum of what norms give.
    """
    k = d // 2
    shifts = (patch + 1) + d + (hidden + 1)
    sums = 3 * d + hidden + d
    return 4 * k**2 + 2 + (d - 1) * (d - 2) + shifts + sums


@pytest.mark.parametrize("width", [3 / 16, 4 / 16])
def test_a_transformer_without_residuals_has_what_its_widths_say(width):
    net = build("transformer-plain", input_shape=(1, 8, 8), classes=3, width=width, depth=1, activation="gelu")
    d = int(32 * width)
    audit = continuous_symmetries(net, (1, 8, 8))
    assert audit.predicted == audit.found == plain_dimension(d, 2 * d, 4)


def test_a_transformer_with_residuals():
    net = build("transformer", input_shape=(1, 8, 8), classes=3, width=3 / 16, depth=1)
    found = families(continuous_symmetries(net, (1, 8, 8)))
    d, k, hidden = 6, 3, 12
    assert found == {
        "query-key GL": 2 * k**2,
        "value-output GL": 2 * k**2,
        "key shift": d,
        "value shift": d,
        "affine scale": 3 * d,
        "affine shift": 3 * d,
        "norm shift": (4 + 1) + (d + 1) + (hidden + 1),
        "dependent inputs": 3 * d + hidden + 3,
    }


def test_a_residual_network_of_convolutions():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.n0 = nn.Conv2d(2, 3, 3, padding=1, bias=False), nn.GroupNorm(1, 3)
            self.a, self.n1 = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.GroupNorm(1, 4)
            self.b, self.n2 = nn.Conv2d(4, 3, 3, padding=1, bias=False), nn.GroupNorm(1, 3)
            self.head = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.n0(self.stem(x)).relu()
            x = (self.n2(self.b(self.n1(self.a(x)).relu())) + x).relu()
            return self.head(x.mean((2, 3)))

    torch.manual_seed(0)
    audit = continuous_symmetries(Net(), (2, 5, 5))
    assert families(audit) == {"unit scaling": 3 + 4, "norm scale": 3}  # the stream has one scale a channel
    assert (audit.found, audit.unexplained) == (10, 0)


def test_masks_with_constants_remove_scalings_and_zeros_do_not():
    torch.manual_seed(0)

    def net(kappa: float) -> nn.Module:
        options = {"n_fix": 2, "kappa": kappa, "seed": 1}
        return nn.Sequential(WAsymLinear(6, 5, name="a", **options), nn.ReLU(), WAsymLinear(5, 4, name="b", **options))

    assert continuous_symmetries(net(0.0), (6,)).found == 5
    w = continuous_symmetries(net(1.0), (6,))
    assert (w.predicted, w.found) == (0, 0)
    assert all((g.predicted, g.found) == (0, 0) for g in exchanges(net(1.0), (6,)))


def test_gates_leave_no_exchange():
    options = {"input_shape": (1, 2, 2), "classes": 3, "width": 5 / 512, "depth": 1}
    sigma = build("mlp", variant=Variant("sigma"), **options)
    found = exchanges(sigma, (1, 2, 2), reference=build("mlp", **options))
    assert [(g.predicted, g.found, g.tried) for g in found] == [(0, 0, 10)]


def test_an_exchange_costs_nothing_in_a_plain_network_and_something_in_a_masked_one():
    for kappa in (0.0, 0.3, 3.0):  # zeros cost too: an exchange moves edges to where none can be
        net = build("mlp", input_shape=(1, 4, 4), classes=3, width=1 / 32, variant=Variant("w", kappa=kappa))
        state = {n: t.detach().double() if t.is_floating_point() else t for n, t in net.state_dict().items()}
        trial = Exchanger(net, (1, 4, 4), state=state)
        found = [trial.cost(g, i, j) for g in trial.spec.groups for i, j in trial.pairs(g, 0, 20)]
        assert min(cost for cost, _ in found) > 1e-3
        assert not any(kept for _, kept in found) or kappa == 0
    plain = build("mlp", input_shape=(1, 4, 4), classes=3, width=1 / 64)
    trial = Exchanger(plain, (1, 4, 4))
    assert trial.cost("hidden.0.linear", 0, 1)[0] < 1e-12


def test_automorphisms_of_masks_by_trying_all():
    full = torch.ones(3, 3, dtype=torch.bool)
    assert len(list(automorphisms([full, full, full]))) == 36
    distinct = ~torch.eye(3, dtype=torch.bool)
    assert list(automorphisms([distinct, distinct, full])) == [((0, 1, 2), (0, 1, 2))]
    same = distinct.clone()
    same[1] = same[0]  # two rows alike in the first mask, and the columns of the second tell them apart
    assert len(list(automorphisms([same, full]))) == 2
    assert len(list(automorphisms([same, distinct]))) == 1
    with pytest.raises(ValueError, match="more than 10"):
        list(automorphisms([full, full, full], most=10))
    with pytest.raises(ValueError, match="is followed by"):
        list(automorphisms([full, torch.ones(3, 4, dtype=torch.bool)]))


def test_a_wrong_tangent_is_not_confirmed():
    j = torch.randn(30, 6).double()
    j[:, 5] = 0
    right, wrong = torch.eye(6).double()[5:], torch.eye(6).double()[:1]
    assert _confirmed(j, right, 1.0) == 1
    assert _confirmed(j, wrong, 1.0) == 0
    assert _confirmed(j, _orthonormal(torch.cat([right, right + wrong])), 1.0) == 1


def test_an_operation_without_a_rule_is_named_and_what_is_left_is_unexplained():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.one(x).maximum(torch.zeros(())))  # a ReLU that no rule knows

    torch.manual_seed(0)
    audit = continuous_symmetries(Odd(), (4,))
    assert (audit.predicted, audit.found, audit.unexplained) == (0, 5, 5)


def test_unused_and_untrainable_parameters():
    model = perceptron(4, nn.ReLU())
    model.register_parameter("spare", nn.Parameter(torch.ones(3)))
    assert families(continuous_symmetries(model, (5,))) == {"unit scaling": 4, "unused parameters": 3}
    frozen = perceptron(4, nn.ReLU())
    frozen[0].bias.requires_grad_(False)
    audit = continuous_symmetries(frozen, (5,))
    assert (audit.predicted, audit.found) == (0, 0)  # a fixed bias pins the scale
    with pytest.raises(ValueError, match="no trainable parameter"):
        continuous_symmetries(model.requires_grad_(False), (5,))
    with pytest.raises(ValueError, match="most_rows"):
        continuous_symmetries(perceptron(4, nn.ReLU()), (5,), most_rows=1)
