"""Claims about SAFFU: what an explicit start does to quality, and what it does to symmetry (H1 to H12).

Losses in nats a token of test text. Cells of connectivity are networks on disjoint texts with frozen vectors unless
said otherwise; comparisons are paired by repeat. Among the warm arms of `quality`, which differ in their priming
number, the one with the lowest validation loss stands for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from studies.claims_landscape import BARRIER, FLAT
from studies.claims_rules import OWN, Check, Claim, NoRows, Setting, Tables, above, below, inside, mean_of, paired

if TYPE_CHECKING:
    import pandas as pd

    from asym.intervals import Interval

PAPER = "SAFFU: explicit solutions"
NONE = 0.01
"""A barrier below this many nats is none (H1); it is negative where the average is better than its parts."""
CLOSE = 0.05
"""Losses within this of each other are about equal: 5 % in perplexity."""
TIE = 0.02
"""An advantage below this many nats is none: 2 % in perplexity."""
BY = ("repeat",)
TEXTS = {
    "pydoc": ("SAFFU, documentation strings", "saffu"),
    "austen": ("SAFFU, novels", "saffu --dataset text:austen --dataset-name austen --preset paper --parts {part}"),
}
"""Texts by name in the tables: setting and command."""
NOVELS = {
    "connectivity": "--starts explicit permuted own-code random-same random --data disjoint --embeddings frozen "
    "--steps 500 --points 7 --evaluate 4000",
    "quality": "--steps 800 --repeats 3",
    "merging": "--steps 500 --repeats 5 --merge 2 3",
}
"""Flags that cut the runs on novels to size, by part."""


def _cell(tables: Tables, text: str, start: str, alignment: str = "none", **where: Any) -> pd.DataFrame:
    rows = tables("saffu_connectivity", dataset=text, start=start, alignment=alignment)
    wanted = {"data": "disjoint", "embedding": "frozen"} | where
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    rows = rows[rows["steps"] > 0]
    if rows.empty:
        raise NoRows(f"saffu_connectivity.csv has no {start} with {wanted} on {text}")
    return rows


def _rates(tables: Tables, text: str, start: str = "explicit") -> list[float]:
    return sorted(_cell(tables, text, start)["lr"].unique())


def _middle(tables: Tables, text: str, start: str, alignment: str = "none", **where: Any) -> pd.DataFrame:
    """A cell at the middle rate, at which every start was trained."""
    rates = _rates(tables, text)
    return _cell(tables, text, start, alignment, lr=rates[len(rates) // 2], **where)


def _barrier(tables: Tables, text: str, start: str, alignment: str = "none", **where: Any) -> Interval:
    return mean_of(_middle(tables, text, start, alignment, **where), BARRIER)


def _h01(tables: Tables, text: str) -> list[Check]:
    checks = []
    for rate in _rates(tables, text):
        for start, test in (("explicit", lambda t, i: below(t, i, NONE)), ("random", lambda t, i: above(t, i, 0.2))):
            found = mean_of(_cell(tables, text, start, lr=rate), BARRIER)
            checks.append(test(f"barrier of {start} starts at rate {rate:g}", found))
    return checks


def _h02(tables: Tables, text: str) -> list[Check]:
    return [
        above("barrier after permuting one start", _barrier(tables, text, "permuted"), FLAT),
        below("barrier after the known inverse", _barrier(tables, text, "permuted", "known"), NONE),
    ]


def _h03(tables: Tables, text: str) -> list[Check]:
    own = _middle(tables, text, "own-code")
    return [
        above("barrier with codes of their own", mean_of(own, BARRIER), FLAT),
        below("barrier with one code", _barrier(tables, text, "explicit"), NONE),
    ]


def _h04(tables: Tables, text: str) -> list[Check]:
    rows = tables("saffu_connectivity", dataset=text, alignment="none")
    sizes = sorted({float(s.removeprefix("noise-")) for s in rows["start"] if s.startswith("noise-")})
    if len(sizes) < 2:
        raise NoRows("saffu_connectivity.csv has fewer than two sizes of noise")
    least, most = (_middle(tables, text, f"noise-{size:g}") for size in (sizes[0], sizes[-1]))
    text_ = f"barrier at noise {sizes[-1]:g} minus at {sizes[0]:g}"
    return [above(text_, paired(most, least, BARRIER, BY))]


def _h05(tables: Tables, text: str) -> list[Check]:
    rates = _rates(tables, text)
    low, high = (_cell(tables, text, "random-same", lr=rate) for rate in (rates[0], rates[-1]))
    return [
        above(f"barrier of one random start at rate {rates[-1]:g} minus {rates[0]:g}", paired(high, low, BARRIER, BY)),
        below(
            f"explicit barrier at rate {rates[-1]:g}",
            mean_of(_cell(tables, text, "explicit", lr=rates[-1]), BARRIER),
            NONE,
        ),
    ]


def _h06(tables: Tables, text: str) -> list[Check]:
    plain = _middle(tables, text, "random")
    change = {s: paired(_middle(tables, text, f"{s}-only"), plain, BARRIER, BY) for s in ("hidden", "attention")}
    return [
        below("barrier with the hidden layer alone explicit minus random", change["hidden"]),
        inside("barrier with attention alone explicit minus random", change["attention"], CLOSE),
    ]


def _h07(tables: Tables, text: str) -> list[Check]:
    rows = tables("saffu_merging", dataset=text, start="explicit")
    checks = []
    for k in sorted(rows["k"].unique()):
        own = rows[rows["k"] == k]
        gain = own.assign(gain=own["loss_average"] - own["loss_best_part"])
        checks.append(below(f"loss of the average of {k} minus its best part", mean_of(gain, "gain")))
    return checks


def _h08(tables: Tables, text: str) -> list[Check]:
    where: dict[str, Any] = {"dataset": text, "alignment": "none"}
    masked = tables("saffu_architecture", model="saffu-w", start="random", **where)
    plain = tables("saffu_architecture", model="saffu", start="random", **where)
    explicit = tables("saffu_architecture", model="saffu", start="explicit", **where)
    return [
        below("barrier with constant output columns minus random", paired(masked, plain, BARRIER, BY)),
        below("barrier of explicit starts minus constant columns", paired(explicit, masked, BARRIER, BY)),
    ]


def _h11(tables: Tables, text: str) -> list[Check]:
    return [
        below("explicit barrier with trained vectors", _barrier(tables, text, "explicit", embedding="trained"), NONE),
        above("random barrier with trained vectors", _barrier(tables, text, "random", embedding="trained"), FLAT),
    ]


def _h12(tables: Tables, text: str) -> list[Check]:
    where: dict[str, Any] = {"dataset": text, "alignment": "none", "model": "decoder-labels", "start": "explicit"}
    rows = tables("saffu_architecture", **where)
    return [above("barrier of decoders with an explicit label head", mean_of(rows, BARRIER), FLAT)]


def _arm(tables: Tables, text: str, arm: str, **where: Any) -> pd.DataFrame:
    wanted = {"dataset": text, "control": "none", "fraction": 1.0, "arm": arm} | where
    return tables("saffu_quality", **wanted)


def _warm(tables: Tables, text: str) -> pd.DataFrame:
    """The warm arm with the lowest validation loss: one number more is tuned than for a random start."""
    rows = tables("saffu_quality", dataset=text, control="none", fraction=1.0)
    rows = rows[rows["arm"].str.startswith("warm")]
    if rows.empty:
        raise NoRows("saffu_quality.csv has no warm arm")
    return rows[rows["arm"] == rows.groupby("arm")["val_loss"].mean().idxmin()]


def _d01(tables: Tables, text: str) -> list[Check]:
    found = paired(_warm(tables, text), _arm(tables, text, "random"), "start_loss", BY)
    return [below("loss before training, warm minus random", found)]


def _d02(tables: Tables, text: str) -> list[Check]:
    """The second cold start knows how frequent each word is, as any explicit one does."""
    warm = _warm(tables, text)
    return [
        below(
            f"loss after training at tuned rates, warm minus {arm}",
            paired(warm, _arm(tables, text, arm), "test_loss", BY),
        )
        for arm in ("random", "random + unigram")
    ]


def _d03(tables: Tables, text: str) -> list[Check]:
    rows = tables("saffu_quality", dataset=text, control="none", arm="explicit only")
    few = rows["fraction"].min()
    if few >= 1.0:
        raise NoRows("saffu_quality.csv has one size of text")
    found = paired(rows[rows["fraction"] == few], rows[rows["fraction"] == 1.0], "test_loss", BY)
    return [inside(f"loss of the explicit start from {few:g} of the text minus from all", found, 0.1)]


def _d04(tables: Tables, text: str) -> list[Check]:
    # The decoder of as many operations a token is the same network at these sizes: one check, not two.
    decoder = _arm(tables, text, "decoder")
    return [below("loss of warm SAFFU minus decoder", paired(_warm(tables, text), decoder, "test_loss", BY), CLOSE)]


def _n07(tables: Tables, text: str) -> list[Check]:
    warm, plain = _warm(tables, text), _arm(tables, text, "random")
    output = paired(_arm(tables, text, "explicit output"), warm, "test_loss", BY)
    return [
        above("loss at tuned rates, warm minus random", paired(warm, plain, "test_loss", BY), -TIE),
        inside("loss with an explicit output layer alone minus warm", output, CLOSE),
    ]


def _h09(tables: Tables, text: str) -> list[Check]:
    found = paired(_warm(tables, text), _arm(tables, text, "random"), "test_loss", BY)
    return [
        above("loss at tuned rates, warm minus random", found, -TIE),
        below("explicit barrier", _barrier(tables, text, "explicit"), NONE),
    ]


def _p06(tables: Tables, text: str) -> list[Check]:
    where: dict[str, Any] = {"dataset": text, "control": "shuffled", "fraction": 1.0}
    start = tables("saffu_quality", arm="explicit only", **where)
    unigram = float(tables("saffu_quality", arm="unigram", **where)["test_loss"].iloc[0])
    gain = mean_of(start.assign(gain=start["test_loss"] - unigram), "gain")
    trigram = tables("saffu_quality", dataset=text, control="none", fraction=1.0)
    there = trigram["arm"].str.contains("3|trigram").any()
    return [above("loss of the explicit start on shuffled text minus unigram", gain, -0.01)] if there else []


def _n01(tables: Tables, text: str) -> list[Check]:
    return [
        below("explicit barrier, disjoint texts", _barrier(tables, text, "explicit"), NONE),
        above("random barrier", _barrier(tables, text, "random"), FLAT),
        above("barrier with codes of their own", _barrier(tables, text, "own-code"), FLAT),
    ]


def _command(command: str, text: str, part: str) -> str:
    return f"{command.format(part=part)} {NOVELS.get(part, '') if text == 'austen' else ''}".strip()


def _on(checks: Callable[[Tables, str], list[Check]], part: str) -> tuple[Setting, ...]:
    return tuple(
        Setting(name, _command(command, text, part), lambda tables, text=text: checks(tables, text))
        for text, (name, command) in TEXTS.items()
    )


CLAIMS = (
    Claim("D01", PAPER, "An explicit start is better than a random one before training", "perplexity", "second-hand",
          _on(_d01, "quality")),
    Claim("D02", PAPER, "After training a warm start ends lower than a cold one", "perplexity", "second-hand",
          _on(_d02, "quality"), headline=True),
    Claim("D03", PAPER, "The explicit solution needs little data", "–", "second-hand", _on(_d03, "quality")),
    Claim("D04", PAPER, "SAFFU keeps up with a decoder of its size", "never measured", "–", _on(_d04, "quality")),
    Claim("N01", OWN, "Explicit starts from different texts are connected without alignment, by their common code",
          "first look: .000 against .43 to .50", "–", _on(_n01, "connectivity"), headline=True),
    Claim("N07", OWN, "At tuned rates the warm start has no advantage, and the output layer has most of it",
          "first look", "–", _on(_n07, "quality")),
    Claim("H1", OWN, "Explicit: no barrier at any rate; random: a large one", "hypothesis", "–",
          _on(_h01, "connectivity")),
    Claim("H2", OWN, "Permuting one network's labels brings the barrier back, the inverse removes it", "hypothesis",
          "–", _on(_h02, "connectivity")),
    Claim("H3", OWN, "The common label code is what connects, not common data", "hypothesis", "–",
          _on(_h03, "connectivity")),
    Claim("H4", OWN, "The barrier grows with noise added to the explicit start", "hypothesis", "–",
          _on(_h04, "connectivity")),
    Claim("H5", OWN, "From one random start the barrier grows with the rate, from explicit ones it does not",
          "hypothesis", "–", _on(_h05, "connectivity")),
    Claim("H6", OWN, "An explicit hidden layer matters for connection, explicit attention does not", "hypothesis", "–",
          _on(_h06, "connectivity")),
    Claim("H7", OWN, "Averages of explicit networks beat their parts", "hypothesis", "–", _on(_h07, "merging")),
    Claim("H8", OWN, "Constants in the architecture lower the barrier, less than explicit starts", "hypothesis", "–",
          _on(_h08, "architecture")),
    Claim("H9", OWN, "Connection outlasts the gain in quality", "hypothesis", "–", _on(_h09, "quality")),
    Claim("H10", OWN, "Losses of explicit networks are easier to read off their weights", "hypothesis", "–",
          elsewhere="no zoo of language models is trained"),
    Claim("H11", OWN, "With trained vectors explicit starts stay connected", "hypothesis", "–",
          _on(_h11, "connectivity")),
    Claim("H12", OWN, "In decoders an explicit label head does not remove the barrier", "hypothesis", "–",
          _on(_h12, "architecture")),
    Claim("P06", OWN, "On shuffled text the explicit start is no better than the unigram", "–", "–",
          _on(_p06, "quality")),
)  # fmt: skip
