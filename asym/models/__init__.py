"""Architectures, each written once; the variant is an argument."""

from asym.models import mlp, resnet, cnn, gnn, transformer, siren  # noqa: F401, I001  (order of registration)
from asym.models.arch import Arch
from asym.models.registry import build, count, get_arch, list_archs, plan, register

__all__ = ["Arch", "build", "count", "get_arch", "list_archs", "plan", "register"]
