"""Augmentation on tensors: shift (crop after zero padding) and mirror, each image with its own draw.

    out[i, c, y, x] = flipped[i, c, y + dy_i, x + dx_i], zero outside;   flipped = mirrored image where flip_i

with dy, dx uniform on −pad … pad and flip a fair coin: the distribution of a random crop of the image
padded by `pad`, after a random horizontal flip. Padding is zero in pixel units, before normalisation.

The released code of the paper draws once per batch: `per="batch"`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
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
    # Both versions of every image lie padded in one flat buffer; a row of the result is then one run of w
    # bytes in it, found by its start. Copying runs is several times as fast as gathering pixels.
    height, width = h + 2 * pad, w + 2 * pad
    buffer = images.new_zeros(2, b, c, height, width)
    inner = buffer[..., pad : pad + h, pad : pad + w]
    inner[0] = images
    inner[1] = images.flip(-1)
    runs = buffer.view(-1)
    runs = runs.as_strided((runs.numel() - w + 1, w), (1, 1))
    image = flips.long() * b + torch.arange(b, device=device)
    plane = image[:, None] * c + torch.arange(c, device=device)
    row = torch.arange(h, device=device) + (pad + shifts[:, :1])
    start = (plane[:, :, None] * height + row[:, None, :]) * width + (pad + shifts[:, 1])[:, None, None]
    return runs.index_select(0, start.reshape(-1)).view(b, c, h, w)
