import math
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asym.store import read_table, update_table
from asym.store.tables import _cell, _typed_column


def rows(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_the_first_update_makes_the_file(tmp_path: Path):
    path = tmp_path / "results" / "lmc.csv"
    table = update_table(path, rows(pair=[0, 1], loss=[0.1, 2.0], ok=[True, False], name=["a", "b,c"]), ["pair"])
    assert path.read_text() == 'pair,loss,ok,name\n0,0.1,True,a\n1,2.0,False,"b,c"\n'
    assert [str(kind) for kind in table.dtypes] == ["int64", "float64", "bool", "str"]
    assert {entry.name for entry in path.parent.iterdir()} <= {"lmc.csv", ".lmc.csv.lock"}


def test_rows_of_the_same_key_are_replaced_in_place_and_others_added(tmp_path: Path):
    path = tmp_path / "t.csv"
    update_table(path, rows(config=["a", "a", "b"], pair=[0, 1, 0], loss=[0.5, 0.25, 0.125]), ["config", "pair"])
    table = update_table(path, rows(config=["a", "c"], pair=[1, 0], loss=[9.0, 8.0]), ["config", "pair"])
    assert table.to_dict("list") == {
        "config": ["a", "a", "b", "c"],
        "pair": [0, 1, 0, 0],
        "loss": [0.5, 9, 0.125, 8],
    }


def test_columns_are_united_in_a_stable_order(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("note,k,old\nmine,1,0.10\nother,2,7\n")
    table = update_table(path, rows(new=[1.5], k=[2]), ["k"])
    # The untouched row keeps its text, 0.10 too; the replaced one keeps what the new rows do not know.
    assert path.read_text() == "note,k,old,new\nmine,1,0.10,\nother,2,7,1.5\n"
    assert list(table.columns) == ["note", "k", "old", "new"]
    assert update_table(path, rows(k=[3], new=[0.5]), ["k"]).columns.tolist() == ["note", "k", "old", "new"]


def test_the_same_update_twice_changes_nothing(tmp_path: Path):
    path = tmp_path / "t.csv"
    new = rows(k=[1, 2], x=[1 / 3, float("nan")], s=["a", None], flag=[True, None], n=pd.array([1, None], "Int64"))
    first = update_table(path, new, ["k"])
    text = path.read_text()
    pd.testing.assert_frame_equal(update_table(path, new, ["k"]), first)
    assert path.read_text() == text
    pd.testing.assert_frame_equal(update_table(path, read_table(path), ["k"]), first)
    assert path.read_text() == text == "k,x,s,flag,n\n1,0.3333333333333333,a,True,1\n2,nan,,,\n"


def test_integers_stay_integers_when_pandas_made_them_floats(tmp_path: Path):
    path = tmp_path / "t.csv"
    update_table(path, rows(k=[1, 2], n=[5, 6], x=[1.0, 2.0]), ["k"])
    table = update_table(path, rows(k=[2.0, 3.0], n=[7.0, 8.0], x=[3.0, 4.0]), ["k"])
    assert table["k"].tolist() == [1, 2, 3]
    assert [str(kind) for kind in table.dtypes] == ["int64", "int64", "float64"]
    assert path.read_text() == "k,n,x\n1,5,1.0\n2,7,3.0\n3,8,4.0\n"


def test_missing_cells_and_nan_are_told_apart(tmp_path: Path):
    path = tmp_path / "t.csv"
    update_table(path, rows(k=[1], x=[float("nan")]), ["k"])
    table = update_table(path, rows(k=[2], n=[4], ok=[True], s=["x"]), ["k"])
    assert path.read_text() == "k,x,n,ok,s\n1,nan,,,\n2,,4,True,x\n"
    assert [str(kind) for kind in table.dtypes] == ["int64", "float64", "Int64", "boolean", "str"]


def test_a_hash_of_digits_is_text(tmp_path: Path):
    path = tmp_path / "t.csv"
    config = ["012345678901", "123456789e12"]
    table = update_table(path, rows(config=config, other=["1", "2"]), ["config"])
    assert table["config"].tolist() == config
    assert update_table(path, rows(config=["12345678901"], other=["3"]), ["config"])["config"].tolist() == [
        *config,
        "12345678901",
    ]


@given(st.lists(st.floats(width=64), min_size=1, max_size=5))
def test_floats_come_back_with_the_same_bits(values: list[float]):
    back = _typed_column("x", [_cell(value, "x", False) for value in values])
    assert back.dtype == np.float64
    assert [value.hex() for value in back] == [value.hex() for value in values]


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=1, max_size=5), st.booleans())
def test_integers_come_back(values: list[int], gap: bool):
    back = _typed_column("x", [*map(str, values), *([""] if gap else [])])
    assert str(back.dtype) == ("Int64" if gap else "int64")
    assert back.dropna().tolist() == values


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_any_text_survives_in_a_text_column(tmp_path_factory: pytest.TempPathFactory, values: list[str]):
    path = tmp_path_factory.mktemp("text") / "t.csv"
    values = ["word", *values]
    table = update_table(path, pd.DataFrame({"k": range(len(values)), "s": values}), ["k"])
    assert table["s"].tolist() == values
    assert read_table(path)["s"].tolist() == values


@pytest.mark.parametrize("value", [np.float32(0.1), np.float64(0.1), np.int8(3), np.bool_(True), pd.NA, None])
def test_scalars_of_numpy_and_pandas_are_cells(value: object):
    expected = {"float32": "0.10000000149011612", "float64": "0.1", "int8": "3", "bool": "True"}
    assert _cell(value, "x", False) == expected.get(type(value).__name__.removesuffix("_"), "")


def test_what_is_no_cell_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="column 'x' holds a list"):
        update_table(tmp_path / "t.csv", rows(k=[1], x=[[1, 2]]), ["k"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("new", "key", "message"),
    [
        (rows(a=[1]), ["b"], r"key: \['b'\] not in the rows' columns \['a'\]"),
        (rows(a=[1]), [], "key: no columns"),
        (rows(a=[1, 1.0]), ["a"], r"the key {'a': '1'} occurs more than once"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ["a"], "a column occurs twice"),
    ],
)
def test_rows_that_cannot_be_placed_are_refused(tmp_path: Path, new: pd.DataFrame, key: list[str], message: str):
    with pytest.raises(ValueError, match=message):
        update_table(tmp_path / "t.csv", new, key)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1\n", "row 1 has 1 cells, the first line 2"),
        (b"a,a\n1,2\n", "a column occurs twice"),
        (b"\xff\xfe", "not a UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_left_alone(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        update_table(path, rows(a=[1]), ["a"])
    assert path.read_bytes() == content
    with pytest.raises(ValueError, match=message):
        read_table(path)


def test_no_rows_change_nothing(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("k,x\r\n1,2\r\n")
    assert update_table(path, rows(k=[], y=[]), ["k"]).shape == (1, 3)
    assert path.read_text() == "k,x\n1,2\n"
    assert path.read_bytes().count(b"\r") == 2


def test_reading_what_is_not_there(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no such table"):
        read_table(tmp_path / "t.csv")


def test_a_link_to_a_table_stays_a_link(tmp_path: Path):
    update_table(tmp_path / "real.csv", rows(k=[1]), ["k"])
    (tmp_path / "link.csv").symlink_to("real.csv")
    update_table(tmp_path / "link.csv", rows(k=[2]), ["k"])
    assert (tmp_path / "link.csv").is_symlink()
    assert read_table(tmp_path / "real.csv")["k"].tolist() == [1, 2]


def test_what_a_killed_process_left_is_removed(tmp_path: Path):
    code = "from asym.files import temporary_name; print(temporary_name('t.csv'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    left = tmp_path / done.stdout.strip()
    left.mkdir()
    (left / "t.csv").write_text("half")
    update_table(tmp_path / "t.csv", rows(k=[1]), ["k"])
    assert not left.exists()
    assert read_table(tmp_path / "t.csv")["k"].tolist() == [1]


def test_a_lone_empty_cell_stays_a_row(tmp_path: Path):
    update_table(tmp_path / "t.csv", rows(k=[None, "a"]), ["k"])
    assert len(read_table(tmp_path / "t.csv")) == 2


WRITER = textwrap.dedent("""
    import sys
    import pandas
    from asym.store import update_table

    path, writer = sys.argv[1], int(sys.argv[2])
    for turn in range(20):
        rows = pandas.DataFrame({"writer": [writer, 99], "turn": [turn, turn], f"x{writer}": [turn / 3, 0.5]})
        update_table(path, rows, ["writer", "turn"])
    """)


def test_four_processes_lose_nothing(tmp_path: Path):
    path = tmp_path / "t.csv"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(writer)], stderr=subprocess.PIPE, text=True)
        for writer in range(4)
    ]
    for writer in writers:
        assert writer.communicate(timeout=120)[1] == ""
        assert writer.returncode == 0
    table = read_table(path)
    assert sorted(zip(table["writer"], table["turn"])) == sorted(
        (writer, turn) for writer in (0, 1, 2, 3, 99) for turn in range(20)
    )
    for writer in range(4):
        own = table[table["writer"] == writer].sort_values("turn")
        assert own[f"x{writer}"].tolist() == [turn / 3 for turn in range(20)]
        assert table.loc[table["writer"] == 99, f"x{writer}"].tolist() == [0.5] * 20
    assert not math.isnan(table["turn"].sum())


def test_a_row_that_differs_in_volatile_columns_alone_stays(tmp_path):
    path = tmp_path / "t.csv"
    update_table(path, pd.DataFrame({"k": [1, 2], "v": [0.5, 0.5], "wall_s": [3.0, 3.0]}), ["k"])
    again = pd.DataFrame({"k": [1, 2], "v": [0.5, 0.25], "wall_s": [9.0, 9.0]})
    table = update_table(path, again, ["k"], ["wall_s"])
    assert table["wall_s"].tolist() == [3.0, 9.0]
    assert table["v"].tolist() == [0.5, 0.25]
