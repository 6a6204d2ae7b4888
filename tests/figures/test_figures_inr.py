import pandas as pd
import pytest

from figures import inr

READERS = ("flat+matched", "scale-gmn", "scale-gmn-b+gauge", "own")


def _write(folder, configs=("c1",), tasks=("classify", "edit"), **columns):
    summary, fits, images = [], [], []
    for config in configs:
        base = {"config": config, "preset": "laptop", "dataset": "digits"} | columns
        for task in tasks:
            for k, reader in enumerate((*READERS, *(("no-edit", "mean-image") if task == "edit" else ()))):
                row = base | {"task": task, "reader": reader, "params": 9}
                for name in ("accuracy", "accuracy_moved", "mse_relative", "mse_relative_moved"):
                    row |= {name: 0.2 * (k + 1), f"{name}_low": 0.1, f"{name}_high": 0.9 if k else float("nan")}
                summary.append(row)
        for split in ("train", "test"):
            fits.append(base | {"split": split, "networks": 1000, "siren": "2-4-1", "psnr": 30.0})
        for reader in (*READERS, "target") if "edit" in tasks else ():
            images += [base | {"reader": reader, "image": i, "label": i, "mse": 0.1, "channels": 1, "height": 2,
                               "width": 2, "pixels": "#00ff8040"} for i in range(3)]  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("inr_summary", summary), ("inr_fits", fits), ("inr_images", images)):
        if table:
            pd.DataFrame(table).to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_the_same_table_gives_the_same_files(tmp_path):
    first, second = (inr.draw(_write(tmp_path / name)) for name in "ab")
    assert [file.name for file in first] == ["inr_digits.png", "inr_digits.pdf"]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_settings_get_figures_of_their_own(tmp_path):
    stems = {file.stem for file in inr.draw(_write(tmp_path, ("c1", "c2")))}
    assert stems == {"inr_digits_c1", "inr_digits_c2"}
    stems = {file.stem for file in inr.draw(_write(tmp_path / "smoke", preset="smoke"))}
    assert stems == {"inr_digits_smoke"}


def test_without_edits_there_are_no_pictures_to_read(tmp_path):
    folder = _write(tmp_path, tasks=("classify",))
    assert not (folder / "inr_images.csv").exists()
    assert len(inr.draw(folder)) == 2


def test_names_for_people():
    assert inr.label_of("flat+matched") == "flat MLP ="
    assert inr.label_of("scale-gmn-b+gauge") == "ScaleGMN, both ways, gauge"
    assert inr.label_of("own") == "own"
    assert inr._order(["scale-gmn", "own", "flat+matched", "target", "flat"])[:3] == ["target", "flat", "flat+matched"]


def test_colours_of_pixels():
    row = {"channels": 3, "height": 1, "width": 2, "image": 0, "pixels": "#000102030405"}
    assert inr.pixels_of(row).tolist() == [[[0, 2, 4], [1, 3, 5]]]


@pytest.mark.parametrize("damage", ["missing", "column", "no rows"])
def test_bad_tables_are_one_line(damage, tmp_path, capsys):
    folder = _write(tmp_path)
    file = folder / "inr_images.csv"
    if damage == "missing":
        file.unlink()
    elif damage == "column":
        pd.read_csv(file).drop(columns="pixels").to_csv(file, index=False)
    else:
        pd.read_csv(file).iloc[:0].to_csv(file, index=False)
    assert inr.main(["--results", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert str(file) in err
    assert not (folder / "figures").exists()


def test_the_command_prints_what_it_wrote(tmp_path, capsys):
    assert inr.main(["--results", str(_write(tmp_path))]) == 0
    assert capsys.readouterr().out.count("inr_digits") == 2
