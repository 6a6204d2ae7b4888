"""Scale Equivariant Graph Metanetworks, and their permutation-only control."""

from asym.metanets.scale_gmn.model import ScaleGMN, matched_width

__all__ = ["ScaleGMN", "matched_width"]
