"""What the figures of each study show, in words: captions, and texts for who cannot see them.

A figure is known by its file's name: study, kind of figure, then what it was drawn for. Nothing is imported from the
studies; what a study asks is the first paragraph of its module's docstring.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

PARTS = {
    "audit": {"swaps": "What an exchange of two units costs"},
    "ablate": {
        "kappa_nfix": "Constants of W networks: κ and n_fix",
        "warmup": "Length of the warm-up",
        "lr": "Learning rate",
        "width": "Width",
        "temperature": "Losses of calibrated networks",
        "bias": "Fixed biases",
        "gate": "Gate of σ networks",
        "zero": "Constants of zero",
        "init": "Where training starts",
        "equal_params": "Number of parameters",
        "time": "Barrier over training",
        "merge": "Averages of several networks",
        "syre": "SyRe",
        "plane": "The plane through three networks",
    },
    "bnn": {"nuts": "Sampled posteriors of small networks", "plane": "A posterior over two weights"},
    "saffu": {
        "connectivity": "Connectivity",
        "architecture": "Connectivity by architecture",
        "quality": "Quality",
        "merging": "Averages of several networks",
        "cost": "Cost",
        "grid": "Choices of design",
    },
}
"""Parts of a study that stand apart on the page: beginning of their tables' and figures' names after the study's."""

_BARS = "Bars are 95 % intervals over pairs of networks."
CAPTIONS = (
    (r"lmc_(?P<rest>.+)", "Test loss on the straight line between two networks, and its barrier half-way.",
     "Two panels. Left: mean test loss against the position between the two networks, one line for each variant and "
     "alignment, with a band for the 95 % interval over pairs. Right: for each of them the barrier at the mid-point, a "
     "pale mark a pair, a full mark for the mean and a bar for its 95 % interval."),
    (r"mli_(?P<rest>.+)", "Training loss on the straight line from the initial to the final weights.",
     "One panel for each variant, a thin line for each network along its way and a thick one for the median; networks "
     "whose loss rises somewhere are dashed black. The last panel has the share of monotone networks against the peak "
     "learning rate, with 95 % intervals."),
    (r"audit_swaps_(?P<rest>.+)", "How little the function changes when two units change places.",
     "Cost of the cheapest exchange of two units, and of the median one, against κ, one colour for each number of "
     "fixed weights, with 95 % intervals over masks."),
    (r"audit_(?P<rest>.+)", "Directions in parameter space along which the function stays the same.",
     "Two bars for each architecture and variant: the share of such directions among the parameters, hatched as "
     "predicted and full as found; they agree where they have the same length. Numbers stand beside them."),
    (r"ablate_kappa_nfix_(?P<rest>.+)", "Barrier, accuracy and length of training for each κ and n_fix.",
     "Maps over κ and the factor on n_fix, coloured and labelled with mean and interval over pairs: the test loss "
     "barrier half-way, the test accuracy of the networks themselves, and the epochs until they fit."),
    (r"ablate_plane_(?P<rest>.+)", "Test loss on the plane through three networks.",
     "One contour map of the test loss for each variant; circles mark the three networks, a cross their average."),
    (r"ablate_(?P<factor>.+?)_(?P<rest>resnet.+|mlp.+|small-cnn.+|gnn.+|transformer.+)",
     "{factor}: the barrier, and what it costs.",
     "Two panels, one mark or line for each variant and alignment. Left the barrier between two networks, right the "
     "measure it is weighed against, mostly the test accuracy of the networks themselves. " + _BARS),
    (r"bnn_(?P<rest>.+)_curves", "Training of variational posteriors.",
     "A pair of panels for each weight of the KL term and each family of posteriors: training loss and test accuracy "
     "against the epoch, one colour for each variant, with bands for 95 % intervals over networks."),
    (r"bnn_(?P<rest>.+)_reliability", "Reliability: how often the networks are right when they say how sure they are.",
     "One panel for each method: accuracy against confidence, one line for each variant; on the grey diagonal a "
     "network is as often right as it says."),
    (r"bnn_nuts_rhat", "Do sampling chains agree: on weights, and on predictions.",
     "Scatter on logarithmic axes, one mark for each variant and activation: median R̂ − 1 of the weights against that "
     "of the predictions; grey lines mark 0.01, the usual limit."),
    (r"bnn_plane", "Posterior density over two weights of a small network.",
     "One map for each variant: the density over the weights of its two hidden units, bright where it is high, with "
     "the number of modes in the title."),
    (r"inr_(?P<rest>.+)", "How well each reader reads an image off weights, and what each editor drew.",
     "Bars for each reader with 95 % intervals over trainings: accuracy, and error of the edited image as a share of "
     "the error without an edit; paler bars are on networks with reordered and flipped units. Below, test images as "
     "they should be and as each editor drew them."),
    (r"transformer_metanet_(?P<rest>.+)", "How well the accuracy of a transformer is read off its weights.",
     "Above, Kendall's τ-b of each reader with its 95 % interval over test networks, one panel for each zoo. Below, "
     "what τ loses when the test networks are moved by a symmetry."),
    (r"metanet_(?P<rest>.+)_forms", "What each other form of a graph reader changes.",
     "Kendall's τ of the form minus that of the reader that it is a form of, on the same test networks, with 95 % "
     "intervals over them; and τ of both after the test networks' units were permuted and rescaled."),
    (r"metanet_(?P<rest>.+)", "How well the accuracy of a network is read off its weights.",
     "Kendall's τ on test networks by reader and zoo, with 95 % intervals over test networks; τ against the number of "
     "training networks; and τ after the test networks' units were permuted and rescaled."),
    (r"saffu_(?:connectivity|architecture)_(?P<rest>.+)", "Barriers between two networks, by where training starts.",
     "Loss barrier of each start, a panel for each length of training, a colour for each alignment, with 95 % "
     "intervals."),
    (r"saffu_quality_(?P<rest>.+)", "Learning curves: test loss of each start.",
     "Test loss against training steps and against seconds, one line for each arm."),
    (r"saffu_merging_(?P<rest>.+)", "Averages of several networks.",
     "Measures of the average against the number of networks averaged, one line for each start, with 95 % intervals."),
    (r"saffu_cost_(?P<rest>.+)", "What each arm costs.",
     "Bars for each arm: milliseconds a training step, microseconds an inference."),
    (r"saffu_grid_(?P<rest>.+)", "What each choice of design does to the loss, at the start and after training.",
     "Two columns, before and after training; a row of marks for each value of a factor: the difference in test loss "
     "to the reference design, warm and random starts in two colours, with 95 % intervals. Above one factor at a time, "
     "below effects over random designs."),
)  # fmt: skip
"""Pattern of the file's name, caption, text in place of the figure; the first that fits."""

OTHERS = {
    "claims": ("Claims", "Which published claims hold here, in which setting, and how to check each."),
    "benchmarks": ("Speed", "Each a ratio against a plain reference in the same run."),
    "other": ("Other tables", "Tables in the folder that belong to no study."),
}
"""Title and text of sections that are no study's."""


def caption(name: str) -> tuple[str, str]:
    """Caption of a figure and the text that stands in for it.

    Args:
        name: its file's name without suffix.
    """
    for pattern, title, seen in CAPTIONS:
        if found := re.fullmatch(pattern, name):
            groups = found.groupdict()
            factor = PARTS["ablate"].get(groups.get("factor") or "", "")
            title = title.format(factor=factor or _words(groups.get("factor") or ""))
            setting = _words(groups.get("rest") or "")
            return f"{title.removesuffix('.')} ({setting})." if setting else title, f"{title} {seen}"
    return _words(name), f"Figure {_words(name)}."


def part_title(study: str, part: str) -> str:
    """Heading of a part of a study's section."""
    return PARTS.get(study, {}).get(part) or _words(part).capitalize()


def about(study: str) -> tuple[str, str]:
    """Title of a study's section and what it asks: the first paragraph of its docstring, up to the colon and after."""
    if study in OTHERS:
        return OTHERS[study]
    spec = importlib.util.find_spec(f"studies.{study}")
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    first = " ".join((ast.get_docstring(ast.parse(source)) or study).split("\n\n")[0].split())
    title, _, question = first.partition(": ")
    return title, question[:1].upper() + question[1:]


def _words(name: str) -> str:
    """`resnet20_digits_20-epochs_1097-images` → `resnet20, digits, 20 epochs, 1097 images`."""
    return re.sub(r"(?<=\d)-(?=[a-z])", " ", name.replace("_", ", ")).replace("fashion, mnist", "Fashion-MNIST")
