"""The networks of the SAFFU study: what determines one. How it is built and starts is in `saffu_begin`."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from asym.data.contexts import Reach
from asym.data.text import Stream, TextData, load_text
from asym.explicit.softmax import SMOOTHING
from asym.explicit.start import PARTS

TRAIN_VERSION = 1
MODELS = ("saffu", "saffu-w", "decoder", "decoder-flops", "decoder-labels", "lstm", "feed-forward")


@dataclass(frozen=True)
class TextArgs:
    """How to load the text; hashable, so that a process loads it once."""

    dataset: str
    vocabulary: str
    size: int
    split: str
    documents: str
    name: str | None
    cache_dir: str | None
    context: int

    def load(self) -> TextData:
        """The text."""
        return _load(self)


@functools.lru_cache(maxsize=2)
def _load(args: TextArgs) -> TextData:
    return load_text(**dataclasses.asdict(args))


@dataclass(frozen=True)
class Sizes:
    """Sizes of the SAFFU model; the others are matched to it."""

    bits: int
    hidden: int
    block: int
    radius: int
    document: int = 0

    @property
    def reach(self) -> Reach:
        """Its contexts."""
        return Reach(self.block, self.radius, self.document)

    @property
    def length(self) -> int:
        """Length of the sequences of other models: as far as the longest context of this one looks back."""
        return max(self.block, self.radius)


@dataclass(frozen=True)
class Part:
    """Which training text: part `index` of `k`, dealt by `seed`; of it a fraction; its tokens shuffled."""

    k: int = 1
    index: int = 0
    seed: int | None = None
    fraction: float = 1.0
    shuffled: bool = False

    def of(self, stream: Stream) -> Stream:
        """The text."""
        return _part(self, stream)

    def held_out(self, stream: Stream) -> Stream:
        """Validation or test text for networks of this part: all of it, shuffled if theirs is."""
        return _part(Part(shuffled=self.shuffled), stream)


@functools.lru_cache(maxsize=16)
def _part(part: Part, stream: Stream) -> Stream:
    found = stream if part.k == 1 else stream.partition(part.k, part.seed)[part.index]
    found = found if part.fraction == 1 else found.fraction(part.fraction)
    return found.shuffled_labels(0) if part.shuffled else found


@dataclass(frozen=True)
class Start:
    """How a network starts.

    Attributes:
        explicit: which parts are solved; the others are random (Xavier).
        priming: K_U.
        output_priming: K_O; None is the norm of O's input.
        attention: how W is solved.
        bias: add the unigram frequencies to O.
        own_labels: rank the label code by the counts of the network's own text.
        permute: permute hidden units by a draw of `seed`.
        noise: add so many standard deviations of each matrix, drawn by `seed`.
        seed: of random parts.
        contexts: how many to count.
        sharpness: β of the hidden targets.
        smoothing: ε of the solved tables.
    """

    explicit: tuple[str, ...] = ()
    priming: float = 4.0
    output_priming: float | None = None
    attention: str = "hidden-targets"
    bias: bool = False
    own_labels: bool = False
    permute: bool = False
    noise: float = 0.0
    seed: int = 0
    contexts: int = 30_000
    sharpness: float = 1.0
    smoothing: float = SMOOTHING


EXPLICIT = Start(PARTS)


@dataclass(frozen=True)
class Net:
    """Everything that determines a trained network, but the text."""

    model: str
    sizes: Sizes
    start: Start
    part: Part
    lr: float
    steps: int
    batch: int
    order_seed: int
    train_embedding: bool = False
    random_embedding: bool = False
    fixed_share: float = 0.0
    """Of the vocabulary, the most frequent first, whose output columns are constants (saffu-w)."""
    vectors: str = "cipher"
    """Vectors of tokens: their codes, or those of their neighbours (`sum`, `cat`)."""

    def config(self, fingerprint: str, evaluate: int) -> dict[str, Any]:
        """What the store's hash is taken of; settings that came later count where they are not the usual ones."""
        values = dataclasses.asdict(self)
        for where, name, usual in (
            (values, "vectors", "cipher"),
            (values["start"], "sharpness", 1.0),
            (values["start"], "smoothing", SMOOTHING),
        ):
            if where[name] == usual:
                del where[name]
        return {"version": TRAIN_VERSION, "text": fingerprint, "evaluate": evaluate, **values}
