"""Convolutions and average pooling of ONNX graphs as dense matrices."""

from __future__ import annotations

import itertools
import math

import numpy as np

from .values import BatchTensor, unreadable

__all__ = ["average_pool", "convolution", "global_average_pool"]

_MAX_ENTRIES = 2**27  # of a dense matrix (memory: 1 GiB)


def convolution(step, rows, kernel, bias=None):
    """``Conv`` of rows (channels, *axes) with a constant kernel (out, channels / group, *size)."""
    if not isinstance(rows, BatchTensor) or isinstance(kernel, BatchTensor) or isinstance(bias, BatchTensor):
        raise unreadable(step, "a convolution must have the rows first, and a constant kernel and bias")
    kernel, group = np.asarray(kernel, dtype=np.float64), step.attributes.get("group", 1)
    _check_dims(step, rows, kernel.ndim - 1)
    if rows.dims[0] != kernel.shape[1] * group or len(kernel) % group:
        raise unreadable(step, f"a kernel of shape {kernel.shape} does not fit rows of shape {rows.dims}")
    if group > 1:
        kernel = _ungrouped(kernel, group)
    pairs, out = _pairs(step, rows.dims[1:], kernel.shape[2:])
    matrix = _matrix(step, rows.dims, (len(kernel), *out), pairs, kernel)
    found = _with_dims(rows.flat().times_matrix(matrix), (len(kernel), *out))
    if bias is None:
        return found
    return found.scaled(1.0, np.repeat(np.asarray(bias, dtype=np.float64), math.prod(out)))


def average_pool(step, rows):
    """``AveragePool``."""
    size = tuple(step.attributes["kernel_shape"])
    _check_dims(step, rows, len(size) + 1)
    if step.attributes.get("ceil_mode", 0):
        raise unreadable(step, "ceil_mode=1 is not supported")
    pairs, out = _pairs(step, rows.dims[1:], size)
    n, size = rows.dims[0], math.prod(size)
    kernel = np.eye(n)[:, :, None].repeat(size, axis=2) / size
    matrix = _matrix(step, rows.dims, (n, *out), pairs, kernel)
    if not step.attributes.get("count_include_pad", 0):
        counts = np.zeros(math.prod(out))
        for _, outputs in pairs:
            counts[outputs] += 1.0
        matrix = matrix * np.tile(size / counts, n)
    return _with_dims(rows.flat().times_matrix(matrix), (n, *out))


def global_average_pool(step, rows):
    """``GlobalAveragePool``: the mean over all axes but the channels."""
    _check_dims(step, rows, len(rows.dims))
    n, size = rows.dims[0], math.prod(rows.dims[1:])
    matrix = np.kron(np.eye(n), np.full((size, 1), 1.0 / size))
    return _with_dims(rows.flat().times_matrix(matrix), (n, *[1] * (len(rows.dims) - 1)))


def _check_dims(step, rows, n_axes):
    if None in rows.dims or len(rows.dims) != n_axes or n_axes < 2:
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


def _pairs(step, axes, size):
    """Flat indices (inputs, outputs) of the entries that each position of the kernel connects, and the axes after."""
    n, read = len(axes), step.attributes.get
    strides, dilations = read("strides", [1] * n), read("dilations", [1] * n)
    spans = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    pads = _pads(step, axes, spans, strides)
    out = [(a + lo + hi - s) // t + 1 for a, (lo, hi), s, t in zip(axes, pads, spans, strides, strict=True)]
    if min(out) < 1:
        raise unreadable(step, f"a kernel of size {tuple(size)} does not fit axes {tuple(axes)}")
    places, pairs = np.indices(out).reshape(n, -1), []
    shift = np.array([lo for lo, _ in pads])
    for offset in itertools.product(*(range(k) for k in size)):
        at = places * np.array(strides)[:, None] + (np.array(offset) * dilations - shift)[:, None]
        inside = np.all((at >= 0) & (at < np.array(axes)[:, None]), axis=0)
        pairs.append((np.ravel_multi_index(at[:, inside], axes), np.flatnonzero(inside)))
    return pairs, tuple(out)


def _pads(step, axes, spans, strides):
    """Zeros before and after every axis."""
    auto, n = step.attributes.get("auto_pad", b"NOTSET"), len(axes)
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        total = [max(0, (-(-a // t) - 1) * t + s - a) for a, s, t in zip(axes, spans, strides, strict=True)]
        small = [(m // 2, m - m // 2) for m in total]
        return small if auto == b"SAME_UPPER" else [pair[::-1] for pair in small]
    pads = [0] * 2 * n if auto == b"VALID" else step.attributes.get("pads", [0] * 2 * n)
    return list(zip(pads[:n], pads[n:], strict=True))


def _matrix(step, dims, out, pairs, kernel):
    """Dense matrix of a kernel (out channels, channels, *size)."""
    shape = (dims[0], math.prod(dims[1:]), out[0], math.prod(out[1:]))
    if math.prod(shape) > _MAX_ENTRIES:
        raise unreadable(step, f"its dense matrix has {math.prod(shape)} entries, more than 2^27")
    matrix, kernel = np.zeros(shape), kernel.reshape(*kernel.shape[:2], -1)
    for k, (inputs, outputs) in enumerate(pairs):
        matrix[:, inputs, :, outputs] += kernel[:, :, k].T
    return matrix.reshape(shape[0] * shape[1], -1)
