"""Permutations as a group that acts: hand-worked, then its laws as properties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from symmetry_nets import CASES
from torch import Tensor, tensor

from asym.symmetry import PermutationSpec, compose, identity, invert, permutation_spec, permute, random_permutations
from asym.symmetry.layout import Concat, Fixed, Permuted, Product

SPEC = PermutationSpec(
    {
        "w": (Permuted("a", 3), Fixed(2)),
        "flat": (Product((Permuted("a", 3), Fixed(2))),),
        "heads": (Product((Permuted("p", 2), Permuted("c", 3))), Permuted("a", 3)),
        "grouped": (Permuted("p", 2), Permuted("c", 3)),
        "both": (Concat((Permuted("a", 3), Permuted("p", 2))),),
        "fixed": (Fixed(4),),
    },
    {"a": None, "p": None, "c": "p"},
)
TENSORS: dict[str, Tensor] = {
    name: torch.arange(torch.Size([axis.size for axis in axes]).numel()).reshape([axis.size for axis in axes])
    for name, axes in SPEC.tensors.items()
}
PERMS = st.fixed_dictionaries(
    {
        "a": st.permutations(range(3)).map(tensor),
        "p": st.permutations(range(2)).map(tensor),
        "c": st.lists(st.permutations(range(3)), min_size=2, max_size=2).map(tensor),
    }
)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_hidden_layer_by_hand() -> None:
    """3 inputs, 2 hidden units that change places, 1 output."""
    spec = PermutationSpec(
        {
            "in.weight": (Permuted("h", 2), Fixed(3)),
            "in.bias": (Permuted("h", 2),),
            "out.weight": (Fixed(1), Permuted("h", 2)),
        },
        {"h": None},
    )
    net = {"in.weight": tensor([[1, 2, 3], [4, 5, 6]]), "in.bias": tensor([7, 8]), "out.weight": tensor([[9, 10]])}
    moved = permute(spec, {"h": tensor([1, 0])}, net)
    assert moved["in.weight"].tolist() == [[4, 5, 6], [1, 2, 3]]
    assert moved["in.bias"].tolist() == [8, 7]
    assert moved["out.weight"].tolist() == [[10, 9]]
    assert net["in.bias"].tolist() == [7, 8]


@given(PERMS, PERMS)
def test_composing_is_acting_one_after_the_other(p, q) -> None:
    assert same(permute(SPEC, compose(SPEC, p, q), TENSORS), permute(SPEC, q, permute(SPEC, p, TENSORS)))


@given(PERMS)
def test_the_inverse_undoes(p) -> None:
    assert same(permute(SPEC, invert(SPEC, p), permute(SPEC, p, TENSORS)), TENSORS)
    assert same(compose(SPEC, p, invert(SPEC, p)), identity(SPEC))
    assert same(compose(SPEC, invert(SPEC, p), p), identity(SPEC))
    assert same(invert(SPEC, invert(SPEC, p)), p)


@given(PERMS, PERMS, PERMS)
def test_composing_is_associative(p, q, r) -> None:
    assert same(compose(SPEC, compose(SPEC, p, q), r), compose(SPEC, p, compose(SPEC, q, r)))


@given(PERMS)
def test_the_identity_is_neutral(p) -> None:
    assert same(permute(SPEC, identity(SPEC), TENSORS), TENSORS)
    assert same(compose(SPEC, p, identity(SPEC)), p)
    assert same(compose(SPEC, identity(SPEC), p), p)


def test_order_matters() -> None:
    p, q = {"a": tensor([1, 0, 2])}, {"a": tensor([0, 2, 1])}
    assert not torch.equal(compose(SPEC, p, q)["a"], compose(SPEC, q, p)["a"])


def test_missing_groups_stay_and_unknown_tensors_pass_through() -> None:
    extra = tensor(3.0)
    moved = permute(SPEC, {"p": tensor([1, 0])}, {"logit_scale": extra, "w": TENSORS["w"], "both": TENSORS["both"]})
    assert list(moved) == ["logit_scale", "w", "both"]
    assert moved["logit_scale"] is extra
    assert moved["w"] is TENSORS["w"]
    assert moved["both"].tolist() == [0, 1, 2, 4, 3]


def test_random_permutations_are_permutations_and_repeatable() -> None:
    one, two = (random_permutations(SPEC, torch.Generator().manual_seed(5)) for _ in range(2))
    assert same(one, two)
    assert one["c"].shape == (2, 3)
    assert torch.equal(one["c"].sort(-1).values, torch.arange(3).expand(2, 3))
    draws = [random_permutations(SPEC, torch.Generator().manual_seed(s))["a"].tolist() for s in range(100)]
    assert len({tuple(draw) for draw in draws}) == 6


@pytest.mark.parametrize(
    ("perms", "message"),
    [
        ({"b": tensor([0])}, "unknown group 'b'; the spec has a, p, c"),
        ({"a": tensor([0, 1])}, r"'a' has shape \(2,\), the spec says \(3,\)"),
        ({"a": tensor([0, 1, 1])}, "'a' is not a permutation of 0 … 2"),
        ({"c": tensor([0, 1, 2])}, r"'c' has shape \(3,\), the spec says \(2, 3\)"),
        ({"c": tensor([[0, 1, 2], [0, 0, 2]])}, "'c' is not a permutation"),
    ],
)
def test_what_is_no_permutation_is_refused(perms: dict[str, Tensor], message: str) -> None:
    for act in (permute, compose):
        with pytest.raises(ValueError, match=message):
            act(SPEC, perms, {})
    with pytest.raises(ValueError, match=message):
        invert(SPEC, perms)


def test_a_tensor_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tensors: 'w' has shape \(2, 3\), the spec says \(3, 2\)"):
        permute(SPEC, {}, {"w": torch.zeros(2, 3)})


@pytest.mark.parametrize("name", ["resnet-batch", "transformer", "grouped", "dense"])
def test_laws_on_networks(name: str) -> None:
    spec = permutation_spec(CASES[name].model(), CASES[name].input(), prove=False)
    state = dict(CASES[name].model().state_dict())
    p, q = (random_permutations(spec, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert same(permute(spec, compose(spec, p, q), state), permute(spec, q, permute(spec, p, state)))
    assert same(permute(spec, invert(spec, p), permute(spec, p, state)), state)
