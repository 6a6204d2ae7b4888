"""Networks of different widths in one stack: each reads as it does alone, whatever stands in the padding."""

import dataclasses

import pytest
import torch
from chain_nets import chain, random_stack
from residual_nets import random_stack as random_residual

from asym.metanets import Chain, ScaleGMN, Stack, build, pad
from asym.seeds import torch_generator
from asym.symmetry.scaling import random_factors, scale_units

LIMIT = 1e-9


def narrow(found: Chain, less: int) -> Chain:
    """The chain with `less` units fewer in each hidden layer."""
    sizes = [size - less * (0 < k < len(found.layers)) for k, size in enumerate(found.sizes)]
    ends = zip(found.layers, sizes, sizes[1:])
    return Chain(tuple(dataclasses.replace(layer, inputs=a, outputs=b) for layer, a, b in ends))


def three(name: str) -> list[Stack]:
    return [random_stack(narrow(chain(name), less), 3, seed=less) for less in (1, 0, 2)]


def apart(padded: Stack, stacks: list[Stack], model) -> float:
    """Largest difference between reading networks padded and alone, over the spread of all."""
    with torch.no_grad():
        together, alone = model(padded), torch.cat([model(stack) for stack in stacks])
    return float((together - alone).abs().max() / alone.std())


OPTIONS = [
    {"readout": "outputs"},
    {"readout": "full", "receiver": True, "direction": "bidirectional"},
    {"readout": "mean", "mean": True, "direction": "bidirectional"},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("law", ["scale", "permutation"])
@pytest.mark.parametrize("name", ["relu cnn", "mixed"])
def test_a_network_reads_the_same_alone_and_beside_wider_ones(name, law, options):
    stacks = three(name)
    padded = pad(stacks)
    torch.manual_seed(0)
    model = ScaleGMN([padded.chain, *(s.chain for s in stacks)], width=6, rounds=2, law=law, **options).double().eval()
    assert apart(padded, stacks, model) < LIMIT
    noise = torch_generator(0, "noise")
    full = {}
    for layer, rows, columns in zip(padded.chain.layers, padded.alive[1:], padded.alive):
        weight = padded.tensors[layer.weight]
        whole = rows[:, :, None] & columns[:, None].repeat_interleave(layer.positions, 2)
        whole = whole.reshape(*whole.shape, *[1] * (weight.dim() - 3)).expand(weight.shape)
        full[layer.weight] = torch.where(whole, weight, torch.randn(weight.shape, generator=noise, dtype=weight.dtype))
        if layer.bias:
            full[layer.bias] = torch.where(rows, padded.tensors[layer.bias], 1.0)
    assert any(not torch.equal(full[key], padded.tensors[key]) for key in full)
    assert apart(padded.replace(full), stacks, model) < LIMIT
    # must fail: taken for units, what stands there counts
    assert apart(dataclasses.replace(padded.replace(full), alive=None), stacks, model) > 1e-4


def test_gradients_are_those_of_the_networks_alone():
    stacks = three("relu cnn")
    padded = pad(stacks)
    for law in ("scale", "permutation"):
        torch.manual_seed(0)
        model = ScaleGMN([padded.chain, *(s.chain for s in stacks)], width=6, law=law, readout="full").double()
        parameters = [p for p in model.parameters() if p.numel()]
        losses = model(padded).square().sum(), torch.cat([model(stack) for stack in stacks]).square().sum()
        found = [torch.autograd.grad(loss, parameters, allow_unused=True) for loss in losses]
        for a, b in zip(*found):
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11)


@torch.no_grad()
def test_padded_networks_keep_the_law_of_scalings():
    padded = pad(three("relu cnn"))
    torch.manual_seed(0)
    model = ScaleGMN(padded.chain, width=6, direction="bidirectional").double().eval()
    factors = random_factors(padded.chain, (9,), torch_generator(0, "q"), ratio=64.0)
    y, scaled = model(padded), model(padded.replace(scale_units(padded.chain, factors, padded.tensors)))
    assert float((y - scaled).abs().max() / y.std()) < 1e-6
    fixed = build("gmn", padded.chain, width=6, gauge=True).double()
    y, scaled = fixed(padded), fixed(padded.replace(scale_units(padded.chain, factors, padded.tensors)))
    assert float((y - scaled).abs().max() / y.std()) < 1e-6


def test_rows_and_sizes():
    stacks = three("relu cnn")
    padded = pad(stacks, (1, 6, 4, 5, 3))
    assert padded.chain.sizes == (1, 6, 4, 5, 3)
    assert [int(a.sum()) for a in padded.rows(torch.tensor([0, 3])).alive] == [2, 7, 7, 7, 6]
    assert torch.equal(padded.tensors["convs.0.weight"][:3, :3], stacks[0].tensors["convs.0.weight"])
    assert padded.tensors["convs.0.weight"][:3, 3:].abs().max() == 0
    assert padded.to(torch.float32).alive[1].dtype == torch.bool


def test_what_cannot_be_padded_or_read():
    stacks = three("relu cnn")
    padded = pad(stacks)
    with pytest.raises(ValueError, match="differ in more than hidden widths"):
        pad([stacks[0], random_stack(chain("tanh cnn"), 2)])
    with pytest.raises(ValueError, match="padded ones, cannot be padded"):
        pad([padded])
    with pytest.raises(ValueError, match="want chains of layers, got a Residual"):
        pad([random_residual("resnet8")])
    with pytest.raises(ValueError, match=r"sizes: got \(1, 2, 4, 4, 3\); need \(1, 4, 4, 4, 3\) at least"):
        pad(stacks, (1, 2, 4, 4, 3))
    with pytest.raises(ValueError, match="stacks: got none"):
        pad([])
    for name, options in (("deepsets", {}), ("nfn-hnp", {}), ("gmn", {"shuffle": True, "width": 4})):
        reader = build(name, padded.chain, **options).double().train()
        with pytest.raises(ValueError, match="its networks are padded"):
            reader(padded)
