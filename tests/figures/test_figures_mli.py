import numpy as np
import pandas as pd
import pytest

from figures import mli

LAM = np.linspace(0, 1, 25)


def _write(folder, families=(("standard", "c1"), ("sigma", "c2"), ("w", "c3")), lost=(), **columns):
    rng = np.random.default_rng(0)
    rows, curves, rates = [], [], []
    for variant, config in families:
        for network in range(4):
            key = {"config": config, "variant": variant, "network": network}
            gone = variant in lost
            row = {"arch": "resnet8", "dataset": "digits", "preset": "laptop", "width": 1.0, "norm": "default",
                   "epochs_scale": 1.0, "fixed": "", "batch_size": 64, "train_images": 100, "kappa": config,
                   "diverged": 3 if gone else 0, "smooth_monotone": "" if gone else str(network > 0)}  # fmt: skip
            rows.append(key | row | columns)
            wave = 0.3 * np.sin(9 * LAM) if network == 0 else 0
            loss = rng.uniform(2, 3) * (1 - LAM) + wave + 0.5
            curves += [key | {"lam": x, "smooth_loss": np.nan if gone else y} for x, y in zip(LAM, loss)]
        for low, high in ((0.005, 0.05), (0.05, 0.5)):
            bin_ = {"config": config, "variant": variant, "lr_low": low, "lr_high": high}
            share = {"smooth_monotone": 0.5, "smooth_monotone_low": 0.1, "smooth_monotone_high": 0.9}
            rates.append(bin_ | share | {"smooth_monotone_n": 0 if variant in lost else 2})
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("mli", rows), ("mli_curves", curves), ("mli_by_lr", rates)):
        pd.DataFrame(table).to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_the_same_table_gives_the_same_files(tmp_path):
    first, second = (mli.draw(_write(tmp_path / name)) for name in "ab")
    assert [file.name for file in first] == [f"mli_resnet8_digits_100-images.{kind}" for kind in ("png", "pdf")]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
    other = mli.draw(_write(tmp_path / "c", (("w", "c3"),)))
    assert other[0].read_bytes() != first[0].read_bytes()


def test_settings_get_figures_of_their_own(tmp_path):
    one, two = _write(tmp_path / "1"), _write(tmp_path / "2", fixed="lr=0.1", batch_size=512)
    for name in ("mli.csv", "mli_curves.csv", "mli_by_lr.csv"):
        both = [pd.read_csv(folder / name) for folder in (one, two)]
        both[1]["config"] += "x"
        pd.concat(both).to_csv(one / name, index=False)
    stems = {file.stem for file in mli.draw(one)}
    assert stems == {"mli_resnet8_digits_100-images", "mli_resnet8_digits_100-images_batch-512_fixed-lr-0.1"}


def test_families_of_one_variant_are_told_apart(tmp_path):
    rows = pd.read_csv(_write(tmp_path, (("w", "κ2"), ("w", "κ3"))) / "mli.csv")
    labels = [label for label, _, _ in mli._series(rows)]
    assert len(set(labels)) == 2
    assert "κ2" in labels[0]


@pytest.mark.parametrize("lost", [("sigma",), ("standard", "sigma", "w")])
def test_families_that_diverged_are_drawn(lost, tmp_path):
    assert len(mli.draw(_write(tmp_path, lost=lost))) == 2


@pytest.mark.parametrize("damage", ["missing", "column", "no rows"])
def test_bad_tables_are_one_line(damage, tmp_path, capsys):
    folder = _write(tmp_path)
    file = folder / "mli_by_lr.csv"
    if damage == "missing":
        file.unlink()
    elif damage == "column":
        pd.read_csv(file).drop(columns="lr_low").to_csv(file, index=False)
    else:
        pd.read_csv(file).iloc[:0].to_csv(file, index=False)
    assert mli.main(["--results", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert str(file) in err
    assert not (folder / "figures").exists()


def test_the_command_prints_what_it_wrote(tmp_path, capsys):
    assert mli.main(["--results", str(_write(tmp_path))]) == 0
    assert capsys.readouterr().out.count("mli_resnet8_digits") == 2
