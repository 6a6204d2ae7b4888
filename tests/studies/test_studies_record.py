"""The command that is kept beside tables gives the same settings when it is run again."""

import json
import shlex
from pathlib import Path

import pytest

from asym.store import read_table
from studies import ablate, bnn, lmc, mli, saffu
from studies.parsing import parse
from studies.record import KEY, PLACES, command, keep, settings


@pytest.mark.parametrize(
    ("study", "config"),
    [
        ("lmc", lmc.Config()),
        ("lmc", lmc.Config(arch="mlp", variants=("standard", "w"), pairs=3, lr=1e-3, align_asymmetric=True)),
        ("mli", mli.Config(preset="smoke", networks=7)),
        ("ablate", ablate.Config(factor="width", levels=(1.0, 2.0))),
        ("bnn", bnn.Config(archs=("mlp-16",), kl_weights=(0.125, 1e-6), log_variance=-20.0)),
        ("saffu", saffu.Config(parts=("quality",), fractions=(0.1, 1.0))),
        ("lmc", lmc.Config(dataset="imagefolder:a folder", dataset_name="my data")),
    ],
)
def test_a_kept_command_parses_to_the_same_config(study, config):
    words = shlex.split(command(study, config))
    assert words[:3] == ["python", "-m", f"studies.{study}"]
    assert parse(type(config), words[3:], prog=study, description="") == config


def test_places_are_no_part_of_a_command(tmp_path):
    config = lmc.Config(out=tmp_path, runs=Path("elsewhere"), jobs=3, quiet=True, device="cpu", retrain=True)
    assert command("lmc", config) == "python -m studies.lmc"
    assert settings(config) == {}
    assert {"out", "runs", "jobs"} <= set(PLACES)


def test_a_command_is_one_row_however_often_it_is_run(tmp_path):
    for pairs in (2, 3, 2):
        keep("lmc", lmc.Config(pairs=pairs, out=tmp_path))
    table = read_table(tmp_path / "runs.csv")
    assert list(table["command"]) == ["python -m studies.lmc --pairs 2", "python -m studies.lmc --pairs 3"]
    assert [json.loads(s) for s in table["settings"]] == [{"pairs": 2}, {"pairs": 3}]
    assert not table.duplicated(list(KEY)).any()
