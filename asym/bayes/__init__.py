"""Bayesian networks: priors, variational posteriors and samplers for any network with linear or convolutional layers.

What needs pyro (`asym.bayes.pyro_model`, and `run_chain`, which calls it) loads it when used.
"""

from asym.bayes.guides import DIAGONALS, GUIDES, Guide
from asym.bayes.layers import RandomLayer, random_layers
from asym.bayes.likelihoods import Categorical, Gaussian
from asym.bayes.nuts import Chain, Target, effective_size, run_chain, split_rhat
from asym.bayes.posterior import Posterior
from asym.bayes.predict import log_mean_exp, predict
from asym.bayes.priors import FANS, PriorRule
from asym.bayes.scaling import fix_scaling
from asym.bayes.train import Inference, Inferred, infer_chunk

__all__ = [
    "DIAGONALS",
    "FANS",
    "GUIDES",
    "Categorical",
    "Chain",
    "Gaussian",
    "Guide",
    "Inference",
    "Inferred",
    "Posterior",
    "PriorRule",
    "RandomLayer",
    "Target",
    "effective_size",
    "fix_scaling",
    "infer_chunk",
    "log_mean_exp",
    "predict",
    "random_layers",
    "run_chain",
    "split_rhat",
]
