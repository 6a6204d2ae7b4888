"""The audit study end to end: rows, resume, marked rows, bad input."""

import math
import sys
import types
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from asym.store import read_table
from studies import audit
from studies.audit_nets import Net, fitted, narrowed
from studies.tables import VOLATILE

FAST = {"preset": "smoke", "quiet": True, "jobs": 1}


def _config(folder: Path, **options) -> audit.Config:
    return audit.Config(**{**FAST, "out": folder / "results", "runs": folder / "runs"} | options)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    options = {"width": 4 / 512, "side": 3, "norm": "none", "activation": "relu", "depth": 1}
    options |= {"arch": ("mlp",), "variants": ("standard", "w"), "swap_kappas": (1.0,), "swap_n_fix": (1.0,)}
    config = _config(folder, **options)
    return config, audit.run(config)


def _all(rows: pd.DataFrame, variant: str) -> dict:
    part = rows[(rows["variant"] == variant) & (rows["kind"] == "continuous") & (rows["family"] == "all")]
    return part.iloc[0].to_dict()


def test_the_hand_countable_case(study):
    _, rows = study
    standard, w = _all(rows, "standard"), _all(rows, "w")
    assert (standard["params"], standard["predicted"], standard["found"], standard["unexplained"]) == (60, 4, 4, 0)
    assert (w["predicted"], w["found"], w["unexplained"]) == (0, 0, 0)
    assert standard["gap"] > 1e6
    keyed = rows.set_index(["variant", "kind", "family"])["found"]
    assert keyed["standard", "continuous", "unit scaling"] == 4
    assert keyed["standard", "permutations", "exchanges of two"] == 6
    assert keyed["w", "permutations", "exchanges of two"] == 0
    assert keyed["standard", "automorphisms", "2 hidden layers of 4"] == 576
    assert keyed["w", "automorphisms", "2 hidden layers of 4"] == 1


def test_columns_and_summary(study):
    config, rows = study
    wanted = {"study", "preset", "arch", "dataset", "variant", "point", "seed", "mask_seed", "params", "width"}
    assert wanted | {"wall_s", "device", "torch", "commit", "config"} <= set(rows.columns)
    summary = read_table(config.out / "audit_summary.csv")
    assert len(summary) == len(rows)  # one point
    swaps = read_table(config.out / "audit_swaps.csv")
    assert (len(swaps), swaps["cost_min"].iloc[0] > 0) == (1, True)
    assert swaps["cost_min"].iloc[0] <= swaps["cost_median"].iloc[0]


def test_again_changes_nothing_and_figures_are_drawn(study):
    from figures import audit as figure

    config, _ = study
    before = {file.name: file.read_text() for file in config.out.glob("*.csv")}
    audit.run(config)
    assert {file.name: file.read_text() for file in config.out.glob("*.csv")} == before
    files = figure.draw(config.out)
    assert {file.name for file in files} >= {"audit_smoke.png", "audit_swaps_smoke.pdf"}
    assert all(file.stat().st_size > 1000 for file in files)


def test_a_network_that_cannot_be_read_is_a_row_and_the_rest_is_there(tmp_path, monkeypatch, capsys):
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(12, 4)

        def forward(self, x):
            y = self.one(x.flatten(1))
            return y if y.sum().item() > 0 else -y

    module = types.ModuleType("audit_test_nets")
    module.branching = lambda shape, classes: Branching()
    module.fine = lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.ReLU(), nn.Linear(3, classes))
    monkeypatch.setitem(sys.modules, "audit_test_nets", module)
    args = ["--arch", "audit_test_nets:branching", "audit_test_nets:fine", "--variants", "standard", "--side", "2"]
    args += ["--preset", "smoke", "--out", str(tmp_path / "o"), "--runs", str(tmp_path / "r"), "--jobs", "1"]
    assert audit.main(args) == 0
    out = capsys.readouterr().out
    assert "branching standard: not audited" in out
    rows = read_table(tmp_path / "o" / "audit.csv")
    failed = rows[rows["kind"] == "failed"]
    assert list(failed["arch"]) == ["audit_test_nets:branching"]
    assert math.isnan(failed["found"].iloc[0])
    fine = rows[(rows["arch"] == "audit_test_nets:fine") & (rows["family"] == "all")]
    assert (fine["found"].iloc[0], fine["unexplained"].iloc[0]) == (3, 0)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--arch", "mpl"], "--arch: unknown 'mpl'"),
        (["--variants", "v"], "--variants: unknown 'v'"),
        (["--dataset", "digits"], "--dataset: has no meaning"),
        (["--device", "cuda"], "--device: got 'cuda'"),
        (["--arch", "mlp", "--width", "1"], "--max-params: mlp of width 1 has"),
        (["--arch", "resnet8", "--max-params", "100"], "--max-params: the narrowest copy of resnet8"),
        (["--arch", "mlp", "--norm", "group"], "--norm: 'group' for mlp; choose from layer"),
        (["--arch", "mlp", "mlp"], "--arch: named twice"),
        (["--points", "0"], "--points: got 0"),
        (["--arch", "no_such_module:f"], "arch: cannot load"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(args, message, tmp_path, capsys):
    places = ["--out", str(tmp_path / "o"), "--runs", str(tmp_path / "r"), "--preset", "smoke"]
    assert audit.main([*args, *places]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_dry_run_writes_nothing(tmp_path, capsys):
    args = ["--arch", "mlp", "--preset", "smoke", "--dry-run", "--out", str(tmp_path / "o")]
    assert audit.main([*args, "--runs", str(tmp_path / "r")]) == 0
    assert "mlp: a copy of" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_copies_fit_and_networks_of_others_are_narrowed():
    net = Net("mlp", 1.0, (1, 4, 4), 3, None, None, None)
    small = fitted(net, 400)
    assert 200 < small.params() <= 400
    torch.manual_seed(0)
    other = nn.Sequential(
        nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 64, 3), nn.GroupNorm(1, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip
    narrow = narrowed(other, 2.0, 3)
    assert [p.shape[0] for p in narrow.parameters()] == [2, 2, 2, 4, 4, 4, 4, 5, 5]
    assert narrow(torch.randn(2, 3, 8, 8)).shape == (2, 5)
    with pytest.raises(ValueError, match="no layer to narrow"):
        narrowed(nn.Sequential(nn.ReLU()), 2.0, 3)


def test_what_others_run_twice_agrees(study):
    config, rows = study
    fresh = audit.run(_config(config.out.parent / "again", **{
        name: getattr(config, name)
        for name in ("arch", "variants", "width", "side", "norm", "activation", "depth", "swap_kappas", "swap_n_fix")
    }))  # fmt: skip
    drop = [*VOLATILE]
    pd.testing.assert_frame_equal(rows.drop(columns=drop), fresh.drop(columns=drop))
