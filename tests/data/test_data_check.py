import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from asym.data.check import check_dataset_name, default_name
from asym.names import DATASETS


@pytest.mark.parametrize("name", DATASETS)
def test_built_in_names_are_known(name: str):
    check_dataset_name(name)
    assert default_name(name) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar", "dataset: unknown 'cifar'; choose from digits, .*cifar100, digits-graph, ogbn-arxiv, imagefolder"),
        ("", "dataset: unknown ''"),
        ("imagefolder:", "names no path"),
        ("no_such_module:load", "no module 'no_such_module'"),
        ("no_such_package.part:load", "no module 'no_such_package.part'"),
        ("json.decoder:", "is not package.module:loader"),
        ("../x:load", "is not package.module:loader"),
    ],
)
def test_unknown_names_are_refused_with_the_choices(name: str, message: str):
    with pytest.raises(ValueError, match=message):
        check_dataset_name(name)


def test_a_module_that_exists_is_accepted():
    check_dataset_name("json.decoder:anything")


def test_a_folder_needs_train_and_test(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        check_dataset_name(f"imagefolder:{tmp_path}/nowhere")
    (tmp_path / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="has no folder test/"):
        check_dataset_name(f"imagefolder:{tmp_path}")
    (tmp_path / "test").mkdir()
    check_dataset_name(f"imagefolder:{tmp_path}")


def test_an_archive_must_open(tmp_path: Path):
    for name in ("a.tar", "a.tar.gz", "a.zip"):
        (tmp_path / name).write_bytes(b"no archive at all")
        with pytest.raises(ValueError, match=f"{name} cannot be opened as an archive"):
            check_dataset_name(f"imagefolder:{tmp_path / name}")
    (tmp_path / "a.rar").touch()
    with pytest.raises(ValueError, match=r"neither a folder nor one of \.tar\.gz, \.tgz, \.tar, \.zip"):
        check_dataset_name(f"imagefolder:{tmp_path / 'a.rar'}")
    with tarfile.open(tmp_path / "b.tgz", "w:gz") as archive:
        archive.add(tmp_path / "a.rar", "x")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("x", "y")
    check_dataset_name(f"imagefolder:{tmp_path / 'b.tgz'}")
    check_dataset_name(f"imagefolder:{tmp_path / 'b.zip'}")


def test_the_name_in_tables_is_never_a_path(tmp_path: Path):
    for name in ("cats.tar", "cats.tar.gz", "cats.tgz", "cats.zip", "cats", "cats.v2"):
        assert default_name(f"imagefolder:{tmp_path}/{name}") == ("cats.v2" if name == "cats.v2" else "cats")
    assert default_name(f"imagefolder:{tmp_path}/cats/") == "cats"


def test_checking_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from asym.data import check_dataset_name as c; c('digits'); c('x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ValueError: dataset: unknown 'x'")
