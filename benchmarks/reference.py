"""The plain way, against which everything is measured: one network, float32, channels-first, a `DataLoader` without
workers that transforms image by image, PyTorch's AdamW, and a loss read back at each step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from asym.data import ImageData


class Images(Dataset):
    """A split as (transformed image, label) pairs."""

    def __init__(self, data: ImageData) -> None:
        self.images, self.labels = data.train.images, data.train.labels
        steps: list[nn.Module] = []
        if data.augment.pad:
            steps.append(v2.RandomCrop(tuple(self.images.shape[-2:]), padding=data.augment.pad))
        if data.augment.flip:
            steps.append(v2.RandomHorizontalFlip())
        mean, std = ([value / 255 for value in values] for values in (data.mean, data.std))
        self.transform = v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.transform(self.images[index]), self.labels[index]


def plain_epoch(
    network: nn.Module, data: ImageData, *, batch_size: int, lr: float, epochs: int = 1, order: int = 0
) -> float:
    """Train for some epochs, on images in an order drawn by a seed; returns the last epoch's mean loss."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr, weight_decay=0.0)
    generator = torch.Generator().manual_seed(order)
    loader = DataLoader(Images(data), batch_size=batch_size, shuffle=True, generator=generator)
    network.train()
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
    return total / len(data.train.labels)
