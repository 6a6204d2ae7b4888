"""SAFFU: starting a language model where the data say, and what that does to quality, cost and symmetry.

Self-attentive feed-forward units have an explicit solution in terms of co-occurrence counts (Williams and others, arXiv
2311.07498, 2311.07510). Parts of the study, each of which can be run alone with --parts:

- connectivity: barriers between two networks of an explicit start, own codes, permuted or noised codes, partial or
  random starts; on disjoint or the same text; with frozen or trained embeddings; before and after matching;
- quality: perplexity against steps, tokens and seconds, the solve charged, of every start and of decoders, LSTM,
  feed-forward model and n-grams, at rates tuned with the same number of trials;
- merging: averages of k networks of disjoint texts;
- cost: seconds, memory, operations, time of a prediction with and without the cache of comparisons;
- architecture: outputs with constant code rows, alone and with the explicit start; decoders with label heads;
- grid (only if it is asked for): sizes, vectors, priming, β, ε and attention, one at a time and in a random design.

    python -m studies.saffu
    python -m studies.saffu --parts connectivity --dataset text:novels --preset paper

A text is a folder of files (`text:FOLDER`, BabyLM's layout included) or `pydoc`, the reference pages of Python.

From a notebook: `from studies import saffu; tables = saffu.run(saffu.Config(parts=("cost",)))`.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Literal

from asym.names import TEXTS
from studies.checks import InputError, check_least, check_values
from studies.cli import CommonConfig, run_study
from studies.flags import check_names
from studies.rooms import Rooms

if TYPE_CHECKING:
    import pandas as pd


USUAL = ("connectivity", "quality", "merging", "cost", "architecture")
PARTS = (*USUAL, "grid")
PARTIAL = ("output-only", "hidden-only", "attention-only")
ALL_STARTS = (
    "explicit", "own-code", "permuted", "noise-0.3", "noise-1", *PARTIAL, "random-same", "random", "random-all",
)  # fmt: skip
PAIR = ("config", "model", "start", "data", "embedding", "fixed_share", "steps", "lr")
ARM = ("config", "arm", "fraction", "control")
TABLES = {
    "saffu_connectivity": (*PAIR, "alignment", "repeat"),
    "saffu_connectivity_curves": (*PAIR, "alignment", "repeat", "lam"),
    "saffu_connectivity_summary": (*PAIR, "alignment"),
    "saffu_architecture": (*PAIR, "alignment", "repeat"),
    "saffu_architecture_curves": (*PAIR, "alignment", "repeat", "lam"),
    "saffu_architecture_summary": (*PAIR, "alignment"),
    "saffu_quality": (*ARM, "repeat"),
    "saffu_quality_curves": (*ARM, "repeat", "step"),
    "saffu_quality_summary": ARM,
    "saffu_tuning": ("config", "arm", "fraction", "lr"),
    "saffu_merging": ("config", "start", "k", "lr", "repeat"),
    "saffu_merging_summary": ("config", "start", "k", "lr"),
    "saffu_cost": ("config", "arm", "repeat"),
    "saffu_cost_summary": ("config", "arm"),
    "saffu_grid": ("config", "design", "arm", "repeat"),
    "saffu_grid_summary": ("config", "design", "arm"),
    "saffu_grid_effects": ("config", "kind", "factor", "level", "arm", "measure"),
}
"""Tables of the study, and what makes a row of each unique."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(CommonConfig):
    """Settings of the study; a value of None is set by the preset."""

    parts: tuple[str, ...] = USUAL
    """Any of: connectivity quality merging cost architecture grid."""
    dataset: str | None = None
    """pydoc, or text:FOLDER of text files."""
    vocabulary: Literal["word", "bpe"] = "word"
    """Words, or byte pairs (extra `text`)."""
    size: int | None = None
    """Tokens of the vocabulary."""
    split: Literal["auto", "given", "position", "document"] = "auto"
    """By names of files, by position in each document, or by document."""
    documents: Literal["file", "paragraph"] = "file"
    """What a document is."""
    bits: int | None = None
    """Length of the tokens' vectors."""
    hidden: int | None = None
    """Hidden units of each context, the bits of the label code."""
    block: int | None = None
    """Slots of the block context; 0 for none."""
    radius: int | None = None
    """Slots of the radius context; 0 for none."""
    document: int = 0
    """Tokens of the document context; 0 for none."""
    contexts: int | None = None
    """Contexts that an explicit start counts."""
    steps: int | None = None
    """Training steps."""
    batch_size: int | None = None
    """Tokens predicted a step."""
    repeats: int | None = None
    """Independent repeats of each cell and arm."""
    lrs: tuple[float, ...] | None = None
    """Rates that SAFFU arms of `quality` are tuned over."""
    other_lrs: tuple[float, ...] | None = None
    """Rates that the other models are tuned over, as many."""
    rates: tuple[float, ...] | None = None
    """Rates of `connectivity`; the middle one is that of `merging` and `architecture`."""
    starts: tuple[str, ...] | None = None
    """Starts of `connectivity`: explicit own-code permuted noise-SIZE output-only hidden-only attention-only
    random-same random random-all."""
    data: tuple[str, ...] | None = None
    """Texts of the two networks: disjoint same."""
    embeddings: tuple[str, ...] | None = None
    """Vectors: frozen trained."""
    primings: tuple[float, ...] | None = None
    """Priming numbers of the warm arms; the first is that of the arm without attention."""
    fractions: tuple[float, ...] = (1.0,)
    """Shares of the training text for `quality`."""
    merge: tuple[int, ...] | None = None
    """How many networks are averaged."""
    fixed_shares: tuple[float, ...] = (0.5,)
    """Shares of the vocabulary whose output rows are constants, for `architecture`."""
    designs: int | None = None
    """Random designs of `grid`, beside one factor at a time."""
    points: int | None = None
    """Points on a line, an odd number."""
    evaluate: int | None = None
    """About so many tokens of a split are evaluated on the way and along lines."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("parts", self.parts, PARTS)
        if self.dataset is not None and self.dataset not in TEXTS and not self.dataset.startswith("text:"):
            raise InputError(f"--dataset: unknown {self.dataset!r}; valid: {', '.join(TEXTS)}, text:FOLDER")
        if self.download or self.data_dir is not None:
            raise InputError("--download and --data-dir: have no meaning here; name a folder: --dataset text:FOLDER")
        for start in self.starts or ():
            if start not in ALL_STARTS and not _is_noise(start):
                raise InputError(f"--starts: unknown {start!r}; valid: {', '.join(ALL_STARTS)}, noise-SIZE")
        for flag, choices in (("data", ("disjoint", "same")), ("embeddings", ("frozen", "trained")), ("starts", None)):
            if getattr(self, flag) is not None:
                check_names(flag, getattr(self, flag), choices)
        least = {"size": 8, "bits": 2, "hidden": 2, "block": 0, "radius": 0, "document": 0, "contexts": 1, "steps": 1,
                 "batch_size": 1, "repeats": 1, "designs": 0, "points": 3, "evaluate": 16}  # fmt: skip
        for name, value in least.items():
            check_least(name.replace("_", "-"), getattr(self, name), value)
        if self.points is not None and self.points % 2 == 0:
            raise InputError(f"--points: got {self.points}, must be odd")
        for flag in ("lrs", "other_lrs", "rates", "primings", "fractions", "merge", "fixed_shares"):
            check_values(flag.replace("_", "-"), getattr(self, flag))
        for flag in ("fractions", "fixed_shares"):
            if max(getattr(self, flag)) > 1:
                raise InputError(f"--{flag.replace('_', '-')}: got {max(getattr(self, flag))}, must be at most 1")
        for flag, part in (("designs", "grid"), ("merge", "merging"), ("fixed_shares", "architecture")):
            if getattr(self, flag) != type(self).__dataclass_fields__[flag].default and part not in self.parts:
                raise InputError(f"--{flag.replace('_', '-')}: has no meaning without {part} among --parts")
        if self.merge is not None and min(self.merge) < 2:
            raise InputError(f"--merge: got {min(self.merge)}, must be at least 2")
        if self.lrs is not None and self.other_lrs is not None and len(self.lrs) != len(self.other_lrs):
            raise InputError("--lrs and --other-lrs: give as many of one as of the other, so that no arm is tuned more")


def _is_noise(start: str) -> bool:
    head, _, size = start.partition("-")
    try:
        return head == "noise" and 0 < float(size) < float("inf")
    except ValueError:
        return False


ROOMS = Rooms("saffu_setup", "saffu_work", text="saffu_tables")


def run(config: Config) -> dict[str, pd.DataFrame]:
    """Run the study; returns for each part the rows that belong to `config`."""
    return ROOMS.run(config)


def main(args: list[str] | None = None) -> int:
    """The command."""
    return run_study("saffu", __doc__, Config, ROOMS, args=args)


__all__ = ["ROOMS", "Config", "main", "run"]

if __name__ == "__main__":
    sys.exit(main())
