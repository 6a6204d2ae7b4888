"""Two networks that a user has already, compared by the connectivity study."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from asym.models import build
from asym.nn import Variant
from asym.store import read_table
from asym.symmetry import permutation_spec, permute, random_permutations
from studies import lmc

ARGS = ["--arch", "mlp", "--width", "0.0625", "--preset", "smoke", "--train-size", "200", "--eval-images", "50"]


def _permuted_pair(folder: Path):
    options = {"input_shape": (1, 8, 8), "classes": 10, "width": 0.0625}
    network = build("mlp", **options).eval()
    spec = permutation_spec(network, torch.zeros(2, 1, 8, 8))
    shuffled = permute(spec, random_permutations(spec, torch.Generator().manual_seed(0)), network.state_dict())
    files = [folder / "a.safetensors", folder / "b.pt"]
    save_file(network.state_dict(), files[0])
    torch.save({"state_dict": {f"module.{k}": v for k, v in shuffled.items()}}, files[1])
    return [str(file) for file in files]


def _compare(folder, files, *more):
    return lmc.main([*ARGS[:4], *ARGS[6:], "--preset", "laptop", "--checkpoints", *files, "--variants", "standard",
                     "--out", str(folder / "results"), "--runs", str(folder / "runs"), "--quiet", *more])  # fmt: skip


def test_checkpoints_of_one_function_are_matched_exactly(tmp_path):
    assert _compare(tmp_path, _permuted_pair(tmp_path)) == 0
    rows = read_table(tmp_path / "results" / "lmc.csv").set_index("alignment")
    assert rows.loc["none", "loss_a"] == pytest.approx(rows.loc["none", "loss_b"], rel=1e-5)
    assert abs(rows.loc["weight", "barrier_loss_max"]) < 1e-5
    assert abs(rows.loc["none", "barrier_loss_mid"]) > 1e-4


@pytest.mark.parametrize("damage", ["missing", "truncated", "nan", "shape", "names", "code"])
def test_bad_checkpoints_are_named(damage, tmp_path, capsys):
    files = _permuted_pair(tmp_path)
    state = build("mlp", input_shape=(1, 8, 8), classes=10, width=0.0625).state_dict()
    name = next(iter(state))
    bad = tmp_path / "bad.pt"
    if damage == "truncated":
        torch.save(state, bad)
        bad.write_bytes(bad.read_bytes()[:500])
    elif damage == "code":
        torch.save({"anything": object}, bad)
    elif damage != "missing":
        change = {"nan": torch.full_like(state[name], float("nan")), "shape": state[name][:-1]}
        state = {f"x{k}": v for k, v in state.items()} if damage == "names" else state | {name: change[damage]}
        torch.save(state, bad)
    assert _compare(tmp_path, [files[0], str(bad)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert str(bad) in err
    assert not (tmp_path / "results").exists()


def test_w_networks_of_different_masks_are_not_compared(tmp_path, capsys):
    files = []
    for mask_seed in (0, 1):
        network = build(
            "mlp", input_shape=(1, 8, 8), classes=10, width=0.0625, variant=Variant("w", mask_seed=mask_seed)
        )
        files.append(str(tmp_path / f"{mask_seed}.safetensors"))
        save_file(network.state_dict(), files[-1])
    assert _compare(tmp_path, files, "--variants", "w") == 2
    assert "share masks" in capsys.readouterr().err
