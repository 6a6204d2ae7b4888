"""Small files in the formats of published zoos of networks."""

import gzip

import numpy as np
import pandas as pd
import torch

from asym.models import build

SHAPES = ((16,), (3, 3, 1, 16), (16,), (3, 3, 16, 16), (16,), (3, 3, 16, 16), (10,), (16, 10))


def small_cnn_files(folder, runs=6, steps=(0, 86), shapes=SHAPES):
    """What the published archive holds, with random weights."""
    layout, at = [], 0
    for i, shape in enumerate(shapes):
        size = int(np.prod(shape))
        name = f"sequential/layer{i // 2}/{'kernel' if i % 2 else 'bias'}:0"
        layout.append({"varname": name, "shape": str(shape), "start_idx": at, "end_idx": at + size})
        at += size
    n = runs * len(steps)
    weights = np.random.default_rng(0).normal(size=(n, at)).astype(np.float32)
    np.save(folder / "weights.npy", weights)
    rows = [
        {"modeldir": f"/zoo/{k}", "step": step, "test_accuracy": (k + 1) / max(10, runs), "train_accuracy": 0.5,
         "config.activation": "relu" if k % 2 else "tanh", "config.learning_rate": 0.01 * (1 + k % 3),
         "config.l2reg": 1e-4, "config.dropout": 0.1 * (k % 5)}
        for k in range(runs) for step in steps
    ]  # fmt: skip
    with gzip.open(folder / "metrics.csv.gz", "wt") as file:
        pd.DataFrame(rows).to_csv(file, index=False)
    pd.DataFrame(layout).to_csv(folder / "layout.csv", index=False)
    return weights


def asymmetric_files(folder, accuracies=(73.8, 64.0, 70.0)):
    for k, accuracy in enumerate(accuracies):
        network = build("resnet8", input_shape=(3, 32, 32), classes=10, width=0.125, seed=k)
        torch.save((network.state_dict(), accuracy), folder / f"net{k:03}.pt")
