"""Whether a data set's name can be meant: answered without torch, so that a command says so at once."""

from __future__ import annotations

import importlib.util
import tarfile
import zipfile
from pathlib import Path

from asym.names import DATASETS

FOLDER_PREFIX = "imagefolder:"
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
SPLITS = ("train", "val", "test")


def check_dataset_name(dataset: str) -> None:
    """Reject a data set that `load` would not know or find, without loading torch or reading images.

    Args:
        dataset: a built-in name, `imagefolder:PATH` or `package.module:loader`.

    Raises:
        ValueError: an unknown name, a path of an unknown kind, a module that does not exist.
        FileNotFoundError: the path is missing or has no train/ and test/.
    """
    if dataset in DATASETS:
        return
    if dataset.startswith(FOLDER_PREFIX):
        _check_path(folder_path(dataset))
    elif ":" in dataset:
        _check_module(dataset)
    else:
        raise ValueError(f"dataset: unknown {dataset!r}; choose from {_choices()}")


def folder_path(dataset: str) -> Path:
    """The path in `imagefolder:PATH`."""
    text = dataset.removeprefix(FOLDER_PREFIX)
    if not text:
        raise ValueError(f"dataset: {dataset!r} names no path; write {FOLDER_PREFIX}PATH")
    return Path(text).expanduser()


def default_name(dataset: str) -> str:
    """The name that goes into tables: never a path."""
    if not dataset.startswith(FOLDER_PREFIX):
        return dataset
    name = folder_path(dataset).resolve().name
    for suffix in ARCHIVES:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def _check_path(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"dataset: {path} does not exist")
    if path.is_dir():
        for split in ("train", "test"):
            if not (path / split).is_dir():
                raise FileNotFoundError(
                    f"dataset: {path} has no folder {split}/ (want train/ and test/, one folder a class)"
                )
        return
    if not path.name.lower().endswith(ARCHIVES):
        raise ValueError(f"dataset: {path} is neither a folder nor one of {', '.join(ARCHIVES)}")
    try:
        if path.name.lower().endswith(".zip"):
            zipfile.ZipFile(path).close()
        else:
            tarfile.open(path).close()
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise ValueError(f"dataset: {path} cannot be opened as an archive ({error})") from None


def _check_module(dataset: str) -> None:
    module, _, attribute = dataset.partition(":")
    names = [*module.split("."), attribute]
    if not all(name.isidentifier() for name in names):
        raise ValueError(f"dataset: {dataset!r} is not package.module:loader; choose from {_choices()}")
    try:
        found = importlib.util.find_spec(module)
    except ImportError:
        found = None
    if found is None:
        raise ValueError(f"dataset: no module {module!r} for {dataset!r}; is its folder on PYTHONPATH?")


def _choices() -> str:
    return ", ".join([*DATASETS, "imagefolder:PATH", "package.module:loader"])
