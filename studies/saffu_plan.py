"""The list of what the SAFFU study does: cells of pairs, averages, arms and trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from asym.data.text import TextData
from asym.seeds import derived_seed
from asym.store import config_hash
from studies.saffu import PARTIAL, Config
from studies.saffu_grid import ARMS, designs
from studies.saffu_nets import EXPLICIT, TRAIN_VERSION, Net, Part, Start, TextArgs
from studies.saffu_pairs import MEASURE_VERSION, Pair
from studies.saffu_presets import Defaults
from studies.saffu_quality import Trial, arms


class Plan:
    """Makes the tasks."""

    def __init__(self, config: Config, values: Defaults, data: TextData, args: TextArgs, device: str) -> None:
        self.config, self.values, self.data, self.args, self.device = config, values, data, args, device
        shared = {
            "version": (TRAIN_VERSION, MEASURE_VERSION),
            "text": data.fingerprint,
            "sizes": dataclasses.asdict(values.sizes),
            **{name: getattr(values, name) for name in ("contexts", "steps", "batch_size", "points", "evaluate")},
            "seed": config.seed,
        }
        self.hash = config_hash(shared)
        self.head = {
            "study": "saffu", "preset": config.preset, "config": self.hash, "dataset": data.name,
            "vocabulary": config.vocabulary, "size": len(data.tokens), "bits": values.sizes.bits,
            "hidden": values.sizes.hidden, "block": values.sizes.block, "radius": values.sizes.radius,
            "document": values.sizes.document, "contexts": values.contexts, "batch_size": values.batch_size,
            "train_tokens": len(data.train),
        }  # fmt: skip

    def net(self, lr: float, **options: Any) -> Net:
        """A network at its preset's sizes."""
        given = {
            "model": "saffu", "sizes": self.values.sizes, "start": Start(contexts=self.values.contexts),
            "part": Part(), "steps": self.values.steps, "batch": self.values.batch_size, "order_seed": 0,
        }  # fmt: skip
        return Net(lr=lr, **(given | options))

    def seeds(self, repeat: int, side: int) -> tuple[int, int]:
        """Seeds of the start and of the data order of network `side` of a repeat."""
        return tuple(derived_seed(self.config.seed, "saffu", what, repeat, side) for what in ("start", "order"))  # type: ignore[return-value]

    def two(self, lr: float, repeat: int, start: str, data: str, embedding: str, **options: Any) -> tuple[Net, Net]:
        """The two networks of a cell."""
        nets = []
        for side in (0, 1):
            seed, order = self.seeds(repeat, side)
            if start == "random-same":
                seed = self.seeds(repeat, 0)[0]
            part = Part(2, side, repeat) if data == "disjoint" else Part()
            begin = dataclasses.replace(start_of(start, side), seed=seed, contexts=self.values.contexts)
            nets.append(
                self.net(
                    lr, start=begin, part=part, order_seed=order, train_embedding=embedding == "trained",
                    random_embedding=start == "random-all", **options,
                )
            )  # fmt: skip
        return nets[0], nets[1]

    def pair(self, nets: tuple[Net, ...], alignments: tuple[str, ...], columns: dict[str, Any]) -> Pair:
        """A task."""
        return Pair(
            nets, None, alignments, self.values.points, self.values.evaluate, self.args, str(self.config.runs),
            self.device, tuple((self.head | columns).items()),
        )  # fmt: skip

    def pairs(self) -> Iterator[Pair]:
        """Connectivity: the middle rate for everything; partial starts, one text and trained vectors there alone."""
        rates = sorted(self.values.rates)
        middle = rates[len(rates) // 2]
        for repeat in range(self.values.repeats):
            for lr in rates:
                for data in self.values.data:
                    for embedding in self.values.embeddings:
                        for start in self.values.starts:
                            usual = data == "disjoint" and embedding == "frozen" and start not in PARTIAL
                            if lr != middle and not usual:
                                continue
                            if not _sensible(start, data, embedding):
                                continue
                            yield self._cell(lr, repeat, start, data, embedding)
            for start in self.values.starts:
                if start in ("explicit", "own-code", "random"):
                    yield self._cell(middle, repeat, start, "disjoint", "frozen", steps=0)

    def _cell(self, lr: float, repeat: int, start: str, data: str, embedding: str, **options: Any) -> Pair:
        steps = options.get("steps", self.values.steps)
        nets = self.two(lr if steps else 0.0, repeat, start, data, embedding, **options)
        columns = {
            "model": "saffu", "start": start, "data": data, "embedding": embedding, "fixed_share": 0.0, "steps": steps,
            "lr": lr if steps else 0.0, "repeat": repeat,
        } | _seeds(nets)  # fmt: skip
        alignments = ("none", "weight", "activation") + (("known",) if start == "permuted" else ())
        return self.pair(nets, alignments, columns)

    def architecture(self) -> Iterator[Pair]:
        """Fewer symmetries by architecture, from random and explicit starts; decoders with label heads."""
        middle = sorted(self.values.rates)[len(self.values.rates) // 2]
        slow = sorted(self.values.other_lrs)[len(self.values.other_lrs) // 2]
        cells = [("saffu-w", start, share) for start in ("random", "explicit") for share in self.config.fixed_shares]
        cells += [("saffu", start, 0.0) for start in ("random", "explicit")]
        cells += [("decoder", "random", 0.0), ("decoder-labels", "random", 0.0), ("decoder-labels", "explicit", 0.0)]
        for repeat in range(self.values.repeats):
            for model, start, share in cells:
                lr = middle if model.startswith("saffu") else slow
                nets = self.two(lr, repeat, start, "disjoint", "frozen", model=model, fixed_share=share)
                columns = {
                    "model": model, "start": start, "data": "disjoint", "embedding": "frozen", "fixed_share": share,
                    "steps": self.values.steps, "lr": lr, "repeat": repeat,
                } | _seeds(nets)  # fmt: skip
                yield self.pair(nets, ("none", "weight") if model == "saffu" else ("none",), columns)

    def averages(self) -> Iterator[Pair]:
        """Merging: averages of k networks, each of its own part of the text."""
        middle = sorted(self.values.rates)[len(self.values.rates) // 2]
        for repeat in range(self.values.repeats):
            for k in self.values.merge:
                for start in ("explicit", "random-same", "random"):
                    nets = []
                    for side in range(k):
                        seed, order = self.seeds(repeat, side)
                        seed = self.seeds(repeat, 0)[0] if start == "random-same" else seed
                        begin = dataclasses.replace(start_of(start, 0), seed=seed, contexts=self.values.contexts)
                        nets.append(self.net(middle, start=begin, part=Part(k, side, repeat), order_seed=order))
                    union = dataclasses.replace(nets[0], part=Part())
                    columns = {"start": start, "k": k, "repeat": repeat, "lr": middle, "steps": self.values.steps}
                    yield dataclasses.replace(self.pair(tuple(nets), (), columns), union=union)

    def _trial(self, arm: str, net: Net, columns: dict[str, Any]) -> Trial:
        head = self.head | {"arm": arm} | columns
        return Trial(arm, net, self.values.evaluate, self.args, str(self.config.runs), self.device, tuple(head.items()))

    def _arms(self, fraction: float) -> dict[str, Net]:
        return arms(self.net(0.0, part=Part(fraction=fraction)), self.values.primings)

    def lrs(self, net: Net) -> tuple[float, ...]:
        """The rates that an arm is tuned over."""
        return self.values.lrs if net.model == "saffu" else self.values.other_lrs

    def tuning(self) -> Iterator[Trial]:
        """A network for each arm, fraction and rate, with seeds of its own."""
        seed, order = self.seeds(-1, 0)
        for fraction in self.config.fractions:
            for arm, net in self._arms(fraction).items():
                for lr in self.lrs(net):
                    start = dataclasses.replace(net.start, seed=seed)
                    yield self._trial(
                        arm, dataclasses.replace(net, lr=lr, start=start, order_seed=order), {"fraction": fraction}
                    )

    def arms(self) -> Iterator[Trial]:
        """Trained arms, without their rates."""
        for repeat in range(self.values.repeats):
            seed, order = self.seeds(repeat, 0)
            for fraction in self.config.fractions:
                for arm, net in self._arms(fraction).items():
                    net = dataclasses.replace(net, start=dataclasses.replace(net.start, seed=seed), order_seed=order)
                    yield self._trial(arm, net, {"fraction": fraction, "control": "none", "repeat": repeat})

    def explicit(self) -> Iterator[Trial]:
        """The explicit start as it is, also on shuffled text."""
        for repeat in range(self.values.repeats):
            seed, order = self.seeds(repeat, 0)
            for fraction in self.config.fractions:
                for control in ("none", "shuffled"):
                    start = dataclasses.replace(EXPLICIT, seed=seed, contexts=self.values.contexts)
                    part = Part(fraction=fraction, shuffled=control == "shuffled")
                    net = self.net(0.0, start=start, part=part, order_seed=order)
                    columns = {"fraction": fraction, "control": control, "repeat": repeat}
                    yield self._trial("explicit only", net, columns)

    def counts(self) -> Iterator[Trial]:
        """Models of counts, also on shuffled text; they have no seed."""
        for fraction in self.config.fractions:
            for control in ("none", "shuffled"):
                net = self.net(0.0, part=Part(fraction=fraction, shuffled=control == "shuffled"))
                yield self._trial("counts", net, {"fraction": fraction, "control": control, "repeat": 0})

    def grid(self) -> Iterator[Trial]:
        """Every design from both starts at the middle rate."""
        middle = sorted(self.values.rates)[len(self.values.rates) // 2]
        found = list(designs(self.values.sizes, len(self.data.tokens), self.values.designs, self.config.seed))
        for repeat in range(self.values.repeats):
            seed, order = self.seeds(repeat, 0)
            start = Start(seed=seed, contexts=self.values.contexts)
            for design in found:
                for arm in ARMS:
                    net = design.net(self.net(middle, start=start, order_seed=order), arm)
                    yield self._trial(arm, net, design.columns | {"repeat": repeat})

    def cost(self) -> Iterator[Trial]:
        """One network of each model, a tenth of the steps, at a rate of no matter."""
        steps = max(10, self.values.steps // 10)
        for repeat in range(self.values.repeats):
            for arm, net in self._arms(1.0).items():
                if arm.startswith("warm") and net.start.priming != self.values.primings[0]:
                    continue
                columns = {"repeat": repeat, "steps": steps}
                yield self._trial(arm, dataclasses.replace(net, lr=1e-3, steps=steps), columns)


def start_of(name: str, side: int) -> Start:
    """The start that a name stands for, of the first or second network of a pair."""
    if name.startswith("noise-"):
        return dataclasses.replace(EXPLICIT, noise=float(name.removeprefix("noise-")))
    if name == "permuted":
        return dataclasses.replace(EXPLICIT, permute=side == 1)
    if name == "own-code":
        return dataclasses.replace(EXPLICIT, own_labels=True)
    if name == "explicit":
        return EXPLICIT
    if name in PARTIAL:
        return Start((name.removesuffix("-only"),))
    return Start()


def _sensible(start: str, data: str, embedding: str) -> bool:
    """Whether a cell says something new."""
    if start == "random-all":  # random vectors are for networks that train them
        return embedding == "trained" and data == "disjoint"
    if start in PARTIAL or start.startswith("noise-"):
        return data == "disjoint" and embedding == "frozen"
    if embedding == "trained":
        return data == "disjoint" and start in ("explicit", "random")
    return not (start == "own-code" and data == "same")  # the same text gives the same code


def _seeds(nets: tuple[Net, Net]) -> dict[str, int]:
    return {"seed_a": nets[0].start.seed, "seed_b": nets[1].start.seed}
