"""`python -m asym.models`: the table and the CSV."""

import csv
import io

import pytest

from asym.models.__main__ import COLUMNS, main, rows
from asym.names import ARCHS, VARIANTS


def test_csv(capsys):
    assert main(["--csv"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    table = list(csv.DictReader(io.StringIO(out)))
    assert out.splitlines()[0] == "arch,variant,width,input_shape,classes,params_trainable,params_total"
    assert {row["arch"] for row in table} == set(ARCHS)
    keyed = {(r["arch"], r["variant"], r["width"]): r for r in table}
    assert len(keyed) == len(table)
    row = keyed["resnet20", "w", "1.0"]
    assert (row["params_trainable"], row["params_total"], row["input_shape"]) == ("230026", "272474", "3x32x32")
    assert keyed["resnet20", "w", "8.0"]["params_trainable"] == "16273946"
    assert keyed["mlp", "w", "1.0"]["params_trainable"] == "834570"
    assert {r["variant"] for r in table if r["arch"] == "mlp"} == set(VARIANTS)
    assert ("small-cnn", "bias", "1.0") not in keyed


def test_table(capsys):
    assert main(["resnet8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == list(COLUMNS)
    assert lines[2].split() == ["resnet8", "w", "1.0", "3x32x32", "10", "60,634", "78,042"]
    assert len(lines) == 1 + len(rows("resnet8")) == 1 + 2 * len(VARIANTS)  # two widths


def test_bad_input_is_one_line_and_code_2(capsys):
    assert main(["vgg*"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "'vgg*' matches none of mlp" in err
    with pytest.raises(SystemExit) as stop:
        main(["--colour"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
