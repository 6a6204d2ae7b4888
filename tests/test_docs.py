"""What the documentation tells a reader to type runs, block after block."""

import re
from pathlib import Path

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
