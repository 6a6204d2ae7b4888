"""Augmentation on tensors: shift (crop after zero padding) and mirror, each image with its own draw.

    out[i, c, y, x] = flipped[i, c, y + dy_i, x + dx_i], zero outside;   flipped = mirrored image where flip_i

with dy, dx uniform on −pad … pad and flip a fair coin: the distribution of a random crop of the image padded by `pad`,
after a random horizontal flip. Padding is zero in pixel units, before normalisation.

The released code of the paper draws once per batch: `per="batch"`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from asym.data.images import Augment


def draw_augmentation(
    generator: np.random.Generator, n: int, spec: Augment, per: Literal["image", "batch"] = "image"
) -> tuple[Int[Tensor, "n 2"], Bool[Tensor, " n"]]:
    """Draw shifts (dy, dx) in −pad … pad and flips for n images.

    Args:
        generator: advanced by the same number of draws whatever `spec` says.
        n: number of images.
        spec: what is allowed.
        per: "image": independent draws; "batch": one draw for all.

    Raises:
        ValueError: another value of `per`.
    """
    if per not in ("image", "batch"):
        raise ValueError(f"per: {per!r}; choose from 'image', 'batch'")
    draws = n if per == "image" else 1
    uniform = generator.random((draws, 3))
    span = 2 * spec.pad + 1
    shifts = np.floor(uniform[:, :2] * span).astype(np.int64) - spec.pad
    flips = (uniform[:, 2] < 0.5) & spec.flip
    return (
        torch.from_numpy(np.broadcast_to(shifts, (n, 2)).copy()),
        torch.from_numpy(np.broadcast_to(flips, (n,)).copy()),
    )


def apply_augmentation(
    images: UInt8[Tensor, "b c h w"], shifts: Int[Tensor, "b 2"], flips: Bool[Tensor, " b"], spec: Augment
) -> UInt8[Tensor, "b c h w"]:
    """Shift and mirror every image by its own draw; on the images' device.

    Args:
        images: uint8.
        shifts: (dy, dx) per image, each in −pad … pad.
        flips: whether to mirror the image, before it is shifted.
        spec: gives the padding; images come back as they are where it allows nothing.

    Raises:
        ValueError: a shift of more than `spec.pad`.
    """
    if not spec.active:
        return images
    if shifts.numel() and int(shifts.abs().max()) > spec.pad:
        raise ValueError(f"shifts: up to {int(shifts.abs().max())} pixels, but the padding is {spec.pad}")
    b, c, h, w = images.shape
    pad, device = spec.pad, images.device
    shifts, flips = shifts.to(device), flips.to(device)
    padded = F.pad(images, (pad, pad, pad, pad))
    height, width = h + 2 * pad, w + 2 * pad
    rows = torch.arange(h, device=device) + (shifts[:, :1] + pad)
    columns = torch.arange(w, device=device) + (shifts[:, 1:] + pad)
    # Mirroring the padded image sends column j to width − 1 − j.
    columns = torch.where(flips[:, None], width - 1 - columns, columns)
    index = (rows[:, :, None] * width + columns[:, None, :]).view(b, 1, h * w).expand(b, c, h * w)
    return padded.view(b, c, height * width).gather(2, index).view(b, c, h, w)
