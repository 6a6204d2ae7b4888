"""Configs as one writes them in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from studies import audit, bnn, lmc, mli
from studies.checks import InputError


def made(study: Any, **values: Any) -> Any:
    """A config with values of types that its fields do not declare."""
    return study.Config(**values)


def test_strings_become_paths_and_single_values_tuples():
    files = ["a.pt", "b.pt"]
    config = made(lmc, out="tables", runs="runs/here", variants="w", alignments=["none"], checkpoints=files)
    assert (config.out, config.runs) == (Path("tables"), Path("runs/here"))
    assert (config.variants, config.alignments) == (("w",), ("none",))
    assert config.checkpoints == (Path("a.pt"), Path("b.pt"))
    config = made(audit, arch="mlp", swap_kappas=0.5)
    assert (config.arch, config.swap_kappas) == (("mlp",), (0.5,))


@pytest.mark.parametrize("study", [audit, bnn, lmc, mli])
def test_what_has_its_type_stays_as_it_is(study):
    config = study.Config()
    loose = made(study, out=str(config.out), runs=str(config.runs))
    assert config == loose
    assert isinstance(loose.out, Path)


def test_wrong_values_are_still_named():
    with pytest.raises(InputError, match=r"--variants: .*'z'"):
        made(lmc, variants="z")
