"""Transformers under the names that the published files have."""

import torch

from asym.models import build as build_network
from asym.symmetry.encoder import SCHEMES


def published(seed, width=0.25):
    """A state dict under the published names, with the constant of the positions."""
    names = dict(zip(SCHEMES["blocks"].values(), SCHEMES["encoder"].values()))
    kinds = {"embed": "embedding.conv1", "head": "classifier"}
    out = {"embedding.pos_embedding": torch.zeros(16, 8)}
    network = build_network("transformer-plain", input_shape=(1, 8, 8), classes=3, width=width, seed=seed)
    for name, tensor in network.state_dict().items():
        kind, _, rest = name.partition(".")
        number, _, inner = rest.partition(".")
        key = f"encoder.{number}.{names[inner]}" if kind == "blocks" else f"{kinds[kind]}.{rest}"
        out[key.replace("classifier.0", "classifier.fc1").replace("classifier.2", "classifier.fc2")] = tensor.clone()
    return out
