"""Transformer-NFN: readers of transformers that respect the symmetries of attention.

encoder = encoder_of(dict(network.named_parameters()), heads=2)      # asym.symmetry.encoder
stack = Stack.from_rows(encoder, layout, rows)                        # n transformers
TransformerNFN(encoder, rank=8, probes=16)(stack)                     # n × 1
"""

from asym.metanets.transformer_nfn.heads import Gates, HeadReadout, Tokens
from asym.metanets.transformer_nfn.layer import EquivariantLayer, InvariantLayer, merge_heads, separate_heads
from asym.metanets.transformer_nfn.reader import TransformerNFN
from asym.metanets.transformer_nfn.table import count

__all__ = [
    "EquivariantLayer",
    "Gates",
    "HeadReadout",
    "InvariantLayer",
    "Tokens",
    "TransformerNFN",
    "count",
    "merge_heads",
    "separate_heads",
]
