"""Small transformers: published count, symmetric where they should be, every variant."""

import pytest
import torch

from asym.models import build, count
from asym.models.transformer import patch_size, waves
from asym.nn import Variant
from asym.symmetry import permutation_spec, permute, random_permutations


def test_parameters_of_the_zoos_encoder():
    assert count("transformer-plain", input_shape=(1, 28, 28), classes=10) == (18_506, 18_506)
    d, hidden = 32, 64
    block = 4 * (d * d + d) + 2 * 2 * d + (d * hidden + hidden) + (hidden * d + d)
    embed, head = 16 * d + d, 2 * d + 10 * d + 10
    assert count("transformer", input_shape=(1, 28, 28), classes=10)[0] == embed + 2 * block + head


@pytest.mark.parametrize("variant", ["standard", "w", "sigma", "w-zero"])
@pytest.mark.parametrize("arch", ["transformer", "transformer-plain"])
def test_variants(arch, variant):
    model = build(arch, input_shape=(1, 8, 8), classes=3, width=0.25, variant=Variant(variant))
    out = model(torch.randn(2, 1, 8, 8))
    assert out.shape == (2, 3)
    assert out.isfinite().all()


def test_attention_is_that_of_pytorch():
    model = build("transformer", input_shape=(1, 8, 8), classes=3, width=0.25, depth=1).double()
    layer = model.blocks[0].attention
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    q, k, v = (f(x).unflatten(-1, (2, 4)).transpose(1, 2) for f in (layer.query, layer.key, layer.value))
    expected = layer.out(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("arch", ["transformer", "transformer-plain"])
def test_permutations_keep_the_function(arch):
    model = build(arch, input_shape=(1, 8, 8), classes=3, width=0.25, depth=1).double()
    x = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    spec = permutation_spec(model, x)
    sizes = {name.rpartition(".")[2]: group.size for name, group in spec.groups.items()}
    assert (sizes["heads"], sizes["query_key"], sizes["value"], sizes["up"]) == (2, 4, 4, 16)
    perms = random_permutations(spec, torch.Generator().manual_seed(0))
    before = model(x)
    model.load_state_dict(permute(spec, perms, model.state_dict()))
    torch.testing.assert_close(model(x), before)


def test_patches_and_positions():
    assert [patch_size(n, n) for n in (28, 32, 8, 3)] == [4, 4, 2, 1]
    table = waves(5, 6)
    assert table.shape == (5, 6)
    torch.testing.assert_close(
        table[3, :2], torch.tensor([3.0]).sin().new_tensor([0.14112, -0.98999]), atol=1e-4, rtol=0
    )
    with pytest.raises(ValueError, match="leaves no unit"):
        build("transformer", input_shape=(1, 8, 8), classes=3, width=0.001)
