"""How the networks of the SAFFU study are built and start.

Seconds are processor seconds of this process on a CPU, which does one thing at a time, and wall seconds elsewhere.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asym.data.contexts import Reach, contexts
from asym.data.text import Stream, TextData
from asym.explicit.cipher import cipher_vectors
from asym.explicit.counts import count_pairs
from asym.explicit.softmax import solve_softmax
from asym.explicit.start import Solution, add_unigram_bias, solve
from asym.explicit.vectors import context_vectors
from asym.models.language import Decoder, FeedForwardLM, LstmLM, matched, parameters
from asym.models.saffu import SaffuLM
from asym.seeds import numpy_generator, torch_generator
from studies.saffu_nets import Net, Sizes, Start

FIXED_SCALE = 10.0
"""γ: constants of a W-asymmetric output are γ times the label code of their token."""


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
            embedding = torch.from_numpy(_vectors(net, data)).float()
        return SaffuLM(embedding, sizes.hidden, sizes.reach, train_embedding=net.train_embedding)
    return _other(net.model, sizes, vocabulary)


def _vectors(net: Net, data: TextData) -> np.ndarray:
    """Codes of the tokens, or of their neighbours within `NEIGHBOURS` places in all of the training text."""
    codes = cipher_vectors(data.counts, net.sizes.bits)
    if net.vectors == "cipher":
        return codes
    key = (data.fingerprint, len(data.tokens))
    if key not in _PAIRS:
        around = [offset for offset in range(-NEIGHBOURS, NEIGHBOURS + 1) if offset]
        _PAIRS[key] = count_pairs([(data.train.ids, data.train.starts)], len(data.tokens), around)
    return context_vectors(_PAIRS[key], codes, data.counts.astype(np.int64), aggregation=net.vectors)


NEIGHBOURS = 2
_PAIRS: dict[tuple[str, int], dict[int, Any]] = {}
"""Pairs that have been counted in this process."""


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
        solution = Solution(
            start.explicit, start.priming, start.output_priming, start.attention, start.sharpness, start.smoothing
        )
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
