"""Layers that remove parameter symmetries, and the variants that put them into a network."""

from asym.nn.convert import asymmetrize, to_plain
from asym.nn.dropout import Dropout
from asym.nn.figlu import FiGLU
from asym.nn.init import initial_values, initialise
from asym.nn.masked import MaskedLayer, check_fixed
from asym.nn.masks import fewest_n_fix, most_n_fix, sample_fixed, sample_mask
from asym.nn.syre import ShiftedLayer
from asym.nn.variants import LayerPlan, LayerRule, Variant, apply_variant, count_trainable, plan_layers
from asym.nn.w_asym import WAsymConv2d, WAsymLinear

__all__ = [
    "Dropout",
    "FiGLU",
    "LayerPlan",
    "LayerRule",
    "MaskedLayer",
    "ShiftedLayer",
    "Variant",
    "WAsymConv2d",
    "WAsymLinear",
    "apply_variant",
    "asymmetrize",
    "check_fixed",
    "count_trainable",
    "fewest_n_fix",
    "initial_values",
    "initialise",
    "most_n_fix",
    "plan_layers",
    "sample_fixed",
    "sample_mask",
    "to_plain",
]
