"""The building blocks of ScaleGMN by themselves: norms and their derivatives, canonical forms, the schedule by hand."""

import pytest
import torch

from asym.metanets.scale_gmn.backward import relative_to_reader
from asym.metanets.scale_gmn.blocks import Canonical, ScaleEq
from asym.metanets.scale_gmn.dense import Round, schedule, unit
from asym.seeds import torch_generator
from asym.symmetry.residual import Wires


def test_edges_over_the_root_mean_square_of_what_a_unit_reads():
    generator = torch_generator(0, "sources")
    z = torch.randn(3, 5, 2, 4, generator=generator, dtype=torch.float64)
    z[1, :, 0] = 0
    there = torch.ones(5, 2, 1, dtype=torch.float64)
    there[3:, 1] = 0
    found = relative_to_reader(z, there)
    size = found.square().sum(3).sum(1) / there.sum(0).t()
    expected = torch.ones(3, 2, dtype=torch.float64)
    expected[1, 0] = 0
    torch.testing.assert_close(size, expected)
    torch.testing.assert_close(relative_to_reader(7 * z, there), found)
    assert (found[:, 3:, 1] == 0).all()
    z = torch.randn(2, 3, 2, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(relative_to_reader, (z,))


def test_unit_and_its_derivative():
    x = torch.randn(4, 5, generator=torch_generator(0, "u"), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(unit, (x,))
    with torch.no_grad():
        x[0] = 0
        x[1] *= 1e-30
    u, norm = unit(x)
    assert u[0].tolist() == [0.0] * 5
    torch.testing.assert_close(torch.linalg.vector_norm(u[1:], dim=-1), torch.ones(3, dtype=torch.float64))
    (grad,) = torch.autograd.grad(u.sum() + norm.sum(), x)
    assert grad[0].tolist() == [0.0] * 5
    assert torch.isfinite(grad).all()


def test_absolute_values_forget_relative_signs_and_rho_does_not():
    x = torch.tensor([[1.0, 2.0]])
    y = torch.tensor([[1.0, -2.0]])
    absolute = Canonical(2, {"sign"}, sign="canonicalise", hidden=4, norm=True)
    assert torch.equal(absolute(x, "sign"), absolute(y, "sign"))
    torch.manual_seed(0)
    rho = Canonical(2, {"sign"}, sign="symmetrise", hidden=4, norm=True)
    torch.testing.assert_close(rho(x, "sign"), rho(-x, "sign"))
    assert float((rho(x, "sign") - rho(y, "sign")).detach().abs().max()) > 1e-2


@pytest.mark.parametrize("kind", ["scale", "sign"])
def test_scale_eq_is_homogeneous(kind):
    torch.manual_seed(0)
    block = ScaleEq(2, 4, {kind, "io"}, sign="symmetrise", norm=True).double()
    x = torch.randn(3, 8, generator=torch_generator(0, "x"), dtype=torch.float64)
    q = -1.0 if kind == "sign" else 7.0
    torch.testing.assert_close(block(q * x, kind), q * block(x, kind), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(block(2 * x, "io"), 2 * block(x, "io"), rtol=1e-3)


def test_the_schedule_by_hand():
    three = Wires((0, 1, 2), (1, 2, 3), (None,) * 3, ((),) * 4, ())
    last = schedule(three, 3, frozenset({3}), both=False, edge_updates=True, weights=False)
    assert [sorted(r.forward) for r in last] == [[1, 2, 3], [2, 3], [3]]
    assert [sorted(r.edges) for r in last] == [[2, 3], [3], []]
    assert [sorted(r.nodes) for r in last] == [[1, 2, 3], [2, 3], [3]]
    ends = schedule(three, 1, frozenset({0, 3}), both=True, edge_updates=True, weights=True)
    assert ends == [Round(frozenset({0, 3}), frozenset({3}), frozenset({1}), frozenset({1, 2, 3}))]
