"""A module as a graph of operations, traced in evaluation mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram


def exported(module: nn.Module, example_input: Any) -> ExportedProgram:
    """The program of a module in evaluation mode; the module keeps the modes that it had."""
    training = {m: m.training for m in module.modules()}
    try:
        return torch.export.export(module.eval(), (example_input,), strict=False)
    finally:
        for m, mode in training.items():
            m.training = mode
