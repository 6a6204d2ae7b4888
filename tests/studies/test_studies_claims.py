"""Claims: the rule on intervals made by hand, verdicts that turn when the tables do, and the lists that are kept."""

import importlib
import math
import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

from asym.intervals import Interval
from studies import claims
from studies.claims_landscape import BARRIER
from studies.claims_rules import Check, NoRows, Tables, above, apart, below, exactly, inside, paired, verdict
from studies.parsing import parse

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
NAN = math.nan
IDS = (
    [f"A{i:02d}" for i in range(1, 25)] + [f"B0{i}" for i in range(1, 8)] + [f"C0{i}" for i in range(1, 7)]
    + [f"D0{i}" for i in range(1, 5)] + [f"N0{i}" for i in range(1, 8)] + [f"H{i}" for i in range(1, 13)]
)  # fmt: skip


def test_every_claim_is_there_once_and_says_how_to_check_it():
    found = [claim.id for claim in claims.all_claims()]
    assert len(set(found)) == len(found)
    assert set(IDS) <= set(found)
    for claim in claims.all_claims():
        assert claim.settings or claim.elsewhere, claim.id


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        (above("x", Interval(1.0, 0.5, 1.5, 5)), True),
        (above("x", Interval(1.0, -0.5, 2.5, 5)), None),
        (above("x", Interval(-0.1, -0.5, 0.3, 5)), None),
        (above("x", Interval(-0.4, -0.5, -0.3, 5)), False),
        (above("x", Interval(1.0, 0.5, 1.5, 5), 0.5), None),  # the bound itself is not beyond it
        (above("x", Interval(1.0, NAN, NAN, 1)), None),
        (above("x", Interval(NAN, NAN, NAN, 0)), None),
        (below("x", Interval(-1.0, -1.5, -0.5, 5)), True),
        (below("x", Interval(-1.0, -2.5, 0.5, 5)), None),
        (below("x", Interval(0.1, -0.3, 0.5, 5)), None),
        (below("x", Interval(0.4, 0.3, 0.5, 5)), False),
        (below("x", Interval(0.1, -0.3, 0.5, 5), 1.0), True),
        (inside("x", Interval(0.0, -0.05, 0.05, 5), 0.1), True),
        (inside("x", Interval(0.0, -0.2, 0.2, 5), 0.1), None),
        (inside("x", Interval(0.3, 0.2, 0.4, 5), 0.1), False),
        (inside("x", Interval(0.3, -0.2, 0.8, 5), 0.1), None),
        (inside("x", Interval(0.05, NAN, NAN, 1), 0.1), None),
        (exactly("x", [1, 2], [1, 2]), True),
        (exactly("x", [1, 2], [1, 3]), False),
    ],
)
def test_a_check_answers_by_its_interval(check, holds):
    assert check.holds is holds


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ((True, True), "holds"),
        ((True, None), "in part"),
        ((True, False), "in part"),
        ((False, None), "does not"),
        ((False,), "does not"),
        ((None, None), "undecided"),
        ((), "not tested"),
    ],
)
def test_the_verdict_counts_answers(answers, wanted):
    nothing = Interval(NAN, NAN, NAN, 0)
    assert verdict([Check("x", "> 0", nothing, holds) for holds in answers]) == wanted


def _barriers(folder: Path, barriers: dict[tuple[str, str], float]) -> Path:
    rows = [
        {"arch": "resnet20", "dataset": "digits", "variant": v, "alignment": a, "pair": p, BARRIER: x + 0.01 * p,
         "acc_a": 0.9 + 0.001 * p, "acc_b": 0.9}
        for (v, a), x in barriers.items()
        for p in range(4)
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(folder / "lmc.csv", index=False)
    return folder


@pytest.mark.parametrize(
    ("w", "wanted"), [(0.0, "holds"), (1.2, "in part"), (2.5, "does not")], ids=["flat", "half", "no lower"]
)
def test_a_verdict_turns_with_the_table(tmp_path, w, wanted):
    _barriers(tmp_path, {("standard", "none"): 2.0, ("standard", "weight"): 1.5, ("w", "none"): w})
    table = claims.run(claims.Config(out=tmp_path, quiet=True)).set_index("id")
    assert table.loc["A03", "verdict"] == wanted
    assert table.loc["A03", "ours"] == pytest.approx(w - 2.0)
    assert table.loc["A03", "n"] == 4
    assert table.loc["A01", "verdict"] == "holds"
    assert table.loc["A02", "verdict"] == "holds"
    assert table.loc["A02", "ours"] == pytest.approx(-0.5)
    assert table.loc["A05", "verdict"] == "not tested"


def test_pairs_are_told_apart_before_they_are_compared():
    rows = pd.DataFrame({"repeat": [0, 1, 1], "x": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="told apart"):
        paired(rows, rows, "x", ("repeat",))
    with pytest.raises(NoRows):
        paired(rows, rows.assign(repeat=9), "x", ("repeat",))


def test_a_row_that_is_not_there_is_no_answer(tmp_path):
    tables = Tables(_barriers(tmp_path, {("standard", "none"): 2.0}))
    assert len(tables("lmc", variant="standard")) == 4
    for name, where in (("mli", {}), ("lmc", {"variant": "w"})):
        with pytest.raises(NoRows):
            tables(name, **where)
    assert list(tables.missing) == ["mli"]
    with pytest.raises(ValueError, match=r"lmc\.csv has no column colour: it is of another study or an older version"):
        tables("lmc", colour=1)


def _settings():
    return sorted({s.command for claim in claims.all_claims() for s in claim.settings})


@pytest.mark.parametrize("command", _settings())
def test_commands_of_claims_parse(command):
    study, *words = shlex.split(command)
    parse(importlib.import_module(f"studies.{study}").Config, words, prog=study, description="")


def test_the_kept_table_is_that_of_the_kept_tables(tmp_path):
    for file in RESULTS.glob("*.csv"):
        shutil.copy(file, tmp_path)
    kept = (tmp_path / "claims.csv").read_text()
    table = claims.run(claims.Config(out=tmp_path, quiet=True))
    assert (tmp_path / "claims.csv").read_text() == kept, "run `make claims`"
    for file, headlines in ((ROOT / "README.md", True), (RESULTS / "README.md", False)):
        text = file.read_text()
        assert claims.with_list(text, table, headlines=headlines) == text, f"{file.name}: run `make claims`"


def test_documents_are_written_between_their_marks(tmp_path, capsys):
    out = _barriers(tmp_path / "results", {("standard", "none"): 2.0, ("standard", "weight"): 1.5, ("w", "none"): 0.0})
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{claims.MARKS[0]}\nstale\n{claims.MARKS[1]}\nafter\n")
    assert claims.main(["--out", str(out), "--docs", str(readme)]) == 0
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "**holds** (ResNet-20, digits): W minus standard barrier -2.000" in text
    assert "stale" not in text
    printed = capsys.readouterr()
    assert "-2.000" in printed.out
    assert printed.err.count("\n") == 1
    assert re.search(r"not there or without rows, .*: .*\bmli_differences\.csv", printed.err)
    assert "lmc.csv" not in printed.err.replace("_lmc.csv", "")


def test_a_document_beside_the_tables_gets_all_claims_and_any_other_the_headlines(tmp_path, capsys):
    out = _barriers(tmp_path / "results", {("standard", "none"): 2.0})
    documents = [out / "README.md", tmp_path / "README.md"]
    for file in documents:
        file.write_text("\n".join(claims.MARKS))
    assert claims.main(["--out", str(out), "--quiet", "--docs", *map(str, documents)]) == 0
    assert documents[0].read_text().startswith(f"{claims.MARKS[0]}\n| id | claim |")
    assert documents[1].read_text().startswith(f"{claims.MARKS[0]}\n| claim | published |")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        claims.main(["--help"])
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "all claims in a file that lies in the folder --out, beside the tables; the headline claims in any" in told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="alignment"), "has no column alignment"),
        (lambda t: t.drop(columns=BARRIER), f"has no column {BARRIER}"),
        (lambda t: t.drop(columns=["acc_a", "acc_b"]), "has no column acc_a, acc_b"),
        (lambda t: t.assign(study="mli"), "has rows of the study mli"),
    ],
)
def test_a_table_of_another_study_is_refused(tmp_path, capsys, change, message):
    file = _barriers(tmp_path, {(v, a): 1.0 for v in ("standard", "w") for a in ("none", "weight")}) / "lmc.csv"
    change(pd.read_csv(file)).to_csv(file, index=False)
    assert claims.main(["--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert f"--out: {file} {message}" in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["lmc.csv"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--ids", "A99"], "--ids: unknown 'A99'; valid: A01"),
        (["--out", "nowhere"], "--out: nowhere is no folder"),
        (["--docs", "README.md"], "--docs: README.md does not exist"),
        (["--epochs", "3"], "Unrecognized options: --epochs"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, args, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    assert claims.main(args) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert list((tmp_path / "results").iterdir()) == []


def test_claims_by_id_are_printed_whole_and_nothing_is_written(tmp_path, capsys):
    out = _barriers(tmp_path, {("standard", "none"): 2.0})
    assert claims.main(["--out", str(out), "--ids", "A01"]) == 0
    printed = capsys.readouterr().out
    assert "barrier > 0.5? 2.015" in printed
    assert "python -m studies.lmc --alignments none weight activation" in printed
    assert not (out / "claims.csv").exists()


@pytest.mark.parametrize("text", ["a,b\n1\n2,3,4\n", ""])
def test_a_broken_table_is_named_and_the_old_claims_stay(tmp_path, capsys, text):
    (tmp_path / "lmc.csv").write_text(text)
    (tmp_path / "claims.csv").write_text("kept")
    assert claims.main(["--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "lmc.csv" in err
    assert err.count("\n") == 1
    assert (tmp_path / "claims.csv").read_text() == "kept"


def test_a_guard_takes_away_and_earns_nothing():
    nothing = Interval(NAN, NAN, NAN, 0)
    main, unmet = Check("x", "> 0", nothing, True), Check("y", "within ± 1", nothing, None, guard=True)
    assert verdict([main, unmet]) == "in part"
    assert verdict([main, unmet._replace(holds=True)]) == "holds"
    assert verdict([main._replace(holds=False), unmet._replace(holds=True)]) == "does not"


def test_independent_intervals_add_in_squares():
    found = apart(Interval(1.0, 0.7, 1.3, 5), Interval(0.0, -0.4, 0.4, 3))
    assert tuple(found) == pytest.approx((1.0, 0.5, 1.5, 3))
