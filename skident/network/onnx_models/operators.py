"""ONNX operators read symbolically: each extends the affine maps and activations of a tensor so far."""

import functools
import math
from dataclasses import replace

import numpy as np
from onnx import TensorProto
from scipy.sparse import csr_array

from ..activations import SELU_ALPHA, SELU_SLOPE, get_activation, leaky_relu
from .convolutions import average_pool, convolution, global_average_pool
from .merges import NO_BOUND, beside, bounded, known_activation, largest, pair_of_classes, product
from .shapes import ANY_BATCH, CONSTANTS, moved, shape_of
from .values import BatchTensor, unreadable

_ACTIVATIONS = (
    "Tanh",
    "Sigmoid",
    "Relu",
    "Softplus",
    "Erf",
    "Sin",
    "Mish",
    "HardSwish",
)  # the name of the activation with a capital
_SELU = {"alpha": SELU_ALPHA, "gamma": SELU_SLOPE}  # attributes of the operator, to float32
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)


def apply(step, operands):
    """The first output of a node, a `BatchTensor` or an array, from its operands; ValueError if it cannot be read."""
    rows = [operand for operand in operands if isinstance(operand, BatchTensor)]
    if any(part.classes for part in rows) and step.kind not in _PASSING:
        raise unreadable(step, "only what changes nothing may follow the probabilities of classes")
    if step.kind not in _WITH_SHAPES and any(np.any(np.abs(part) == -ANY_BATCH) for part in _arrays(operands)):
        raise unreadable(step, "its value depends on the number of rows")
    if not rows:
        if step.kind not in CONSTANTS:
            raise unreadable(step, "it does not depend on the model's input, and is not worked out")
        return CONSTANTS[step.kind](step, *operands)
    if step.kind not in _ROWS:
        raise unreadable(step, "this operator is read of constants only")
    return _ROWS[step.kind](step, *operands)


def _arrays(operands):
    return [part for part in operands if isinstance(part, np.ndarray) and part.dtype.kind in "iuf"]


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _entries(step, constant, rows):
    """A constant that is broadcast to every row: a float, or a vector of the row's width."""
    constant, dims = np.asarray(constant, dtype=np.float64), rows.dims
    if constant.size == 1 and constant.ndim <= 1 + len(dims):
        return float(constant.reshape(()))
    if constant.ndim == 1 + len(dims) and len(constant) == 1:
        constant = constant[0]
    try:
        if None in dims and constant.ndim == 1:
            return constant
        if constant.size != math.prod(dims):
            step.allowance.spend(step, entries=math.prod(dims))
        return np.broadcast_to(constant, dims).ravel()
    except (ValueError, TypeError):
        raise unreadable(
            step, f"a constant of shape {constant.shape} does not fit rows of shape {dims}, the batch axis not counted"
        ) from None


def _add(step, u, v):
    if isinstance(u, BatchTensor) and isinstance(v, BatchTensor):
        raise unreadable(step, "a sum of two tensors that depend on the input (a residual or a branch) is no chain")
    rows, constant = (u, v) if isinstance(u, BatchTensor) else (v, u)
    return rows.scaled(1.0, _entries(step, constant, rows))


def _sub(step, u, v):
    if isinstance(u, BatchTensor) and isinstance(v, BatchTensor):
        raise unreadable(step, "a difference of two tensors that depend on the input is no chain")
    if isinstance(u, BatchTensor):
        return u.scaled(1.0, -np.asarray(_entries(step, v, u)))
    return v.scaled(-1.0, _entries(step, u, v))


def _mul(step, u, v):
    if isinstance(u, BatchTensor) and isinstance(v, BatchTensor):
        return product(step, u, v)
    rows, constant = (u, v) if isinstance(u, BatchTensor) else (v, u)
    return rows.scaled(_entries(step, constant, rows), 0.0)


def _div(step, u, v):
    if isinstance(v, BatchTensor):
        raise unreadable(step, "a division by what depends on the input is no chain")
    divisor = np.asarray(_entries(step, v, u))
    if not divisor.all():
        raise unreadable(step, "it divides by zero")
    if u.maps:  # divided, not multiplied by an inverse: one rounding
        A, c = u.maps[-1]
        return replace(u, maps=(*u.maps[:-1], (A / divisor, c / divisor)), multiple_of=None)
    return replace(u.scaled(divisor, 0.0), scale=u.scale / divisor, offset=u.offset / divisor, multiple_of=None)


def _pow(step, u, v):
    if isinstance(v, BatchTensor) or np.size(v) != 1 or float(np.reshape(v, ())) != 2.0:
        raise unreadable(step, "only the power 2 is an activation")
    return u.activated(get_activation("quadratic"), step)


def _scaler(step, rows):
    offset, scale = (np.asarray(step.attributes.get(name, d)) for name, d in (("offset", [0.0]), ("scale", [1.0])))
    moved = rows.scaled(1.0, -np.asarray(_entries(step, offset, rows)))
    return moved.scaled(_entries(step, scale, moved), 0.0)


def _batch_normalization(step, rows, scale, bias, mean, variance, *_):
    if step.attributes.get("training_mode", 0):
        raise unreadable(step, "it is in training mode and so depends on the batch; export the model in eval mode")
    if None in rows.dims[1:] or (rows.dims[0] or len(scale)) != len(scale):
        raise unreadable(step, f"it has {len(scale)} channels, which do not fit rows of shape {rows.dims}")
    epsilon, repeats = step.attributes.get("epsilon", 1e-5), math.prod(rows.dims[1:])
    step.allowance.spend(step, entries=len(scale) * repeats)
    factor = np.asarray(scale, dtype=np.float64) / np.sqrt(np.asarray(variance, dtype=np.float64) + epsilon)
    offset = np.asarray(bias, dtype=np.float64) - mean * factor
    return rows.scaled(np.repeat(factor, repeats), np.repeat(offset, repeats))


# -- matrices ----------------------------------------------------------------------------------------------------------


def _with_matrix(step, rows, W):
    if not isinstance(rows, BatchTensor) or isinstance(W, BatchTensor):
        raise unreadable(step, "a matrix product must have the rows first and a constant matrix second")
    W = np.asarray(W, dtype=np.float64)
    if len(rows.dims) != 1:
        raise unreadable(step, f"its rows have the shape {rows.dims} without the batch axis; Flatten must come before")
    if W.ndim != 2 or rows.width not in (None, len(W)):
        raise unreadable(step, f"a matrix of shape {W.shape} does not fit rows of {rows.width} entries")
    return rows.times_matrix(W)


def _matmul(step, u, v):
    rows, W = (u, v) if isinstance(u, BatchTensor) else (v, np.transpose(u))
    dims = rows.dims
    if len(dims) == 1 and (rows is u or rows.batch == 0):
        return _with_matrix(step, rows, W)
    if len(dims) < 2 or isinstance(W, BatchTensor) or rows.width is None or np.ndim(W) < 2:
        raise unreadable(step, "a matrix product must have the rows first and a constant matrix second")
    W = np.asarray(v if rows is u else u, dtype=np.float64)
    if W.ndim > len(dims) and W.shape[0] > 1:
        raise unreadable(step, f"a constant of shape {W.shape} does not fit rows of shape {dims}")
    sizes = (*np.broadcast_shapes(dims[:-2], W.shape[-len(dims) : -2]), *map(max, dims[-2:], W.shape[-2:]))
    step.allowance.spend(step, rows.width * math.prod(sizes) * dims[-1], entries=rows.width * math.prod(sizes))
    basis = np.eye(rows.width).reshape(rows.width, *dims)
    found = np.matmul(basis, W) if rows is u else np.matmul(W, basis)
    return rows.times_sparse(csr_array(found.reshape(rows.width, -1)), found.shape[1:], step)


def _gemm(step, rows, W, bias=None):
    read = step.attributes.get
    if read("transA", 0):
        raise unreadable(step, "transA=1 mixes the rows of a batch")
    W = W if isinstance(W, BatchTensor) or not read("transB", 0) else np.transpose(W)
    if isinstance(rows, BatchTensor) and rows.batch == 0:
        raise unreadable(step, "its rows have no batch axis")
    if isinstance(rows, BatchTensor) and None not in rows.dims and math.prod(rows.dims[:-1]) == 1:
        rows = rows.flat()  # as before operator set 7
    rows = _with_matrix(step, rows, W).scaled(read("alpha", 1.0), 0.0)
    if bias is None:
        return rows
    if isinstance(bias, BatchTensor):
        raise unreadable(step, "its third input depends on the model's input")
    return rows.scaled(1.0, np.asarray(_entries(step, bias, rows)) * read("beta", 1.0))


# -- activations -------------------------------------------------------------------------------------------------------


def _activation(step, rows):
    return rows.activated(get_activation(step.kind.lower()), step)


def _gelu(step, rows):
    approximate = step.attributes.get("approximate", b"none") != b"none"
    return rows.activated(get_activation("gelu_tanh" if approximate else "gelu"), step)


def _leaky(step, rows):
    return rows.activated(_leaky_relu(step, step.attributes.get("alpha", 0.01)), step)


def _prelu(step, rows, slope):
    slope = np.asarray(slope)
    if not slope.size or np.ptp(slope) != 0:
        raise unreadable(step, "only a PRelu with one slope for all units is supported")
    return rows.activated(_leaky_relu(step, slope.flat[0]), step)


def _leaky_relu(step, slope):
    try:
        return leaky_relu(slope)
    except ValueError as error:
        raise unreadable(step, str(error).rstrip(".")) from error


def _extremum(step, *operands):
    rows = [operand for operand in operands if isinstance(operand, BatchTensor)]
    if len(operands) == len(rows) == 2:
        return largest(step, *rows)
    bounds = [operand for operand in operands if not isinstance(operand, BatchTensor)]
    if len(operands) == 2 and step.kind == "Max" and not np.any(bounds[0]):
        return rows[0].activated(get_activation("relu"), step)
    low, high = (bounds[0], np.inf) if step.kind == "Max" else (-np.inf, bounds[0])
    if len(operands) == 2 and (found := bounded(step, rows[0], low, high)) is not None:
        return found
    raise unreadable(step, "it is read as max(x, 0) and max(x, s x), ReLU and leaky ReLU, or bounds of the outputs")


def _clip(step, rows, low=None, high=None):
    given = (step.attributes.get(n) if bound is None else bound for n, bound in (("min", low), ("max", high)))
    low, high = (np.reshape(bound, ()) if bound is not None else None for bound in given)
    if low is not None and low == 0.0 and (high is None or high > NO_BOUND):
        return rows.activated(get_activation("relu"), step)
    if low is not None and high is not None and (low, high) == (-1.0, 1.0):
        return rows.activated(known_activation(step, "hard_tanh"), step)
    found = bounded(step, rows, -np.inf if low is None else low, np.inf if high is None else high)
    if found is None:
        raise unreadable(
            step, "only a Clip from 0 on, a ReLU, one to (-1, 1), a hard tanh, and that of outputs are read"
        )
    return found


def _elu(step, rows):
    if step.attributes.get("alpha", 1.0) != 1.0:
        raise unreadable(step, "only alpha=1 is supported")
    return rows.activated(known_activation(step, "elu"), step)


def _selu(step, rows):
    found = [step.attributes.get(name, value) for name, value in _SELU.items()]
    if not np.allclose(found, list(_SELU.values()), rtol=np.finfo(np.float32).eps):
        raise unreadable(step, f"only alpha and gamma of {list(_SELU.values())} are supported")
    return rows.activated(get_activation("selu"), step)


def _softmax(step, rows):
    if len(rows.dims) != 1 or step.attributes.get("axis", -1) not in (-1, 1):
        raise unreadable(step, "a softmax is read over the last axis of rows (n, m)")
    if rows.plain:
        raise unreadable(step, "a softmax must follow a matrix product (MatMul or Gemm)")
    return replace(rows, classes=True)


# -- what changes nothing ----------------------------------------------------------------------------------------------


def _same(step, rows, *_):
    return rows


def _cast(step, rows):
    if step.attributes.get("to") not in _FLOATS:
        raise unreadable(step, "only casts to float32 and float64 keep the numbers")
    return rows


def _dropout(step, rows, ratio=None, training=None):
    if training is not None and np.any(training):
        raise unreadable(step, "it is in training mode and so draws at random; export the model in eval mode")
    return rows


def _flatten(step, rows):
    plain = len(rows.dims) == 1 and rows.batch != 0 and step.attributes.get("axis", 1) == 1
    return rows if plain else moved(step, rows)


def _concat(step, *parts):
    """Tensors side by side, or the probabilities of two classes."""
    if len(parts) == 1:
        return parts[0]
    tensors = all(isinstance(part, BatchTensor) and len(part.dims) == 1 and part.width for part in parts)
    if not tensors or step.attributes.get("axis") not in (-1, 0 if parts[0].batch == 0 else 1):
        raise unreadable(step, "only rows of one axis, which all depend on the model's input, are read side by side")
    if (classes := pair_of_classes(step, parts)) is not None:
        return classes
    return functools.reduce(functools.partial(beside, step), parts)


_ROWS = {
    **dict.fromkeys(_ACTIVATIONS, _activation),
    "Gelu": _gelu,
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "Max": _extremum,
    "Min": _extremum,
    "Clip": _clip,
    "Elu": _elu,
    "Selu": _selu,
    "Softmax": _softmax,
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Pow": _pow,
    "Neg": lambda step, rows: rows.scaled(-1.0, 0.0),
    "Scaler": _scaler,
    "BatchNormalization": _batch_normalization,
    "MatMul": _matmul,
    "Conv": convolution,
    "AveragePool": average_pool,
    "GlobalAveragePool": global_average_pool,
    "Gemm": _gemm,
    "Identity": _same,
    "ZipMap": _same,
    "Cast": _cast,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Concat": _concat,
    "Shape": shape_of,
    **dict.fromkeys(("Slice", "Gather", "Pad", "Transpose", "Reshape", "Squeeze", "Unsqueeze"), moved),
}
_MOVES = {"Slice", "Gather", "Pad", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}
_WITH_SHAPES = {"Constant", "Identity", "Concat", *_MOVES}  # may have the length of the batch axis among their inputs
_PASSING = {"Identity", "ZipMap", "Cast", "Reshape", "Flatten"}
KNOWN = frozenset(_ROWS) | frozenset(CONSTANTS)
