"""Editors: an untrained one changes little, symmetries are kept where claimed, and what cannot be asked is refused."""

import pytest
import torch
from chain_nets import chain, random_stack

from asym.metanets import Stack, fit, predict
from asym.metanets.editing import EDITORS, Editor, build_editor
from asym.metanets.fitting import Protocol
from asym.models.siren import Siren, grid
from asym.populations import Layout
from asym.populations.sirens import start_rows
from asym.seeds import torch_generator
from asym.symmetry.chain import chain_of
from asym.symmetry.scaling import permute_units, random_factors, random_orders, scale_units

NETWORK = Siren(width=5)
SIREN = chain_of(NETWORK, torch.zeros(2, 2))
SMALL = {"flat": {"width": 8}, "nfn-np": {"channels": (4, 4)}, "nfn-hnp": {"channels": (4, 4)}}


def editor(name, frame=SIREN, **options):
    found = build_editor(name, frame, **SMALL.get(name, {"width": 8}) | options).double().eval()
    found.observe(random_stack(frame, 16))
    for name, p in found.named_parameters():
        if "step" in name:
            p.data.fill_(1.0)  # a change as large as the weights: nothing hides in rounding
    return found


def act(stack, *, signs):
    lead, generator = (len(stack),), torch_generator(1, "act")
    moved = stack.tensors
    if signs:
        moved = scale_units(stack.chain, random_factors(stack.chain, lead, generator, like=stack.like), moved)
    return stack.replace(permute_units(stack.chain, random_orders(stack.chain, lead, generator), moved))


@torch.no_grad()
def broken(name, *, signs, **options):
    """Largest difference between editing the moved network and moving the edited one, over the size of the change."""
    model, stack = editor(name, **options), random_stack(SIREN)
    edited = model.edit(stack)
    after, before = act(edited, signs=signs).tensors, model.edit(act(stack, signs=signs)).tensors
    size = max(float((edited.tensors[k] - stack.tensors[k]).abs().max()) for k in stack.tensors)
    return max(float((after[k] - before[k]).abs().max()) for k in after) / size


@pytest.mark.parametrize("name", EDITORS)
def test_every_editor_writes_every_weight_and_starts_from_little(name):
    model, stack = build_editor(name, SIREN, **SMALL.get(name, {"width": 8})), random_stack(SIREN, dtype=torch.float32)
    assert isinstance(model, Editor)
    edited = model.edit(stack)
    assert {k: v.shape for k, v in edited.tensors.items()} == {k: v.shape for k, v in stack.tensors.items()}
    change = torch.cat([(edited.tensors[k] - stack.tensors[k]).flatten() for k in stack.tensors])
    assert 0 < float(change.detach().abs().max()) < 1
    for k in stack.tensors:
        assert not torch.equal(edited.tensors[k], stack.tensors[k]), k


def test_laws_of_editors():
    for name in ("nfn-np", "nfn-hnp", "gmn", "scale-gmn", "scale-gmn-b"):
        assert broken(name, signs=False) < 1e-9, name
    for name in ("scale-gmn", "scale-gmn-b"):
        assert broken(name, signs=True) < 1e-9, name


def test_must_fail_editors_without_the_law():
    assert broken("flat", signs=False) > 1e-2
    for name in ("nfn-np", "gmn"):
        assert broken(name, signs=True) > 1e-2, name


@torch.no_grad()
def test_a_gauge_leaves_the_function_and_gives_the_law_of_signs():
    """The edited images of a network and of its flipped copy are the same; without the gauge they are not."""
    x, stack = grid(4, 4).double(), random_stack(SIREN)
    signs = random_factors(SIREN, (len(stack),), torch_generator(1, "signs"), like=stack.like)
    flipped = stack.replace(scale_units(SIREN, signs, stack.tensors))
    images = [
        [NETWORK.stacked(editor("flat", gauge=g).edit(s).tensors, x) for s in (stack, flipped)] for g in (True, False)
    ]
    with_gauge, without = (float((a - b).abs().max()) for a, b in images)
    assert with_gauge < 1e-9
    assert without > 1e-2


def test_convolutions_and_flattened_maps_keep_their_shapes():
    frame = chain("mixed")
    for name in ("nfn-np", "nfn-hnp", "flat"):
        stack, model = random_stack(frame), editor(name, frame)
        edited = model.edit(stack)
        assert {k: v.shape for k, v in edited.tensors.items()} == {k: v.shape for k, v in stack.tensors.items()}


def test_folded_axes_come_back_where_they_were():
    model, stack = editor("nfn-hnp", chain("mixed")), random_stack(chain("mixed"))
    for moments in model.moments:
        moments.mean.zero_()
        moments.scale.fill_(1.0)
    for name, x in zip(model.table.names, model.tensors(stack)):
        assert torch.equal(model.unfold(stack.chain, name, x), stack.tensors[name]), name


def test_an_editor_is_trained_on_the_images_that_its_networks_give():
    network, x = Siren(width=5, start="smooth"), grid(4, 4)
    stack = Stack.from_rows(SIREN, Layout.trainable(network), start_rows(network, range(24)))
    targets = torch.full((24, 1, 16), 0.1)
    model = build_editor("scale-gmn", SIREN, width=8)

    def images(reader, part):
        return network.stacked(reader.edit(part).tensors, x)

    before = float((predict(model, stack, call=images) - targets).square().mean())
    train, val = torch.arange(16), torch.arange(16, 24)
    found = fit(model, stack, targets, train, val, Protocol(epochs=15, lr=1e-2, batch=8), seed=0, call=images)
    assert -found.score < before / 2


def test_editors_have_no_numbers():
    for name in ("nfn-np", "scale-gmn"):
        with pytest.raises(ValueError, match="call `edit`"):
            editor(name)(random_stack(SIREN))
    with pytest.raises(ValueError, match="reader: 'stats'; choose from flat, nfn-np"):
        build_editor("stats", SIREN)
    with pytest.raises(ValueError, match="reader: flat has no option 'rounds'"):
        build_editor("flat", SIREN, rounds=2)
