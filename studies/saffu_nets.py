"""The networks of the SAFFU study: what determines one, how it is built and how it starts.

Seconds are processor seconds of this process on a CPU, which does one thing at a time, and wall seconds elsewhere.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asym.data.contexts import Reach, contexts
from asym.data.text import Stream, TextData, load_text
from asym.explicit.cipher import cipher_vectors
from asym.explicit.softmax import solve_softmax
from asym.explicit.start import PARTS, Solution, add_unigram_bias, solve
from asym.models.language import Decoder, FeedForwardLM, LstmLM, matched, parameters
from asym.models.saffu import SaffuLM
from asym.seeds import numpy_generator, torch_generator

TRAIN_VERSION = 1
FIXED_SCALE = 10.0
"""γ: constants of a W-asymmetric output are γ times the label code of their token."""
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

    def config(self, fingerprint: str, evaluate: int) -> dict[str, Any]:
        """What the store's hash is taken of."""
        return {
            "version": TRAIN_VERSION,
            "text": fingerprint,
            "evaluate": evaluate,
            **dataclasses.asdict(self),
        }


class Clock:
    """Seconds of computing so far: processor seconds of this process on a CPU, wall seconds after what was asked of an
    accelerator is done.
    """

    def __init__(self, device: str) -> None:
        self.device, self.spent = device, 0.0
        self.resume()

    def _now(self) -> float:
        if self.device == "cpu":
            return time.process_time()
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()

    def resume(self) -> None:
        """Go on counting."""
        self.since = self._now()

    def seconds(self) -> float:
        """Seconds counted; counting goes on."""
        now = self._now()
        self.spent, self.since = self.spent + now - self.since, now
        return self.spent


@functools.lru_cache(maxsize=8)
def label_codes(hidden: int, counts: bytes) -> Tensor:
    """Label codes of tokens with these counts (int64 bytes)."""
    return torch.from_numpy(cipher_vectors(np.frombuffer(counts, dtype=np.int64), hidden)).float()


def build(net: Net, data: TextData) -> nn.Module:
    """The network without a start, on the CPU (or the meta device)."""
    sizes, vocabulary = net.sizes, len(data.tokens)
    if net.model.startswith("saffu"):
        if net.random_embedding:
            drawn = torch.rand(vocabulary, sizes.bits, generator=torch_generator(net.start.seed, "saffu", "embedding"))
            embedding = drawn / drawn.sum(1, keepdim=True)
        else:
            embedding = torch.from_numpy(cipher_vectors(data.counts, sizes.bits)).float()
        return SaffuLM(embedding, sizes.hidden, sizes.reach, train_embedding=net.train_embedding)
    return _other(net.model, sizes, vocabulary)


def _other(name: str, sizes: Sizes, vocabulary: int) -> nn.Module:
    """A comparison model of as many trainable parameters as the SAFFU model, or of as many operations a token."""
    kind = name.removesuffix("-flops")
    makers: dict[str, tuple[Callable[[int], nn.Module], int]] = {
        "decoder": (lambda d: Decoder(vocabulary, d, sizes.length), 2),
        "decoder-labels": (lambda d: Decoder(vocabulary, d, sizes.length, labels=sizes.hidden), 2),
        "lstm": (lambda d: LstmLM(vocabulary, d), 1),
        "feed-forward": (lambda d: FeedForwardLM(vocabulary, d, sizes.radius or sizes.block, d), 1),
    }
    make, step = makers[kind]
    if (name, sizes, vocabulary) not in _WIDTHS:
        reference = SaffuLM(torch.empty(vocabulary, sizes.bits), sizes.hidden, sizes.reach)
        if name.endswith("-flops"):
            width = matched(make, lambda m: m.flops(sizes.length), reference.flops(), step)  # type: ignore[operator]
        else:
            width = matched(make, parameters, parameters(reference), step)
        _WIDTHS[name, sizes, vocabulary] = width
    return make(_WIDTHS[name, sizes, vocabulary])


_WIDTHS: dict[tuple[str, Sizes, int], int] = {}
"""Widths that have been found in this process."""


def begin(net: Net, data: TextData, device: str = "cpu") -> tuple[nn.Module, float]:
    """A started network, and the seconds that its explicit solve took."""
    model = build(net, data)
    model.reset_parameters(torch_generator(net.start.seed, "saffu", "start"))  # type: ignore[operator]
    model.to(device)
    counts = data.counts.astype(np.int64)
    stream, start = net.part.of(data.train), net.start
    own = np.bincount(stream.ids, minlength=len(data.tokens)).astype(np.int64)
    labels = label_codes(net.sizes.hidden, (own if start.own_labels else counts).tobytes()).to(device)
    seconds = 0.0
    if isinstance(model, SaffuLM) and start.explicit:
        clock = Clock(device)
        solution = Solution(start.explicit, start.priming, start.output_priming, start.attention)
        solve(model, *counted(net, stream, device), labels, solution)
        seconds = clock.seconds()
    if isinstance(model, Decoder) and model.head is not None and start.explicit:
        with torch.no_grad():
            model.head.output.copy_(label_output(labels, torch.from_numpy(own).to(device), start.priming))
    if isinstance(model, SaffuLM):
        if start.bias:
            add_unigram_bias(model, torch.from_numpy(own).to(device))
        _disturb(model, start)
        if net.fixed_share:
            number = round(net.fixed_share * len(data.tokens))
            mask = torch.ones(model.output.shape, dtype=torch.bool, device=device)
            mask[:, np.argsort(-counts, kind="stable")[:number].copy()] = False
            model.fix_output(FIXED_SCALE * labels.T.repeat(model.parts, 1), mask)
    return model, seconds


def label_output(labels: Tensor, counts: Tensor, priming: float) -> Tensor:
    """The explicit O for inputs that are the label code of the next token half of the time, and else uniform.

    Codes without that noise would rule tokens out by any unit that is not exactly as expected, the frequent ones first.
    """
    code = 0.5 * labels + 0.5 / labels.shape[1]
    output = solve_softmax(((counts + 1.0)[:, None] * code).T.double(), priming=priming, smoothing=0.0)
    return (output - output.mean(1, keepdim=True)).float()


def counted(net: Net, stream: Stream, device: str) -> tuple[Tensor, Tensor]:
    """The contexts that an explicit start counts: a random choice, of all documents."""
    order = numpy_generator(net.start.seed, "saffu", "contexts").permutation(stream.targets)
    return at_places(stream, order[: net.start.contexts], net.sizes.reach, device)


def at_places(stream: Stream, places: np.ndarray, reach: Reach, device: str) -> tuple[Tensor, Tensor]:
    """Contexts and tokens of these places."""
    y = torch.from_numpy(stream.ids[places].astype(np.int64))
    return contexts(stream, places, reach).to(device), y.to(device)


@torch.no_grad()
def _disturb(model: SaffuLM, start: Start) -> None:
    if start.permute:
        for i, layer in enumerate(model.layers.values()):
            order = permutation(start.seed, i, model.width).to(model.output.device)
            layer.hidden.copy_(layer.hidden[:, order])  # type: ignore[operator, index]
            rows = slice(i * model.width, (i + 1) * model.width)
            model.output[rows] = model.output[rows][order]
    if start.noise:
        generator = torch_generator(start.seed, "saffu", "noise")
        for name, parameter in model.named_parameters():
            if name != "embedding":
                drawn = torch.randn(parameter.shape, generator=generator).to(parameter.device)
                parameter += start.noise * parameter.std() * drawn


def permutation(seed: int, context: int, size: int) -> Tensor:
    """The order of a context's hidden units that `Start.permute` draws."""
    return torch.randperm(size, generator=torch_generator(seed, "saffu", "permute", context))
