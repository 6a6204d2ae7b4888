import numpy as np
import pandas as pd
import pytest

from figures import ablate

LEVELS = {
    "kappa-nfix": [("standard", "none", np.nan), ("w", "none", 0.3), ("w", "none", 3.0)],
    "lr": [("standard", "none", 1e-3), ("standard", "none", 1e-2), ("w", "none", 1e-3), ("w", "none", 1e-2)],
    "bias": [("standard", "none", np.nan), ("bias", "none", 1.0), ("bias", "none", 27.0)],
    "zero": [("standard", "none", np.nan), ("standard", "weight", np.nan), ("w-zero", "weight", 0.0)],
    "syre": [("standard", "none", 0.1), ("syre", "none", 0.1), ("syre", "none", 1.0)],
    "plane": [("standard", "none", np.nan), ("w", "none", np.nan)],
}


def _write(folder, factor, pairs=3, seed=0, diverged=False, **columns):
    rng = np.random.default_rng(seed)
    rows, grid = [], []
    for i, (variant, alignment, value) in enumerate(LEVELS[factor]):
        for pair in range(pairs):
            key = {"config": f"c{i}", "level": f"level {i}", "variant": variant, "alignment": alignment, "pair": pair}
            row = {"arch": "mlp", "dataset": "digits", "preset": "laptop", "value": value, "n_fix_scale": 1.0,
                   "acc_a": rng.uniform(), "acc_b": rng.uniform(), "epochs_to_target": np.nan if pair else 3.0,
                   "syre_scale": "1/sqrt(d)" if variant == "syre" else None, "target_accuracy": 0.9,
                   "barrier_loss_mid": np.nan if diverged and i == 1 else rng.uniform(0.5, 2)}  # fmt: skip
            rows.append(key | row | columns)
        key = {"config": f"c{i}", "level": f"level {i}", "variant": variant, "alignment": alignment, "pair": 0}
        grid += [key | {"column": x, "row": y, "x": x / 4, "y": y / 4, "loss": rng.uniform(0.1, 3)}
                 for x in range(5) for y in range(5)]  # fmt: skip
        grid += [key | {"column": x, "row": -1, "x": x / 2, "y": x % 2, "loss": 0.1} for x in range(3)]
    folder.mkdir(parents=True, exist_ok=True)
    name = f"ablate_{factor.replace('-', '_')}"
    pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)
    if factor == "plane":
        pd.DataFrame(grid).to_csv(folder / f"{name}_grid.csv", index=False)
    return folder


@pytest.mark.parametrize("factor", LEVELS)
def test_every_kind_of_figure_comes_from_the_tables_alone(factor, tmp_path):
    files = ablate.draw(_write(tmp_path, factor), [factor])
    stem = f"ablate_{factor.replace('-', '_')}_mlp_digits"
    assert [file.name for file in files] == [f"{stem}.{kind}" for kind in ("png", "pdf")]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert b"/FontFile2" in files[1].read_bytes()


def test_the_same_table_gives_the_same_file_and_another_another(tmp_path):
    one, same, other = (
        ablate.draw(_write(tmp_path / name, "zero", seed=seed), ["zero"])[0].read_bytes()
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert one == same
    assert one != other


@pytest.mark.parametrize("factor", ["kappa-nfix", "lr", "bias", "zero"])
@pytest.mark.parametrize(("pairs", "diverged"), [(1, False), (3, True)])
def test_one_pair_and_diverged_levels_are_drawn(factor, pairs, diverged, tmp_path):
    assert len(ablate.draw(_write(tmp_path, factor, pairs, diverged=diverged), [factor])) == 2


def test_architectures_get_figures_of_their_own(tmp_path):
    one, two = _write(tmp_path / "1", "lr"), _write(tmp_path / "2", "lr", arch="resnet8", preset="smoke")
    both = pd.concat([pd.read_csv(folder / "ablate_lr.csv") for folder in (one, two)])
    both.to_csv(one / "ablate_lr.csv", index=False)
    names = {file.stem for file in ablate.draw(one, ["lr"])}
    assert names == {"ablate_lr_mlp_digits", "ablate_lr_resnet8_digits_smoke"}


def test_the_command_draws_what_is_there(tmp_path, capsys):
    assert ablate.main(["--results", str(tmp_path)]) == 2
    assert "python -m studies.ablate" in capsys.readouterr().err
    _write(tmp_path, "zero")
    assert ablate.main(["--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert ablate.main(["--results", str(tmp_path), "--factor", "lr"]) == 2
    assert ablate.main(["--results", str(tmp_path), "--factor", "rl"]) == 2
    assert "--factor" in capsys.readouterr().err
