"""What the presets of the SAFFU study set.

smoke: does everything run; laptop: sizes for the offline text, minutes; paper: the sizes of the published ablation's
small models, for a text of about a million words (no recipe was published: rates, steps and batches are this study's).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from studies.saffu import ALL_STARTS, Config
from studies.saffu_nets import Sizes


@dataclass(frozen=True)
class Defaults:
    """Values that a preset gives to the flags that were left out."""

    size: int
    sizes: Sizes
    contexts: int
    steps: int
    batch_size: int
    repeats: int
    lrs: tuple[float, ...]
    other_lrs: tuple[float, ...]
    rates: tuple[float, ...]
    points: int
    evaluate: int
    starts: tuple[str, ...]
    embeddings: tuple[str, ...]
    data: tuple[str, ...]
    primings: tuple[float, ...]
    merge: tuple[int, ...]
    designs: int


PRESETS = {
    "smoke": Defaults(
        size=300, sizes=Sizes(24, 16, 8, 4), contexts=2000, steps=40, batch_size=128, repeats=2, lrs=(0.1,),
        other_lrs=(3e-3,), rates=(0.1,), points=5, evaluate=1000, starts=("explicit", "permuted", "random"),
        embeddings=("frozen",), data=("disjoint",), primings=(4.0,), merge=(2,), designs=2,
    ),
    "laptop": Defaults(
        size=1000, sizes=Sizes(64, 32, 16, 8), contexts=10_000, steps=400, batch_size=256, repeats=3,
        lrs=(0.03, 0.1, 0.3), other_lrs=(1e-3, 3e-3, 1e-2), rates=(0.03, 0.1), points=13, evaluate=4000,
        starts=ALL_STARTS, embeddings=("frozen", "trained"), data=("disjoint", "same"), primings=(1.0, 4.0, 16.0),
        merge=(2, 3, 4, 5, 6), designs=24,
    ),
    "paper": Defaults(
        size=2000, sizes=Sizes(128, 64, 32, 8), contexts=30_000, steps=3000, batch_size=512, repeats=5,
        lrs=(0.03, 0.1, 0.3), other_lrs=(1e-3, 3e-3, 1e-2), rates=(0.01, 0.03, 0.1), points=25, evaluate=8000,
        starts=ALL_STARTS, embeddings=("frozen", "trained"), data=("disjoint", "same"), primings=(1.0, 4.0, 16.0),
        merge=(2, 3, 4, 5, 6), designs=64,
    ),
}  # fmt: skip


def settings(config: Config) -> Defaults:
    """The preset's values with the flags that were given in their place."""
    preset = PRESETS[config.preset]
    given = {
        field.name: value
        for field in dataclasses.fields(Defaults)
        if field.name != "sizes" and (value := getattr(config, field.name)) is not None
    }
    sizes = {name: getattr(config, name) for name in ("bits", "hidden", "block", "radius")}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    return dataclasses.replace(
        preset, sizes=dataclasses.replace(preset.sizes, document=config.document, **sizes), **given
    )
