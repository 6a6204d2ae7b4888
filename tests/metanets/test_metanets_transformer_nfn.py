"""Transformer-NFN: equivariant to the group, complete, counted, and blind to heads unless told otherwise."""

import pytest
import torch
from transformer_nets import CASES, deviation, made, relu, weights

from asym.metanets.transformer_nfn import (
    EquivariantLayer,
    Gates,
    HeadReadout,
    InvariantLayer,
    TransformerNFN,
    count,
    merge_heads,
    separate_heads,
)
from asym.metanets.transformer_nfn.layer import Terms
from asym.metanets.transformer_nfn.products import Composed, Explicit
from asym.metanets.transformer_nfn.table import ATTENTION, OUTPUTS, PERCEPTRON, acted_axes, term_sets
from asym.models import build
from asym.symmetry.attention import FACTORS, RESIDUAL_FACTORS, act, random_element
from asym.symmetry.attention_more import transform
from asym.symmetry.encoder import Sizes, encoder_of

FORMS = [{}, {"rank": 2}, {"residual": True}, {"rank": 3, "residual": True}]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("size", CASES, ids=str)
def test_stacks_are_equivariant_and_invariant(size, form):
    """Two layers with ReLU and gates, an invariant layer, a readout: 100 well-conditioned elements, 1e-12."""
    residual = form.get("residual", False)
    first, second = (made(EquivariantLayer, size, a, b, **form) for a, b in ((2, 3), (3, 2)))
    gates, readout = (
        made(kind, size, *ends, 4, residual=residual) for kind, ends in ((Gates, (3, 2)), (HeadReadout, (2, 5)))
    )
    invariant = made(InvariantLayer, size, 2, 6, **form)
    factors = RESIDUAL_FACTORS if residual else FACTORS
    element = random_element(size, (100,), torch.Generator().manual_seed(0), factors=factors)

    def through(block):
        y = relu(first(merge_heads(block)))
        return gates(y, second(y))

    x = weights(size, 100, 2)
    ours, moved = through(x), through(act(element, x))
    expected = merge_heads(act(element, separate_heads(ours, size.heads)))
    for symbol in expected:
        assert deviation(moved[symbol], expected[symbol]) < 1e-12
    assert deviation(invariant(moved), invariant(ours)) < 1e-12
    assert deviation(readout(moved), readout(ours)) < 1e-12
    assert invariant(ours).detach().std(0).min() > 1e-3  # it does depend on the weights


def test_what_the_group_lacks_is_seen():
    """Must fail: a factor that the layer does not know, and the output permutation for the layer without it."""
    size = CASES[0]
    x = weights(size, 20, 1)
    invariant = made(InvariantLayer, size, 1, 3)
    base = invariant(merge_heads(x))
    flat = {s: t[:, 0] for s, t in x.items()}

    def change(name, layer, before):
        (image,) = transform(name, [flat], torch.Generator().manual_seed(1))
        return deviation(layer(merge_heads({s: t[:, None] for s, t in image.items()})), before)

    for name in ("relu-scale", "norm-scale", "norm-shift", "next-scale"):
        assert change(name, invariant, base) > 1e-3
    for name in FACTORS:
        assert change(name, invariant, base) < 1e-12
    narrow = made(InvariantLayer, size, 1, 3, residual=True)
    assert change("out", narrow, narrow(merge_heads(x))) > 1e-3
    assert change("hidden", narrow, narrow(merge_heads(x))) < 1e-12


def stable(block):
    """All terms that may feed the layer, with heads apart: Q, K, V, O, Q_s K_sᵀ, V_s O_s, A, B, a, b, 1."""
    terms = [block[s] for s in "QKVO"] + [block["Q"] @ block["K"].mT, block["V"] @ block["O"]]
    terms += [block[s] for s in "ABab"]
    flat = [t.flatten(1) for t in terms]
    return torch.cat([*flat, torch.ones(len(flat[0]), 1, dtype=torch.float64)], 1)


def null_dimensions(size, factors):
    """Dimension of all maps, linear in the stable terms, that commute with random elements, for each output."""
    block = {s: t[:, 0] for s, t in weights(size, 120, 1).items()}
    before, lead = stable(block), (120,)
    found = dict.fromkeys((*ATTENTION, *OUTPUTS), None)
    generator = torch.Generator().manual_seed(3)
    for _ in range(14):
        element = random_element(size, (), generator, factors=factors, condition=4.0)
        many = type(element)(*(v.expand(*lead, *v.shape) for v in vars(element).values()))
        image = act(many, block)
        rho = torch.linalg.lstsq(before, stable(image)).solution.T  # acts on the stable terms
        for symbol in found:
            out = torch.linalg.lstsq(block[symbol].flatten(1), image[symbol].flatten(1)).solution.T
            eye = torch.eye(len(out), dtype=torch.float64)
            constraint = torch.kron(eye, rho.T.contiguous()) - torch.kron(
                out.contiguous(), torch.eye(len(rho), dtype=torch.float64)
            )
            gram = constraint.T @ constraint
            found[symbol] = gram if found[symbol] is None else found[symbol] + gram
    values = {symbol: torch.linalg.eigvalsh(gram) for symbol, gram in found.items()}
    return {symbol: int((v < 1e-9 * v[-1]).sum()) for symbol, v in values.items()}


@pytest.mark.parametrize(
    ("residual", "expected"),
    [(False, [4, 4, 4, 2, 21, 17, 34, 26]), (True, None)],
)
def test_the_layer_is_all_there_is(residual, expected):
    """Dimension of the null space of the constraint = number of weights = rank of the layer's maps."""
    size = Sizes(2, 2, 1, 1, 3)
    counts = count(size, 1, 1, residual=residual)
    assert null_dimensions(size, RESIDUAL_FACTORS if residual else FACTORS) == counts
    if expected:
        assert list(counts.values()) == expected
    layer = made(EquivariantLayer, size, 1, 1, residual=residual)
    parameters = dict(layer.named_parameters())
    x = merge_heads(weights(size, 60, 1))

    def out(p):
        return torch.func.functional_call(layer, p, (x,))

    jacobian = torch.func.jacrev(out)(parameters)
    for symbol, total in counts.items():
        matrix = torch.cat([part.flatten(jacobian[symbol][name].ndim - p.ndim).flatten(0, -2)
                            for (name, part), p in zip(jacobian[symbol].items(), parameters.values())], 1)  # fmt: skip
        singular = torch.linalg.svdvals(matrix)
        assert int((singular > 1e-9 * singular[0]).sum()) == total


@pytest.mark.parametrize(("d", "e"), [(1, 10), (3, 2)])
@pytest.mark.parametrize("size", CASES, ids=str)
def test_parameter_counts(size, d, e):
    big = size.dim
    formula = e * d * (2 * big**3 + 12 * big**2 + 15 * big + 12) + 2 * e * (big + 1)
    layer = EquivariantLayer(size, d, e)
    assert sum(p.numel() for p in layer.parameters()) == sum(count(size, d, e).values()) == formula
    assert sum(p.numel() for p in InvariantLayer(size, d, e).parameters()) == e * d * (big**2 + 3 * big + 2) + e
    wide = EquivariantLayer(size, d, e, residual=True)
    assert sum(p.numel() for p in wide.parameters()) == sum(count(size, d, e, residual=True).values())


def test_published_counts_and_the_low_rank_form():
    size = Sizes(32, 2, 16, 16, 64)
    whole = sum(p.numel() for p in EquivariantLayer(size, 1, 10).parameters())
    thin = sum(p.numel() for p in EquivariantLayer(size, 1, 10, rank=8).parameters())
    assert whole == 783_820
    assert sum(p.numel() for p in InvariantLayer(size, 10, 10).parameters()) == 112_210
    assert 20 * thin < whole
    encoder = encoder_of(build("transformer-plain", input_shape=(1, 28, 28), classes=10).state_dict(), 2)
    assert sum(p.numel() for p in TransformerNFN(encoder).parameters()) == 1_812_181
    assert sum(count(Sizes(768, 12, 64, 64, 3072), 1, 10).values()) > 9e9


def test_terms_of_each_output():
    sets = term_sets(PERCEPTRON, OUTPUTS, acted_axes(False))
    terms = {name: sum(len(s.sources) + (not s.tied) for s in sets if name in s.outputs) for name in OUTPUTS}
    assert terms == {"A": 13, "a": 10, "B": 10, "b": 7}
    assert [(s.tied, s.sources) for s in sets][1:] == [("j", ("T", "A")), ("k", ("A", "a", "B")), ("jk", ("A",))]


@pytest.mark.parametrize("residual", [False, True])
def test_low_rank_is_the_whole_layer_with_thin_coefficients(residual):
    """z_r = Σ u_p S_pq v_q, worked out from S and T themselves."""
    size, x = CASES[1], weights(CASES[1], 4, 2)
    s = torch.einsum("nchpk,nchqk->ncpq", x["Q"], x["K"])
    t = torch.einsum("nchpk,nchkq->ncpq", x["V"], x["O"])
    attention = Explicit(merge_heads(x))
    for terms in term_sets(PERCEPTRON, OUTPUTS, acted_axes(residual)):
        part = made(Terms, size, 2, acted_axes(residual), terms, 5, 3, 1.0)
        probes = part.probes
        if "S" in terms.sources:
            expected = torch.einsum("rcp,rcq,ncpq->nr", probes["Sp"], probes["Sq"], s)
            torch.testing.assert_close(part.source("S", attention, x), expected)
        if "T" in terms.sources:
            if "Tj" in probes:
                expected = torch.einsum("rcp,rcj,ncpj->nr", probes["Tp"], probes["Tj"], t)
            elif "j" in terms.tied:
                expected = torch.einsum("rcp,ncpj->njr", probes["Tp"], t)
            else:
                expected = torch.einsum("rcp,ncpj->nr", probes["Tp"], t)
            torch.testing.assert_close(part.source("T", attention, x), expected)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("outputs", [2, 20])
def test_composed_attention_is_the_explicit_one(form, outputs):
    """Two layers on matrices that networks share, against the same on the networks' own channels."""
    size, x = CASES[1], merge_heads(weights(CASES[1], 6, 1))
    first, second = (made(EquivariantLayer, size, a, b, **form) for a, b in ((1, 3), (3, 2)))
    invariant = made(InvariantLayer, size, 2, outputs, **form)
    y = first(x)
    z = second(y)
    attention = Composed(x)
    a = first.perceptron(attention, x)
    attention = first.compose(attention)
    b = second.perceptron(attention, a)
    attention = second.compose(attention)
    for symbol in OUTPUTS:
        torch.testing.assert_close(b[symbol], z[symbol])
    for name in ("S", "T"):
        torch.testing.assert_close(attention.outer(name), Explicit(z).outer(name))
    torch.testing.assert_close(invariant.terms(attention, b), invariant(z))


def literal(layer, x, symbol):
    """An output of the whole layer term by term, straight from the published formula, heads apart."""
    c = layer.c_out
    d, m = layer.size.dim, layer.size.hidden
    hk, hv = layer.size.heads * layer.size.key, layer.size.heads * layer.size.value
    s = torch.einsum("nchpk,nchqk->ncpq", x["Q"], x["K"]) / hk**0.5
    t = torch.einsum("nchpk,nchkq->ncpq", x["V"], x["O"]) / hv**0.5
    n, i = s.shape[:2]
    by = {part.terms.tied: part for part in layer.sets}
    tables = {tied: part.mix.weight for tied, part in by.items()}
    tables[""] = torch.cat([by[""].wide["S"].flatten(1), tables[""]], 1)
    columns = {"": [i * d * d, i * d, i, i, i * d, i * d], "j": [i * d, i], "k": [i, i, i * d], "jk": [i]}
    rows = {"": [c, c, c * d, c * d], "j": [c], "k": [c, c, c * d], "jk": [c]}
    names = {"": ["A", "a", "B", "b"], "j": ["A"], "k": ["A", "a", "B"], "jk": ["A"]}
    phi = {
        k: w.split(rows[k], 0)[names[k].index(symbol)].split(columns[k], 1)
        for k, w in tables.items()
        if symbol in names[k]
    }
    bias = by[""].mix.bias.split(rows[""])[names[""].index(symbol)]
    sources = {
        "": [s.reshape(n, -1), t.sum(3).reshape(n, -1) / d**0.5, x["A"].sum((2, 3)) / (d * m) ** 0.5,
             x["a"].sum(2) / m**0.5, x["B"].sum(2).reshape(n, -1) / m**0.5, x["b"].reshape(n, -1)],
        "j": [t.permute(0, 3, 1, 2).flatten(2), x["A"].sum(3).mT / m**0.5],
        "k": [x["A"].sum(2).mT / d**0.5, x["a"].mT, x["B"].transpose(1, 2).flatten(2)],
        "jk": [x["A"].permute(0, 2, 3, 1)],
    }  # fmt: skip
    free = (c, d) if symbol in "Bb" else (c,)
    parts = {k: sum(y @ f.T for y, f in zip(sources[k], phi[k])) for k in phi}
    parts = {k: v.unflatten(-1, free) for k, v in parts.items()}
    total = bias.unflatten(0, free) + parts[""]
    if symbol == "b":
        return total
    if symbol == "a":
        return (total[:, None] + parts["k"]).mT
    if symbol == "B":
        return (total[:, None] + parts["k"]).movedim(2, 1)
    return (total[:, None, None] + parts["j"][:, :, None] + parts["k"][:, None] + parts["jk"]).movedim(3, 1)


def test_outputs_are_those_of_the_published_formula():
    size = CASES[0]
    layer, x = made(EquivariantLayer, size, 2, 3), weights(CASES[0], 4, 2)
    torch.nn.init.normal_(layer.sets[0].mix.bias)
    y = layer(merge_heads(x))
    for symbol in OUTPUTS:
        torch.testing.assert_close(y[symbol], literal(layer, x, symbol))
    phi = layer.rows["Q"].weight.reshape(3, 6, 2, 6)
    expected = torch.einsum("ojip,nispc->nosjc", phi, x["Q"])
    torch.testing.assert_close(separate_heads(y, 2)["Q"], expected)
    o = torch.einsum("oi,niscj->noscj", layer.keep, x["O"])
    o = o + torch.einsum("oi,nisc->nosc", layer.spread, x["O"].sum(-1) / 6**0.5)[..., None]
    torch.testing.assert_close(separate_heads(y, 2)["O"], o)
