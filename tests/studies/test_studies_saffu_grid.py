"""The ablation grid of the SAFFU study: its designs, its effects, and a run on a small text."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from saffu_text import write_text

from asym.explicit.softmax import SMOOTHING
from asym.store import config_hash, read_table
from studies import saffu
from studies.saffu_begin import begin, build
from studies.saffu_grid import ARMS, LEVELS, MEASURES, ONE, RANDOM, designs, effects, levels, slopes
from studies.saffu_nets import EXPLICIT, Net, Part, Sizes, Start, TextArgs

BASE = Sizes(64, 32, 16, 8)
NET = Net("saffu", Sizes(8, 6, 4, 3), dataclasses.replace(EXPLICIT, contexts=300), Part(), 0.1, 6, 24, 0)


def test_one_factor_at_a_time_differs_in_that_factor_alone():
    found = {design.name: design for design in designs(BASE, 1000, 0, seed=0)}
    base = dict(found.pop("base").values)
    assert base["bits"] == 64
    assert base["priming"] == EXPLICIT.priming
    assert base["smoothing"] == SMOOTHING
    wanted = sum(len({*values, base[name]}) - 1 for name, values in LEVELS.items())
    assert len(found) == wanted
    for design in found.values():
        changed = {name for name, value in design.values if value != base[name]}
        assert changed == {design.factor}


def test_random_designs_depend_on_seed_and_number_alone():
    few, many = ([d for d in designs(BASE, 1000, n, seed=3) if d.name.startswith("random")] for n in (4, 9))
    assert many[:4] == few
    assert {name for design in many for name, _ in design.values} == set(LEVELS)
    assert [d.values for d in designs(BASE, 1000, 4, seed=4)][-4:] != [d.values for d in few]


def test_codes_too_short_for_the_vocabulary_are_no_levels():
    assert levels(BASE, 2**20)["hidden"] == LEVELS["hidden"]
    assert 16 not in levels(Sizes(64, 16, 16, 8), 2**20)["hidden"]


def test_what_acts_on_the_solution_alone_leaves_the_random_arm_as_it_is():
    like = dataclasses.replace(NET, start=Start(seed=5, contexts=300))
    found = {d.name: d for d in designs(BASE, 100, 0, seed=0)}
    for name in ("priming=16", "sharpness=4", "smoothing=0.1", "attention=uniform"):
        assert found[name].net(like, "random") == found["base"].net(like, "random")
        assert found[name].net(like, "warm") != found["base"].net(like, "warm")
    assert found["bits=128"].net(like, "random") != found["base"].net(like, "random")


def test_usual_settings_leave_the_hash_of_a_network_as_it_was():
    config = NET.config("text", 60)
    assert "vectors" not in config
    assert "sharpness" not in config["start"]
    assert "smoothing" not in config["start"]
    others = [dataclasses.replace(NET, vectors="cat")]
    others += [
        dataclasses.replace(NET, start=dataclasses.replace(NET.start, **{name: 4.0}))
        for name in ("sharpness", "smoothing")
    ]
    assert len({config_hash(net.config("text", 60)) for net in [NET, *others]}) == 4


def test_sharpness_smoothing_and_vectors_reach_the_network(tmp_path):
    data = TextArgs(f"text:{write_text(tmp_path)}", "word", 20, "auto", "file", None, None, 4).load()
    usual, _ = begin(NET, data)
    for name in ("sharpness", "smoothing"):
        other, _ = begin(dataclasses.replace(NET, start=dataclasses.replace(NET.start, **{name: 0.5})), data)
        assert not np.allclose(other.output.detach(), usual.output.detach())  # type: ignore[union-attr, operator]
    widths = {v: build(dataclasses.replace(NET, vectors=v), data).embedding for v in ("cipher", "sum", "cat")}
    assert [e.shape[1] for e in widths.values()] == [8, 8, 32]  # type: ignore[union-attr, index]
    for embedding in widths.values():
        np.testing.assert_allclose(embedding.detach().sum(1), 1, rtol=1e-5)  # type: ignore[union-attr, operator]


def _rows(loss) -> pd.DataFrame:
    """A made-up table: `loss(values, arm, repeat)` for each design."""
    rows = []
    for design in designs(BASE, 1000, 40, seed=1):
        for arm in ARMS:
            for repeat in range(3):
                value = loss(dict(design.values), arm, repeat)
                rows.append(design.columns | {"arm": arm, "repeat": repeat, "start_loss": value, "test_loss": -value})
    return pd.DataFrame(rows)


def test_effects_are_those_put_in():
    rows = _rows(lambda v, arm, repeat: v["bits"] / 64 + (arm == "warm") * 2.0 * (v["vectors"] == "cat") + 10 * repeat)
    found = effects(rows).set_index(["kind", "factor", "level", "arm", "measure"])["difference"]
    assert found[ONE, "bits", "256", "random", "start_loss"] == pytest.approx(3)  # repeats differ by 10: paired
    assert found[ONE, "bits", "256", "random", "test_loss"] == pytest.approx(-3)
    assert found[ONE, "vectors", "cat", "warm", "start_loss"] == pytest.approx(2)
    assert found[ONE, "vectors", "cat", "random", "start_loss"] == pytest.approx(0)
    assert found[ONE, "block", "64", "warm", "start_loss"] == pytest.approx(0)


def test_random_design_separates_factors():
    def steps(v, arm, repeat):  # linear in the places of the levels, so that least squares is exact
        return 3.0 * levels(BASE, 1000)["radius"].index(v["radius"]) / 3 - 0.5 * (v["document"] > 0)

    rows = effects(_rows(steps))
    found = rows[(rows["kind"] == RANDOM) & (rows["arm"] == "warm") & (rows["measure"] == "start_loss")]
    found = found.set_index("factor")
    assert found.loc["radius", "difference"] == pytest.approx(3)
    assert found.loc["document", "difference"] == pytest.approx(-0.5)
    rest = found.drop(index=["radius", "document"])
    np.testing.assert_allclose(rest["difference"], 0, atol=1e-9)
    assert (found["n"] == 40).all()


def test_too_few_random_designs_give_no_slopes():
    rows = _rows(lambda v, arm, repeat: v["bits"])
    few = rows[rows["design"].isin([f"random {i}" for i in range(9)]) & (rows["arm"] == "warm") & (rows["repeat"] == 0)]
    assert slopes(few, "start_loss") == {}
    lost = rows.assign(start_loss=np.where(rows["design"] == "random 3", np.nan, rows["start_loss"]))
    assert effects(lost).query("kind == @RANDOM and measure == 'start_loss'")["n"].unique().tolist() == [39]


def test_the_part_runs_and_runs_again(tmp_path):
    (tmp_path / "text").mkdir()
    text = write_text(tmp_path / "text")
    args = ["--preset", "smoke", "--dataset", f"text:{text}", "--parts", "grid", "--size", "20", "--contexts", "100",
            "--steps", "2", "--batch-size", "16", "--evaluate", "40", "--repeats", "1", "--designs", "1", "--quiet",
            "--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]  # fmt: skip
    assert saffu.main(args) == 0
    rows, found = (read_table(tmp_path / "out" / f"saffu_{name}.csv") for name in ("grid", "grid_effects"))
    assert not rows.duplicated(list(saffu.TABLES["saffu_grid"])).any()
    assert set(rows["arm"]) == set(ARMS)
    assert {"base", "vectors=cat", "random 0"} <= set(rows["design"])
    assert rows[["start_loss", "test_loss", *LEVELS]].notna().all().all()
    assert set(found["kind"]) == {ONE}
    assert set(found["measure"]) == set(MEASURES)
    before = (tmp_path / "out" / "saffu_grid.csv").read_text()
    assert saffu.main(args) == 0
    assert (tmp_path / "out" / "saffu_grid.csv").read_text() == before


def test_the_grid_is_done_only_if_it_is_asked_for():
    assert "grid" not in saffu.Config().parts
    assert "grid" in saffu.PARTS


def test_no_design_is_without_a_context():
    found = list(designs(Sizes(64, 32, 16, 0), 1000, 200, seed=0))
    assert all(dict(d.values)["radius"] + dict(d.values)["block"] > 0 for d in found)
    assert any(dict(d.values)["radius"] == 0 for d in found[1:])
