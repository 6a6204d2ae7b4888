"""The figure of the accuracy-prediction study from a table made by hand."""

import pandas as pd
import pytest

from figures import metanet


def _write(folder, zoos=("standard", "w"), parts=("whole", "curve", "matched"), **columns):
    rows = []
    for zoo in zoos:
        for place, reader in enumerate(("stats", "gmn", "scale-gmn")):
            for part in parts:
                if part == "curve" and zoo != zoos[0]:
                    continue
                tau = 0.5 + 0.1 * place
                taus = {"tau": tau, "tau_permuted": tau, "tau_rescaled": tau - 0.2 if reader == "gmn" else tau}
                row = {"arch": "small-cnn", "dataset": "digits", "preset": "laptop", "activations": "relu",
                       "networks": 2000, "network_epochs": 20, "one_seed": False, "shapes": "published",
                       "train_images": 1437, "seed": 0, "checkpoints": "",
                       "config": f"{zoo}{reader}{part}", "variant": zoo, "reader": reader, "part": part,
                       "train_networks": 250 if part == "curve" else 1200}  # fmt: skip
                for name, value in taus.items():
                    missing = zoo == "w" and name != "tau"
                    low, high = (None, None) if missing else (value - 0.05, value + 0.05)
                    row |= {name: None if missing else value, f"{name}_low": low, f"{name}_high": high}
                rows.append(row | columns)
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(folder / "metanet_summary.csv", index=False)
    return folder


def test_the_same_table_gives_the_same_files(tmp_path):
    first, second = (metanet.draw(_write(tmp_path / name)) for name in "ab")
    assert [file.name for file in first] == [
        f"metanet_small-cnn_digits_2000-networks.{kind}" for kind in ("png", "pdf")
    ]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


@pytest.mark.parametrize(
    ("options", "stem"),
    [
        ({"zoos": ("w",), "parts": ("whole",)}, "metanet_small-cnn_digits_2000-networks"),
        ({"preset": "smoke", "network_epochs": 2}, "metanet_small-cnn_digits_2000-networks_2-epochs_smoke"),
        ({"one_seed": True}, "metanet_small-cnn_digits_2000-networks_one-seed"),
        ({"seed": 3, "checkpoints": "1 5"}, "metanet_small-cnn_digits_2000-networks_seed-3_checkpoints-1-5"),
        ({"activations": "relu tanh"}, "metanet_small-cnn_digits_2000-networks_relu+tanh"),
        ({"shapes": "width 0.5 1, depth 2 3"}, "metanet_small-cnn_digits_2000-networks_width-0.5-1-depth-2-3"),
        ({"arch": "resnet8", "network_epochs": "drawn"}, "metanet_resnet8_digits_2000-networks"),
        (dict.fromkeys(("tau", "tau_permuted", "tau_rescaled")), "metanet_small-cnn_digits_2000-networks"),
    ],
)
def test_what_is_missing_is_left_out_and_settings_name_the_file(options, stem, tmp_path):
    files = metanet.draw(_write(tmp_path, **options))
    assert {file.stem for file in files} == {stem}
    assert all(file.stat().st_size > 1000 for file in files)


def test_rows_of_earlier_versions_are_of_the_first_seed(tmp_path):
    _write(tmp_path)
    table = pd.read_csv(tmp_path / "metanet_summary.csv")
    old = table.assign(config=table["config"] + "o", shapes=None, seed=None, checkpoints=None, networks=500)
    pd.concat([table, old]).to_csv(tmp_path / "metanet_summary.csv", index=False)
    stems = {file.stem for file in metanet.draw(tmp_path)}
    assert stems == {f"metanet_small-cnn_digits_{n}-networks" for n in (2000, 500)}


def test_zoos_of_fewer_images_have_figures_of_their_own(tmp_path):
    _write(tmp_path)
    table = pd.read_csv(tmp_path / "metanet_summary.csv")
    fewer = table.assign(train_images=600, config=table["config"] + "f")
    pd.concat([table, fewer]).to_csv(tmp_path / "metanet_summary.csv", index=False)
    stem = "metanet_small-cnn_digits_2000-networks"
    assert [file.stem for file in metanet.draw(tmp_path)] == [stem, stem, f"{stem}_600-images", f"{stem}_600-images"]


def test_forms_are_drawn_against_what_they_are_forms_of(tmp_path, monkeypatch):
    _write(tmp_path, zoos=("standard",), parts=("whole",))
    table = pd.read_csv(tmp_path / "metanet_summary.csv")
    for name, base in (("scale-gmn+receiver", "scale-gmn"), ("scale-gmn-b", "scale-gmn"), ("gmn+gauge", "gmn")):
        row = table[table["reader"] == base].assign(reader=name, config=name)
        table = pd.concat([table, row], ignore_index=True)
    table.to_csv(tmp_path / "metanet_summary.csv", index=False)
    with_forms = [("scale-gmn+receiver", "scale-gmn"), ("scale-gmn+receiver", "gmn"), ("scale-gmn-b", "scale-gmn"),
                  ("scale-gmn-b", "gmn"), ("gmn+gauge", "gmn")]  # fmt: skip
    pd.DataFrame(
        [
            {"config": a, "variant": "standard", "reader": a, "other_reader": b, "part": "whole", "measure": "tau",
             "difference": 0.01, "low": -0.01, "high": 0.03, "paired": True}
            for a, b in with_forms
        ]
    ).to_csv(tmp_path / "metanet_differences.csv", index=False)  # fmt: skip
    drawn = []
    monkeypatch.setattr(metanet, "_forms", lambda *args: drawn.append(args) or [])
    plain = {file.stem for file in metanet.draw(tmp_path)}
    ((_, stem, _, changes, _),) = drawn
    assert plain == {"metanet_small-cnn_digits_2000-networks"}
    assert stem == "metanet_small-cnn_digits_2000-networks_forms"
    found = list(zip(changes["reader"], changes["other_reader"]))
    assert found == [("scale-gmn+receiver", "scale-gmn"), ("scale-gmn-b", "scale-gmn")]
    monkeypatch.undo()
    files = metanet.draw(tmp_path)
    assert [file.name for file in files[2:]] == [f"{stem}.png", f"{stem}.pdf"]
    assert all(file.stat().st_size > 1000 for file in files)


def test_forms_without_their_base_stand_among_the_readers(tmp_path, monkeypatch):
    _write(tmp_path, zoos=("standard",), parts=("whole",))
    table = pd.read_csv(tmp_path / "metanet_summary.csv").replace({"reader": {"scale-gmn": "scale-gmn+receiver"}})
    table.to_csv(tmp_path / "metanet_summary.csv", index=False)
    drawn = []
    monkeypatch.setattr(metanet, "_figure", lambda *args: drawn.append(args) or [])
    metanet.draw(tmp_path)
    ((_, _, _, rows),) = drawn
    assert set(rows["reader"]) == {"stats", "gmn", "scale-gmn+receiver"}


def test_a_missing_table_is_one_line(tmp_path, capsys):
    assert metanet.main(["--results", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "python -m studies.metanet" in err
