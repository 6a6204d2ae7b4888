"""What the documentation tells a reader to type runs, block after block."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_notebook_page_runs(tmp_path, monkeypatch, capsys):
    import torch

    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "notebook.md").read_text(), flags=re.DOTALL):
        exec(block, names)
    x = names["x"]
    torch.testing.assert_close(names["plain"](x), names["masked"].float()(x))
    assert names["audit"].unexplained == 0
    assert names["trained"].theta.shape == (6, names["architecture"].trainable)
    assert names["reader"](names["stack"]).shape == (6, 1)
    assert len(names["posterior"].theta) == 2
    assert set(names["summary"]["variant"]) == {"standard", "sigma", "w"}
    assert "trainable" in capsys.readouterr().out


COMMANDS = sorted(
    {
        command
        for page in (ROOT / "docs").glob("*.md")
        for command in re.findall(r"(?:^|`)(python -m studies\.\w+(?: [^`\n]+)?)", page.read_text(), flags=re.MULTILINE)
        if "NAME" not in command
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command):
    from studies.parsing import parse

    _, _, study, *flags = shlex.split(command)
    parse(importlib.import_module(study).Config, flags, prog=study, description="")


def test_the_page_on_clusters_names_every_option_of_jobs():
    from asym.names import LAUNCHERS, SLURM_OPTIONS

    page = (ROOT / "docs" / "clusters.md").read_text()
    for name in (*LAUNCHERS, *SLURM_OPTIONS):
        assert re.search(rf"`{name}[`=]", page), name
