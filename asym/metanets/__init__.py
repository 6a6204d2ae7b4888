"""Networks that read the weights of other networks.

chain = chain_of(network, example_input)          # or residual_of, for networks with skips and norms
stack = Stack.from_rows(chain, layout, rows)      # n networks
reader = build("scale-gmn", chain, width=32)
reader(stack)                                     # n × 1
fit(reader, stack, targets, train, val, Protocol(epochs=50), seed=0)
"""

from asym.metanets.blind import DMC, DeepSets, FlatMLP, StatNN
from asym.metanets.boosting import HyperBoost, StatBoost
from asym.metanets.fitting import Fit, Protocol, Scale, fit
from asym.metanets.nfn import NFN
from asym.metanets.padding import pad
from asym.metanets.reader import Reader
from asym.metanets.registry import READERS, build, options_of
from asym.metanets.scale_gmn import ScaleGMN, matched_width
from asym.metanets.stack import Bag, Stack, count, take
from asym.metanets.statistics import statistics
from asym.metanets.step import accumulate, predict
from asym.symmetry.chain import Chain, ChainLayer, chain_of
from asym.symmetry.residual import Residual, fold_batch_norms
from asym.symmetry.residual_trace import residual_of

__all__ = [
    "DMC",
    "NFN",
    "READERS",
    "Bag",
    "Chain",
    "ChainLayer",
    "DeepSets",
    "Fit",
    "FlatMLP",
    "HyperBoost",
    "Protocol",
    "Reader",
    "Residual",
    "Scale",
    "ScaleGMN",
    "Stack",
    "StatBoost",
    "StatNN",
    "accumulate",
    "build",
    "chain_of",
    "count",
    "fit",
    "fold_batch_norms",
    "matched_width",
    "options_of",
    "pad",
    "predict",
    "residual_of",
    "statistics",
    "take",
]
