"""Blocks side by side in one tensor, and sums without what is summed: the numbers of single blocks, written out."""

import pytest
import torch
from transformer_nets import CASES, made, randn, weights

from asym.metanets.transformer_nfn import EquivariantLayer, TransformerNFN, merge_heads
from asym.metanets.transformer_nfn.products import Composed
from asym.metanets.transformer_nfn.stacking import stacked, taken
from asym.metanets.transformer_nfn.sums import PlaneSums, RowSums
from asym.models import build
from asym.symmetry.encoder import encoder_of

FORMS = [{}, {"rank": 2}, {"residual": True}, {"rank": 3, "residual": True}]


def summed(block, residual):
    """A, a, B, b after ReLU, over acted axes, side by side."""
    y = {s: t.relu() for s, t in block.items()}
    plane = y["A"].sum(-1).flatten(1) if residual else y["A"].sum((-1, -2))
    return torch.cat([plane, y["a"].sum(-1), y["B"].sum(-2).flatten(1), y["b"].flatten(1)], 1)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("channels", [1, 2])
def test_rectified_sums_of_stacked_blocks(form, channels):
    size = CASES[1]
    layers = [made(EquivariantLayer, size, channels, 3, seed=k, **form) for k in range(2)]
    blocks = [merge_heads(weights(size, 4, channels, seed=10 * k)) for k in range(2)]
    x = {s: torch.stack([b[s] for b in blocks]).requires_grad_() for s in blocks[0]}
    whole = stacked(layers)
    found = whole.rectified_sums(Composed(x), x)
    apart = [{s: t[k] for s, t in x.items()} for k in range(2)]
    expected = torch.stack([summed(layer.perceptron(Composed(b), b), bool(form.get("residual")))
                            for layer, b in zip(layers, apart)])  # fmt: skip
    torch.testing.assert_close(found, expected)
    upstream = randn(*found.shape, seed=5)
    names, ends = zip(*whole.named_parameters())
    wanted = [layer.get_parameter(name) for layer in layers for name in names]
    ours = torch.autograd.grad(found, [*ends, *x.values()], upstream, allow_unused=True, materialize_grads=True)
    plain = torch.autograd.grad(expected, [*wanted, *x.values()], upstream, allow_unused=True, materialize_grads=True)
    for k, gradient in enumerate(ours[: len(ends)]):
        torch.testing.assert_close(gradient, torch.stack([plain[k], plain[len(ends) + k]]))
    for mine, theirs in zip(ours[len(ends) :], plain[2 * len(ends) :]):
        torch.testing.assert_close(mine, theirs)
    back = taken(whole, 1)
    assert all(torch.equal(p, q) for p, q in zip(back.parameters(), layers[1].parameters()))


def test_sums_in_groups_of_blocks(monkeypatch):
    """By hand, and the same whether blocks are worked out together or one by one."""
    x, w, z = torch.tensor([[[[1.0], [-2.0]]]]), torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[[0.5, 1.0]]])
    assert RowSums.apply(x, w, z).tolist() == [[[1.5, 3.0]]]  # ReLU of 1.5, −1.5 and of 0, 3
    plane, phi = torch.tensor([[[[[1.0, -1.0]]]]]), torch.tensor([[[2.0]]])
    rows, columns = torch.tensor([[[[1.0]]]]), torch.tensor([[[[0.0, 4.0]]]])
    assert PlaneSums.apply(plane, phi, rows, columns).tolist() == [[[3.0 + 3.0]]]
    many = [randn(3, *shape, seed=k) for k, shape in enumerate([(2, 4, 5), (6, 5), (2, 6)])]
    flat = [randn(3, *shape, seed=k) for k, shape in enumerate([(2, 2, 3, 4), (5, 2), (2, 5, 3), (2, 5, 4)])]
    together = RowSums.apply(*many), PlaneSums.apply(*flat)
    monkeypatch.setattr("asym.metanets.transformer_nfn.sums.CACHE", 1)
    for one, other in zip((RowSums.apply(*many), PlaneSums.apply(*flat)), together):
        torch.testing.assert_close(one, other)
    many, flat = ([t.requires_grad_() for t in group] for group in (many, flat))
    assert torch.autograd.gradcheck(RowSums.apply, many)
    assert torch.autograd.gradcheck(PlaneSums.apply, flat)


def test_states_have_a_name_for_each_block():
    encoder = encoder_of(build("transformer-plain", input_shape=(1, 8, 8), classes=3, width=0.125).state_dict(), 2)
    reader, other = (made(TransformerNFN, encoder, rank=2, probes=2, seed=k) for k in range(2))
    state = reader.state_dict()
    assert {"blocks.0.norm.weight", "blocks.1.layers.0.sets.0.mix.weight"} <= set(state)
    trained = sum(t.numel() for name, t in state.items() if name.rpartition(".")[2] not in ("inverse", "scale", "mean"))
    assert trained == sum(p.numel() for p in reader.parameters())
    other.load_state_dict(state)
    assert all(torch.equal(p, q) for p, q in zip(reader.parameters(), other.parameters()))
    del state["blocks.1.norm.bias"]
    with pytest.raises(RuntimeError, match=r"norm\.bias"):
        other.load_state_dict(state)
