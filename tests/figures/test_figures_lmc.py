import numpy as np
import pandas as pd
import pytest

from asym.names import ALIGNMENTS, VARIANTS
from figures import lmc, style

LAM = np.linspace(0, 1, 25)


def _write(folder, configs=(("standard", "none", "c1"), ("standard", "weight", "c1"), ("w", "none", "c2")), **columns):
    rng = np.random.default_rng(0)
    rows, curves = [], []
    for variant, alignment, config in configs:
        for pair in range(3):
            height = rng.uniform(0.5, 2)
            key = {"config": config, "variant": variant, "alignment": alignment, "pair": pair}
            row = {"arch": "mlp", "dataset": "digits", "preset": "laptop", "width": 1.0, "norm": "default", "epochs": 5,
                   "train_images": 100, "kappa": config, "barrier_loss_mid": height}  # fmt: skip
            rows.append(key | row | columns)
            for split in ("test", "train"):
                curves += [key | {"split": split, "lam": x, "loss": height * x * (1 - x) * 4} for x in LAM]
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(folder / "lmc.csv", index=False)
    pd.DataFrame(curves).to_csv(folder / "lmc_curves.csv", index=False)
    return folder


def test_png_and_pdf_come_from_the_tables_alone(tmp_path):
    files = lmc.draw(_write(tmp_path))
    assert [file.name for file in files] == [f"lmc_mlp_digits_5-epochs_100-images.{kind}" for kind in ("png", "pdf")]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    pdf = files[1].read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/Type3" not in pdf  # fonts are embedded as TrueType
    assert b"/FontFile2" in pdf


def test_the_same_table_gives_the_same_files(tmp_path):
    first, second = (lmc.draw(_write(tmp_path / name)) for name in "ab")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
    other = lmc.draw(_write(tmp_path / "c", (("w", "none", "c2"),)))
    assert other[0].read_bytes() != first[0].read_bytes()


def test_data_sets_and_lengths_get_figures_of_their_own(tmp_path):
    one, two = _write(tmp_path / "1"), _write(tmp_path / "2", epochs=50)
    for name in ("lmc.csv", "lmc_curves.csv"):
        both = [pd.read_csv(folder / name) for folder in (one, two)]
        both[1]["config"] += "x"
        pd.concat(both).to_csv(one / name, index=False)
    names = {file.stem for file in lmc.draw(one)}
    assert names == {f"lmc_mlp_digits_{epochs}-epochs_100-images" for epochs in (5, 50)}


def test_series_of_one_variant_are_told_apart(tmp_path):
    rows = pd.read_csv(_write(tmp_path, (("w", "none", "κ2"), ("w", "none", "κ3"))) / "lmc.csv")
    labels = [label for label, _ in lmc._series(rows)]
    assert len(set(labels)) == 2
    assert "κ2" in labels[0]
    assert "κ3" in labels[1]


def test_diverged_pairs_and_single_pairs_are_drawn(tmp_path):
    folder = _write(tmp_path, (("standard", "none", "c"),))
    rows = pd.read_csv(folder / "lmc.csv")
    rows.loc[0, "barrier_loss_mid"] = np.nan
    rows.iloc[:2].to_csv(folder / "lmc.csv", index=False)
    assert len(lmc.draw(folder)) == 2


@pytest.mark.parametrize("damage", ["missing", "empty", "column", "no rows"])
def test_bad_tables_are_one_line(damage, tmp_path, capsys):
    folder = _write(tmp_path)
    file = folder / "lmc_curves.csv"
    if damage == "missing":
        file.unlink()
    elif damage == "empty":
        file.write_text("")
    elif damage == "column":
        pd.read_csv(file).drop(columns="loss").to_csv(file, index=False)
    else:
        pd.read_csv(file).iloc[:0].to_csv(file, index=False)
    assert lmc.main(["--results", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert str(file) in err
    assert not (folder / "figures").exists()


def test_the_command_prints_what_it_wrote(tmp_path, capsys):
    folder = _write(tmp_path)
    assert lmc.main(["--results", str(folder)]) == 0
    assert capsys.readouterr().out.count("lmc_mlp_digits") == 2


def test_every_name_has_a_look_of_its_own():
    assert set(style.COLOURS) == set(style.NAMES)
    assert set(VARIANTS) <= set(style.COLOURS)
    assert style.COLOURS["smaller"] == style.COLOURS["standard-equal"]  # two names of one thing
    assert len(set(style.COLOURS.values())) == len(style.COLOURS) - 1
    assert set(style.ALIGNED) == set(style.DASHES) == set(style.MARKERS) == set(ALIGNMENTS)
