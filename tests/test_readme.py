"""What the README tells a reader to type works: commands parse, Python runs."""

import importlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = sorted(
    {
        line.split("#")[0].strip()
        for language, block in BLOCKS
        if language == ""
        for line in block.splitlines()
        if line.strip()
    }
    | set(re.findall(r"`((?:python -m|make) [^`]+)`", README))
)
MAKE_TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_the_readme_is_short_enough_to_read():
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command):
    words = shlex.split(command)
    if words[0] == "make":
        assert set(words[1:]) <= MAKE_TARGETS
    elif words[:2] == ["python3", "-m"] or words[0] == ".venv/bin/pip":
        assert words[2] in ("venv", "-e")
    elif words[2].partition(".")[0] in ("studies", "figures"):
        from studies.parsing import parse

        module = importlib.import_module(words[2] if "." in words[2] else f"{words[2]}.__main__")
        parse(module.Config, words[3:], prog=words[2], description="")
    else:
        assert words[:2] == ["python", "-m"], command
        assert (ROOT / words[2].replace(".", "/") / "__main__.py").is_file()


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(block, names)
    import torch

    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(names["network"].eval()(x), names["plain"].eval()(x))
    assert names["layer"].n_fix == 8


def test_tables_of_variants_and_flags_are_complete():
    from asym.names import ALIGNMENTS, VARIANTS

    for name in (*VARIANTS, *ALIGNMENTS):
        assert f"`{name}`" in README or f" {name} " in README


def test_ci_runs_the_test_command():
    script = (ROOT / ".ci" / "run").read_text()
    assert "make test" in script
    assert subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=False).returncode == 0
