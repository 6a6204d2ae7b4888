"""Rules of operations that rearrange entries: reshapes, slices, concatenation, padding, pooling windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from asym.symmetry.nodes import Node
from asym.symmetry.rules import Dims, Value, dim_list, rule, wrap

if TYPE_CHECKING:
    from asym.symmetry.trace import Tracer


@rule("view reshape flatten unflatten squeeze unsqueeze view_as reshape_as _unsafe_view")
def reshape(t: Tracer, self: Value, **_: Any) -> Dims:
    """Neighbouring axes are flattened, or one is split, in row-major order."""
    return reshaped(t, self.dims, t.shape)


def reshaped(t: Tracer, dims: Sequence[Node], shape: Sequence[int]) -> Dims:
    """The axes `dims` in another shape: the smallest runs of equal size on both sides correspond."""
    sources = [node for node in dims if node.size != 1]
    sizes = [size for size in shape if size != 1]
    result: Dims = []
    while sizes:
        nodes, wanted = [sources.pop(0)], [sizes.pop(0)]
        while (have := math.prod(node.size for node in nodes)) != (need := math.prod(wanted)):
            if have < need:
                nodes.append(sources.pop(0))
            else:
                wanted.append(sizes.pop(0))
        result += t.axes.split_product(t.axes.product(nodes), wanted)
    parts = iter(result)
    return [next(parts) if size != 1 else t.axes.pinned(1) for size in shape]


@rule("permute")
def permute(t: Tracer, self: Value, dims: Sequence[int]) -> Dims:
    """Axes in another order."""
    return [self.dims[d] for d in dim_list(dims, self.ndim)]


@rule("transpose swapaxes swapdims")
def transpose(t: Tracer, self: Value, **dims: int) -> Dims:
    """Two axes change places."""
    a, b = (wrap(d, self.ndim) for d in dims.values())
    result = list(self.dims)
    result[a], result[b] = result[b], result[a]
    return result


@rule("t numpy_T mT")
def reverse(t: Tracer, self: Value) -> Dims:
    """The transposed matrix."""
    return self.dims[::-1]


@rule("movedim moveaxis")
def movedim(t: Tracer, self: Value, source: Any, destination: Any) -> Dims:
    """Axes move to other places."""
    sources, targets = dim_list(source, self.ndim), dim_list(destination, self.ndim)
    rest = iter(d for d in range(self.ndim) if d not in sources)
    order = [sources[targets.index(d)] if d in targets else next(rest) for d in range(self.ndim)]
    return [self.dims[d] for d in order]


@rule("expand expand_as broadcast_to")
def expand(t: Tracer, self: Value, **_: Any) -> Dims:
    """Along an expanded axis all entries are equal: any permutation is possible."""
    padded = [t.axes.pinned(1)] * (len(t.shape) - self.ndim) + list(self.dims)
    return [node if node.size == size else t.axes.free(size) for node, size in zip(padded, t.shape)]


@rule("repeat tile")
def repeat(t: Tracer, self: Value, **arguments: Sequence[int]) -> Dims:
    """Copies laid end to end."""
    (repeats,) = arguments.values()
    padded = [t.axes.pinned(1)] * (len(repeats) - self.ndim) + list(self.dims)
    repeats = [1] * (len(padded) - len(repeats)) + list(repeats)
    return [
        t.axes.free(count) if node.size == 1 else t.axes.concat([node] * count) for node, count in zip(padded, repeats)
    ]


@rule("repeat_interleave")
def repeat_interleave(t: Tracer, self: Value, repeats: Any, dim: int | None = None, **_: Any) -> Dims:
    """Every position several times in a row."""
    result = list(self.dims) if dim is not None else [t.axes.product(self.dims)]
    d = wrap(dim or 0, len(result))
    if not isinstance(repeats, int):
        t.axes.pin(result[d])
        return [*result[:d], t.axes.pinned(t.shape[d]), *result[d + 1 :]]
    result[d] = t.axes.product([result[d], t.axes.pinned(repeats)])
    return result


@rule("cat concat concatenate")
def cat(t: Tracer, tensors: Sequence[Value], dim: int = 0) -> Dims:
    """Axes laid end to end along `dim`; the others agree."""
    tensors = [value for value in tensors if value.dims[0].size or value.ndim > 1]
    dim = wrap(dim, tensors[0].ndim)
    result = list(tensors[0].dims)
    for value in tensors[1:]:
        for d, node in enumerate(value.dims):
            if d != dim:
                t.axes.unify(result[d], node)
    result[dim] = t.axes.concat([value.dims[dim] for value in tensors])
    return result


@rule("stack")
def stack(t: Tracer, tensors: Sequence[Value], dim: int = 0) -> Dims:
    """A new axis, which never moves; the others agree."""
    result = list(tensors[0].dims)
    for value in tensors[1:]:
        for a, b in zip(result, value.dims):
            t.axes.unify(a, b)
    result.insert(wrap(dim, len(result) + 1), t.axes.pinned(len(tensors)))
    return result


@rule("split chunk split_with_sizes tensor_split")
def split(t: Tracer, self: Value, dim: int = 0, **_: Any) -> list[Dims]:
    """Pieces of one axis."""
    dim = wrap(dim, self.ndim)
    return t.axes.narrow(self.dims, dim, [shape[dim] for shape in t.shapes])


@rule("unbind")
def unbind(t: Tracer, self: Value, dim: int = 0) -> list[Dims]:
    """The slices along one axis."""
    dim = wrap(dim, self.ndim)
    cut = t.axes.narrow(self.dims, dim, [1] * self.dims[dim].size)
    return [dims[:dim] + dims[dim + 1 :] for dims in cut]


@rule("select")
def select(t: Tracer, self: Value, dim: int, index: int) -> Dims:
    """One slice along an axis."""
    dim = wrap(dim, self.ndim)
    size = self.dims[dim].size
    if t.axes.has_families(self.dims[dim]):  # one of query, key, value: the others will be asked for too
        t.axes.split_concat(self.dims[dim], [1] * size)
    dims = _piece(t, self.dims, dim, index % size, 1)
    return dims[:dim] + dims[dim + 1 :]


@rule("slice narrow")
def slice_(t: Tracer, self: Value, dim: int = 0, start: int | None = None, step: int = 1, **_: Any) -> Dims:
    """A range along an axis; with a step, the axis may not move."""
    dim = wrap(dim, self.ndim)
    size, length = self.dims[dim].size, t.shape[dim]
    if length == size:
        return self.dims
    if step != 1:
        t.axes.pin(self.dims[dim])
        return [*self.dims[:dim], t.axes.pinned(length), *self.dims[dim + 1 :]]
    start = start or 0
    return _piece(t, self.dims, dim, max(start + size, 0) if start < 0 else start, length)


def _piece(t: Tracer, dims: Dims, dim: int, start: int, length: int) -> Dims:
    sizes = [start, length, dims[dim].size - start - length]
    cut = t.axes.narrow(dims, dim, [size for size in sizes if size])
    return cut[1 if start else 0]


@rule("index index_select")
def index(t: Tracer, self: Value, **arguments: Any) -> Dims:
    """Chosen positions: the indexed axes may not move."""
    if "dim" in arguments:
        d = wrap(arguments["dim"], self.ndim)
        t.axes.pin(self.dims[d])
        return [*self.dims[:d], t.axes.pinned(t.shape[d]), *self.dims[d + 1 :]]
    chosen = [d for d, values in enumerate(arguments["indices"]) if values is not None]
    for d in chosen:
        t.axes.pin(self.dims[d])
    kept = [node for d, node in enumerate(self.dims) if d not in chosen]
    new = [t.axes.pinned(size) for size in t.shape]
    # Indices that are neighbours stand where the first one stood, others in front.
    place = chosen[0] if chosen == list(range(chosen[0], chosen[-1] + 1)) else 0
    count = len(t.shape) - len(kept)
    return [*kept[:place], *new[place : place + count], *kept[place:]]


@rule("pad constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d")
def pad(
    t: Tracer,
    self: Value,
    pad: Sequence[int] = (),
    padding: Sequence[int] = (),
    mode: str = "constant",
    **_: Any,
) -> Dims:
    """Constants before and after; along channels these are new positions that may move among themselves."""
    widths = list(pad or padding)
    constant = mode == "constant" and not padding
    result = list(self.dims)
    for back in range(len(widths) // 2):
        before, after = widths[2 * back : 2 * back + 2]
        node = result[-1 - back]
        if before == after == 0:
            continue
        if constant and min(before, after) >= 0 and not t.axes.is_pinned(node):
            pieces = [t.axes.free(before), node, t.axes.free(after)]
            result[-1 - back] = t.axes.concat([piece for piece in pieces if piece.size])
        else:
            t.axes.pin(node)
            result[-1 - back] = t.axes.pinned(node.size + before + after)
    return result


@rule("""
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d max_pool2d_with_indices _adaptive_avg_pool2d
    upsample_nearest1d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d upsample_linear1d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa
""")
def window(t: Tracer, **arguments: Any) -> Dims | list[Dims]:
    """Every channel apart; positions of the image may not move.

    The image's dimensions are those in the operation's name; an input without a batch axis has its channels
    first.
    """
    value = next(v for v in arguments.values() if isinstance(v, Value))
    spatial = int(next(c for c in t.operation if c in "123"))
    for node in value.dims[-spatial:]:
        t.axes.pin(node)
    result = [*value.dims[:-spatial], *(t.axes.pinned(size) for size in t.shape[-spatial:])]
    return result if t.outputs == 1 else [result] * t.outputs


@rule("pixel_shuffle")
def pixel_shuffle(t: Tracer, self: Value, upscale_factor: int) -> Dims:
    """Channels [c, r, r] become an r times larger image."""
    r = upscale_factor
    *batch, channels, _height, _width = self.dims
    kept, *moved = t.axes.split_product(channels, [channels.size // r**2, r, r])
    for node in moved:
        t.axes.pin(node)
    return [*batch, kept, *(t.axes.pinned(size) for size in t.shape[-2:])]


@rule("pixel_unshuffle")
def pixel_unshuffle(t: Tracer, self: Value, downscale_factor: int) -> Dims:
    """An image's r × r neighbourhoods become channels [c, r, r]."""
    *batch, channels, _height, _width = self.dims
    wide = t.axes.product([channels, t.axes.pinned(downscale_factor**2)])
    return [*batch, wide, *(t.axes.pinned(size) for size in t.shape[-2:])]


@rule("channel_shuffle")
def channel_shuffle(t: Tracer, self: Value, groups: int) -> Dims:
    """Channels [groups, c] become [c, groups]."""
    channels = self.dims[1]
    outer, inner = t.axes.split_product(channels, [groups, channels.size // groups])
    return [self.dims[0], t.axes.product([inner, outer]), *self.dims[2:]]
