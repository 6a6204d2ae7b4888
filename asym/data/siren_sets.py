"""Published sets of implicit networks, one file a network, read into stacked tensors.

| kind | file of a network | label | split |
|---|---|---|---|
| `mnist` | `mnist_png_{training,testing}_<label>_<image>/checkpoints/*.pth` | the folder's | the folder's |
| `fashion_mnist` | `{train,test}/model_<image>.pth` | entry `label` of the file | the folder's |
| `cifar10` | `<prefix>_<label>s/net<image>.pth` | the folder's | the image's number: below 45,000, 50,000, the rest |

A file is what `torch.save` made of a state dict: a weight and a bias for each layer, under names that hold the layer's
number (`seq.0.weight`, `net.0.linear.weight`). Networks are 2-32-32-1 (`mnist`, `fashion_mnist`: 1,185 parameters,
shift 1/2) or 2-32-32-3 (`cifar10`: 1,251, shift 0), with ω = 30. Sources: Navon et al. 2023 (arXiv 2301.12780) for the
first two, Zhou et al. 2023 (arXiv 2302.14040) for the third.

The format is that which the released code of DWSNets, NFN and ScaleGMN reads; the sets themselves were not at hand, so
this reader is tried on small files made in the same format. Where no list of splits lies in the folder
(`*splits.json`: split → paths, or split → {"path": paths}), a twelfth of the training networks, drawn with seed 0, is
for validation (published: 5,000 of 60,000, drawn anew by whoever makes the list).
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asym.seeds import numpy_generator

KINDS = ("mnist", "fashion_mnist", "cifar10")
FILES = {
    "mnist": re.compile(r"mnist_png_(?P<split>training|testing)_(?P<label>\d+)_(?P<image>\d+)/.*\.pth"),
    "fashion_mnist": re.compile(r"(?P<split>train|test)/model_(?P<image>\d+)\.pth"),
    "cifar10": re.compile(r"(?P<prefix>\w+)_(?P<label>\d)s/net(?P<image>\d+)\.pth"),
}
SHIFTS = {"mnist": 0.5, "fashion_mnist": 0.5, "cifar10": 0.0}
OMEGA = 30.0
CIFAR_POINTS = (45_000, 50_000)
VALIDATION_SHARE = 1 / 12


@dataclasses.dataclass(frozen=True)
class SirenSet:
    """Implicit networks with labels, in the order of split, then image."""

    tensors: dict[str, Tensor]
    """`layers.<i>.weight` and `.bias`, each `n *shape`, float32: the names of `asym.models.siren.Siren`."""
    labels: Tensor
    """`n`, int64."""
    images: Tensor
    """`n`, number of the image within the data set's training or test part."""
    splits: tuple[str, ...]
    """`train`, `val` or `test`, one a network."""
    shift: float
    """Added to all outputs."""
    omega: float = OMEGA

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units from input to output."""
        weights = [value for name, value in self.tensors.items() if name.endswith("weight")]
        return (weights[0].shape[2], *(weight.shape[1] for weight in weights))


def load_siren_set(
    path: str | Path, kind: str, *, prefix: str | None = None, points: tuple[int, int] = CIFAR_POINTS
) -> SirenSet:
    """Read a published set.

    Args:
        path: the unpacked folder.
        kind: which set, see the module.
        prefix: `cifar10` alone: which fits, such as `randinit_smaller`; None where the folder holds one kind.
        points: `cifar10` alone: first image of the validation and of the test part.

    Raises:
        FileNotFoundError: if there is no such folder, or no file of the kind in it.
        ValueError: for an unknown kind, a damaged file, networks of different shapes, entries that are NaN or infinite,
            or a list of splits that names other files; says which file.
    """
    root = Path(path)
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r}; choose from {', '.join(KINDS)}")
    if kind != "cifar10" and prefix is not None:
        raise ValueError(f"prefix: has no meaning for {kind}; only for cifar10")
    if not root.is_dir():
        raise FileNotFoundError(f"path: {root} is not a folder; name the one that {kind}'s networks were unpacked into")
    found = _find(root, kind, prefix)
    names = _splits(root, kind, found, points)
    order = sorted(found, key=lambda key: (("train", "val", "test").index(names[key]), int(found[key]["image"]), key))
    rows: list[dict[str, Tensor]] = []
    labels: list[int] = []
    for key in order:
        state = _read(root / key)
        label = found[key].get("label", state.pop("label", None))
        if label is None:
            raise ValueError(f"path: {root / key} has no entry 'label'")
        rows.append(_layers(root / key, state))
        if {n: t.shape for n, t in rows[-1].items()} != {n: t.shape for n, t in rows[0].items()}:
            raise ValueError(f"path: {root / key} has other shapes than {root / order[0]}")
        labels.append(int(label))
    return SirenSet(
        {name: torch.stack([row[name] for row in rows]) for name in rows[0]},
        torch.tensor(labels),
        torch.tensor([int(found[key]["image"]) for key in order]),
        tuple(names[key] for key in order),
        SHIFTS[kind],
    )


def _find(root: Path, kind: str, prefix: str | None) -> dict[str, dict[str, str]]:
    """Files of a kind by their path below the root, with what their names say."""
    found: dict[str, dict[str, str]] = {}
    for file in root.rglob("*.pth"):
        match = FILES[kind].search(file.relative_to(root).as_posix())
        if match and (prefix is None or match["prefix"] == prefix):
            found[file.relative_to(root).as_posix()] = match.groupdict()
    if not found:
        wanted = {"mnist": "mnist_png_training_<label>_<image>/checkpoints/*.pth",
                  "fashion_mnist": "train/model_<image>.pth",
                  "cifar10": f"{prefix or '<prefix>'}_<label>s/net<image>.pth"}[kind]  # fmt: skip
        raise FileNotFoundError(f"path: {root} has no file {wanted}")
    prefixes = {entry["prefix"] for entry in found.values() if "prefix" in entry}
    if len(prefixes) > 1:
        raise ValueError(f"prefix: {root} holds {', '.join(sorted(prefixes))}; name one")
    return found


def _splits(root: Path, kind: str, found: Mapping[str, Mapping[str, str]], points: tuple[int, int]) -> dict[str, str]:
    """The split of each file."""
    if kind == "cifar10":
        first, second = points
        image = {key: int(entry["image"]) for key, entry in found.items()}
        return {k: "train" if i < first else "val" if i < second else "test" for k, i in image.items()}
    listed = sorted(root.glob("*splits.json"))
    if listed:
        return _listed(listed[0], found)
    training = sorted(key for key, entry in found.items() if entry["split"].startswith("train"))
    drawn = numpy_generator(0, "data", "siren sets", kind).permutation(len(training))
    held_out = {training[i] for i in drawn[: round(VALIDATION_SHARE * len(training))]}
    return {k: "test" if k not in set(training) else "val" if k in held_out else "train" for k in found}


def _listed(file: Path, found: Mapping[str, Any]) -> dict[str, str]:
    """Splits from a list; its paths may begin anywhere, only their ends count."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        paths = {
            s: content[s]["path"] if isinstance(content[s], dict) else content[s] for s in ("train", "val", "test")
        }
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"path: {file} is no list of splits train, val and test") from None
    depth = len(Path(next(iter(found))).parts)
    ends = {"/".join(Path(key).parts[-depth:]): key for key in found}
    names: dict[str, str] = {}
    for split, entries in paths.items():
        for entry in entries:
            key = ends.get("/".join(Path(entry).parts[-depth:]))
            if key is None:
                raise ValueError(f"path: {file} names {entry}, which is not there")
            names[key] = split
    missing = sorted(set(found) - set(names))
    if missing:
        raise ValueError(f"path: {file} does not name {missing[0]}")
    return names


def _read(file: Path) -> dict[str, Any]:
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).split())[:100]
        raise ValueError(f"path: {file} cannot be read as a state dict, truncated or damaged ({reason})") from None
    if not isinstance(state, dict):
        raise ValueError(f"path: {file} holds a {type(state).__name__}, not a state dict")
    return dict(state)


def _layers(file: Path, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Weights and biases by the number in their name, renumbered from 0."""
    parts: dict[int, dict[str, Tensor]] = {}
    for name, value in state.items():
        number, what = re.search(r"\d+", name), name.rpartition(".")[2]
        if number is None or what not in ("weight", "bias") or not isinstance(value, Tensor):
            raise ValueError(f"path: {file} has an entry {name!r}; want a weight and a bias for each numbered layer")
        if not torch.isfinite(value).all():
            raise ValueError(f"path: {file}: {name!r} has NaN or infinite entries")
        parts.setdefault(int(number[0]), {})[what] = value.detach().float()
    found: dict[str, Tensor] = {}
    before = None
    for place, number in enumerate(sorted(parts)):
        weight, bias = parts[number].get("weight"), parts[number].get("bias")
        fits = weight is not None and bias is not None and weight.dim() == 2 and bias.shape == weight.shape[:1]
        if not fits or before not in (None, weight.shape[1]):  # type: ignore[union-attr]
            raise ValueError(f"path: {file}: layer {number} does not fit: want a weight (out, in) and a bias (out)")
        before = weight.shape[0]  # type: ignore[union-attr]
        found |= {f"layers.{place}.weight": weight, f"layers.{place}.bias": bias}  # type: ignore[dict-item]
    return found
