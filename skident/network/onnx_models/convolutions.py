"""Convolutions and average pooling of ONNX graphs as dense matrices."""

import itertools
import math

import numpy as np
from scipy.sparse import csr_array, eye_array, kron

from .values import BatchTensor, unreadable

_MAX_SIZE = 2**31  # of strides, dilations, pads and kernels: their products with positions fit into int64
_PER_POSITION = 2**10  # multiplications that pairing a position of the kernel with one output counts as (time)
_PER_OFFSET = 2**18  # and a position of the kernel on its own (time)
_PADDINGS = (b"NOTSET", b"VALID", b"SAME_UPPER", b"SAME_LOWER")


def convolution(step, rows, kernel, bias=None):
    """``Conv`` of rows (channels, *axes) with a constant kernel (out, channels / group, *size)."""
    if not isinstance(rows, BatchTensor) or isinstance(kernel, BatchTensor) or isinstance(bias, BatchTensor):
        raise unreadable(step, "a convolution must have the rows first, and a constant kernel and bias")
    kernel, group = np.asarray(kernel, dtype=np.float64), step.attributes.get("group", 1)
    _check_dims(step, rows, kernel.ndim - 1)
    fits = kernel.size and group >= 1 and rows.dims[0] == kernel.shape[1] * group and len(kernel) % group == 0
    if not fits or tuple(step.attributes.get("kernel_shape", kernel.shape[2:])) != kernel.shape[2:]:
        raise unreadable(step, f"a kernel of shape {kernel.shape} does not fit rows of shape {rows.dims}")
    out, geometry = _geometry(step, rows.dims[1:], kernel.shape[2:])
    step.allowance.spend(step, entries=len(kernel) * math.prod(out) * math.prod(rows.dims))
    if group > 1:
        step.allowance.spend(step, entries=kernel.size * group)
        kernel = _ungrouped(kernel, group)
    pairs = _pairs(step, rows.dims[1:], out, *geometry)
    matrix = _matrix((rows.dims[0], math.prod(rows.dims[1:]), len(kernel), math.prod(out)), pairs, kernel)
    found = _with_dims(rows.flat().times_matrix(matrix), (len(kernel), *out))
    if bias is None:
        return found
    if np.shape(bias) != (len(kernel),):
        raise unreadable(step, f"a bias of shape {np.shape(bias)} does not fit {len(kernel)} channels")
    return found.scaled(1.0, np.repeat(np.asarray(bias, dtype=np.float64), math.prod(out)))


def average_pool(step, rows):
    """``AveragePool``."""
    size = tuple(step.attributes["kernel_shape"])
    _check_dims(step, rows, len(size) + 1)
    if step.attributes.get("ceil_mode", 0):
        raise unreadable(step, "ceil_mode=1 is not supported")
    axes = rows.dims[1:]
    out, geometry = _geometry(step, axes, size)
    pairs = _pairs(step, axes, out, *geometry)
    inputs, outputs = (np.concatenate(places) for places in zip(*pairs, strict=True))
    counts = np.bincount(outputs, minlength=math.prod(out))
    if step.attributes.get("count_include_pad", 0):
        counts = np.full_like(counts, math.prod(size))
    elif not counts.all():
        raise unreadable(step, "its kernel meets nothing but padding somewhere")
    means = csr_array((1.0 / counts[outputs], (inputs, outputs)), shape=(math.prod(axes), math.prod(out)))
    return _pooled(step, rows, means, out)


def global_average_pool(step, rows):
    """``GlobalAveragePool``: the mean over all axes but the channels."""
    _check_dims(step, rows, len(rows.dims))
    size = math.prod(rows.dims[1:])
    step.allowance.spend(step, entries=size)
    return _pooled(step, rows, csr_array(np.full((size, 1), 1.0 / size)), [1] * (len(rows.dims) - 1))


def _pooled(step, rows, means, out):
    """Every channel times a sparse matrix."""
    n = rows.dims[0]
    step.allowance.spend(step, entries=n * (means.nnz + means.shape[1]))
    return rows.times_sparse(csr_array(kron(eye_array(n), means)), (n, *out), step)


def _check_dims(step, rows, n_axes):
    if None in rows.dims or len(rows.dims) != n_axes or n_axes < 2 or min(rows.dims) < 1:
        raise unreadable(step, f"its rows have the shape {rows.dims} without the batch axis, not (channels, ...)")


def _with_dims(rows, dims):
    return BatchTensor(tuple(dims), rows.batch, rows.layers, rows.maps)


def _ungrouped(kernel, group):
    """The kernel of one group, with zeros between channels of different groups."""
    out, per_group = len(kernel) // group, kernel.shape[1]
    full = np.zeros((len(kernel), per_group * group, *kernel.shape[2:]))
    for g in range(group):
        full[g * out : (g + 1) * out, g * per_group : (g + 1) * per_group] = kernel[g * out : (g + 1) * out]
    return full


def _geometry(step, axes, size):
    """Axes of the outputs, and (size, strides, dilations, pads) of every axis, all checked."""
    n, read = len(axes), step.attributes.get
    strides, dilations = tuple(read("strides", [1] * n)), tuple(read("dilations", [1] * n))
    if min(*size, *strides, *dilations) < 1 or max(*size, *strides, *dilations) >= _MAX_SIZE:
        raise unreadable(step, f"kernel sizes {size}, strides {strides} and dilations {dilations} must be from 1 on")
    spans = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    pads = _pads(step, axes, spans, strides)
    if min(map(min, pads)) < 0 or max(map(max, pads)) >= _MAX_SIZE:
        raise unreadable(step, f"its pads are {pads}")
    out = tuple((a + lo + hi - s) // t + 1 for a, (lo, hi), s, t in zip(axes, pads, spans, strides, strict=True))
    if min(out) < 1:
        raise unreadable(step, f"a kernel of size {tuple(size)} does not fit axes {tuple(axes)}")
    return out, (size, strides, dilations, pads)


def _pairs(step, axes, out, size, strides, dilations, pads):
    """Flat indices (inputs, outputs) of the entries that each position of the kernel connects."""
    n_positions = math.prod(out) * math.prod(size)
    step.allowance.spend(step, _PER_OFFSET * math.prod(size) + _PER_POSITION * len(axes) * n_positions)
    places, pairs = np.indices(out).reshape(len(axes), -1), []
    shift = np.array([lo for lo, _ in pads])
    for offset in itertools.product(*(range(k) for k in size)):
        at = places * np.array(strides)[:, None] + (np.array(offset) * dilations - shift)[:, None]
        inside = np.all((at >= 0) & (at < np.array(axes)[:, None]), axis=0)
        pairs.append((np.ravel_multi_index(at[:, inside], axes), np.flatnonzero(inside)))
    return pairs


def _pads(step, axes, spans, strides):
    """Zeros before and after every axis."""
    auto, n = step.attributes.get("auto_pad", b"NOTSET"), len(axes)
    if auto not in _PADDINGS:
        raise unreadable(step, f"auto_pad must be one of {[name.decode() for name in _PADDINGS]}")
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        total = [max(0, (-(-a // t) - 1) * t + s - a) for a, s, t in zip(axes, spans, strides, strict=True)]
        small = [(m // 2, m - m // 2) for m in total]
        return small if auto == b"SAME_UPPER" else [pair[::-1] for pair in small]
    pads = [0] * 2 * n if auto == b"VALID" else step.attributes.get("pads", [0] * 2 * n)
    return list(zip(pads[:n], pads[n:], strict=True))


def _matrix(shape, pairs, kernel):
    """Dense matrix (channels, inputs, out channels, outputs) of a kernel (out channels, channels, *size)."""
    matrix, kernel = np.zeros(shape), kernel.reshape(*kernel.shape[:2], -1)
    for k, (inputs, outputs) in enumerate(pairs):
        matrix[:, inputs, :, outputs] += kernel[:, :, k].T
    return matrix.reshape(shape[0] * shape[1], -1)
