"""Claims about networks that read transformers: Transformer-NFN, and what its reviewers asked.

τ is Kendall's τ-b on test networks, with intervals of the study's own tables: bootstrap over test networks, paired.
"""

from __future__ import annotations

from typing import Any

from asym.intervals import Interval, share_interval
from studies.claims_rules import OWN, Check, Claim, Setting, Tables, above, below, exactly, given, inside, of_zoo

TRANSFORMER = "Equivariant NFNs for Transformers"
STUDY = "transformer_metanet"
CLOSE = 0.02
"""τ within this of each other are about equal."""
SAME = 1e-5
"""Predictions that differ by less are one number in float32."""
TREES = ("boost", "forest", "stats", "stats-boost", "flat")
KINDS = ("one-seed", "many-seeds")
LESS = (
    " --readers nfn nfn-low nfn-heads flat stats stats-boost boost forest hyper-boost --thresholds 0.0"
    " --skip held-out augmented heads"
)
"""Flags of the runs beside the main one."""


def _zoo(networks: int, dim: int = 16, dataset: str = "digits", arch: str = "transformer-plain") -> dict[str, Any]:
    """What the summary says of the networks of a zoo."""
    return {"arch": arch, "dataset": dataset, "dim": dim, "networks": networks}


ZOOS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("digit transformers, D = 16", _zoo(600), ""),
    ("1,500 digit transformers, D = 16", _zoo(1500), f" --networks 1500{LESS.replace('flat', 'units flat')}"),
    ("digit transformers, D = 32", _zoo(600, dim=32), f" --dim 32{LESS}"),
    ("transformers on documentation strings", _zoo(400, dataset="docstrings"),
     f" --networks 400 --dataset docstrings{LESS}"),
    ("language models of characters", _zoo(300, dataset="characters", arch="transformer-causal"),
     f" --zoos many-seeds --networks 300 --dataset characters --arch transformer-causal{LESS}"),
)  # fmt: skip
"""Zoos of transformers: name, what tells their rows, what makes them."""


def _reading(tables: Tables, reader: str, zoo: dict[str, Any]) -> Interval:
    """τ of a reader minus that of the published one, on all networks, split at random."""
    rows = of_zoo(
        tables, STUDY, "transformer_metanet_differences", zoo, reader=reader, threshold=0.0, split="random"
    )  # fmt: skip
    return given(rows, n="test_networks")


def _c01(tables: Tables, zoo: dict[str, Any]) -> list[Check]:
    return [below(f"τ of {name} minus Transformer-NFN's", _reading(tables, name, zoo)) for name in TREES]


def _c02(tables: Tables, zoo: dict[str, Any]) -> list[Check]:
    summary = tables("transformer_metanet_summary", reader="nfn", threshold=0.0, split="random", **zoo)
    count = int(summary.iloc[0]["test_networks"])
    checks = []
    for name in ("nfn", "flat", "stats", "boost", "forest", "stats-boost"):
        moves = of_zoo(tables, STUDY, "transformer_metanet_moves", zoo, threshold=0.0, reader=name, move="group-1")
        found = given(moves.assign(n=count), "change", "change_low", "change_high")
        text = f"change of τ of {name} on networks moved along the group"
        checks.append(inside(text, found, CLOSE) if name == "nfn" else below(text, found, -CLOSE))
    return checks


def _c03(tables: Tables, zoo: dict[str, Any]) -> list[Check]:
    checks = [inside("τ of the encoder alone minus the whole", _reading(tables, "nfn-encoder", zoo), CLOSE)]
    for name in ("nfn-embedding", "nfn-classifier"):
        checks.append(below(f"τ of {name} minus the whole", _reading(tables, name, zoo)))
    return checks


def _c04(tables: Tables) -> list[Check]:
    rows = tables("audit", kind="continuous", arch="transformer-plain", variant="standard")
    by = ["arch", "point"]
    whole = rows[rows["family"] == "all"].set_index(by)["found"]
    general = rows[rows["family"].str.endswith(" GL")].groupby(by)["found"].sum().reindex(whole.index)
    own = rows[rows["family"].str.contains("query|key|value")].groupby(by)["found"].sum().reindex(whole.index)
    return [
        exactly("attention whose symmetries are the given ones", own, general),
        exactly("blocks whose symmetries are the given ones", whole, general),
    ]


def _n02(tables: Tables, zoo: dict[str, Any]) -> list[Check]:
    blind, aware = (tables("transformer_metanet_heads", reader=r, **zoo) for r in ("nfn-encoder", "nfn-heads"))
    n = int(aware["test_networks"].iloc[0])  # all trainings are tested on the same networks
    found = share_interval(round(float(aware["right"].mean()) * n), n)
    alike = blind["largest_difference"] < SAME
    return [
        exactly("trainings of Transformer-NFN that give both pairings one number", alike, [True] * len(alike)),
        above("share of pairings told apart by the head-aware form", found, 0.6),
    ]


def _low(tables: Tables, zoo: dict[str, Any]) -> list[Check]:
    return [above("τ of the low-rank form minus the whole", _reading(tables, "nfn-low", zoo), -CLOSE)]


def _by_zoo(checks: Any) -> tuple[Setting, ...]:
    return tuple(
        Setting(f"{name}, {kind}", f"transformer_metanet{flags}", lambda t, own={**zoo, "kind": kind}: checks(t, own))
        for name, zoo, flags in ZOOS
        for kind in KINDS
    )


CLAIMS = (
    Claim("C01", TRANSFORMER, "Transformer-NFN predicts accuracy better than every baseline",
          "AG News .910, runner-up ≈ .879; MNIST .905", "second-hand", _by_zoo(_c01), headline=True),
    Claim("C02", TRANSFORMER, "It stays put when networks are moved along the group, the others fall",
          "gap .031 → .082", "verified", _by_zoo(_c02)),
    Claim("C03", TRANSFORMER, "The encoder carries most of the information", ".902 of .905", "verified",
          _by_zoo(_c03)),
    Claim("C04", TRANSFORMER, "The given group is all the symmetry there is", "theorem, of bare attention", "derived",
          (Setting("transformer without biases and scales, narrow copy", "audit --points 3", _c04),)),
    Claim("C05", TRANSFORMER, "The layer is the general equivariant one", "theorem, for its stable terms", "derived",
          elsewhere="dimension = that of the null space: tests/metanets/test_metanets_transformer_nfn.py"),
    Claim("C06", TRANSFORMER, "Cost O(d e h D² max(D_q, D_k, D_v))", "memory D³ not said", "derived",
          elsewhere="python -m benchmarks transformer-nfn transformer-nfn-curve"),
    Claim("N02", OWN, "Transformer-NFN cannot see which heads belong together, the head-aware form can", "–", "derived",
          _by_zoo(_n02), headline=True),
    Claim("P05", OWN, "Low-rank coefficients cost Transformer-NFN nothing", "–", "–", _by_zoo(_low)),
)  # fmt: skip
