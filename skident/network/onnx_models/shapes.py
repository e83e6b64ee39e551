"""Constants of ONNX graphs worked out, and operators on the shapes of rows, which act on the places of entries."""

import math
from dataclasses import replace

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .values import BatchTensor, unreadable

ANY_BATCH = -(2**40)  # length of a batch axis that a model states nowhere, among shapes; no length of another axis


def moved(step, rows, *constants):
    """What an operator on the shape does to entries: it acts on their places, counted from 1, in a batch of two."""
    if rows.width is None or any(isinstance(part, BatchTensor) for part in constants):
        raise unreadable(step, "the shape of a row must be known, and the other inputs constant")
    batch = () if rows.batch == 0 else (1 if rows.batch == 1 else 2,)
    if step.kind == "Reshape" and batch:
        shape = np.ravel(step.attributes.get("shape", constants[0] if constants else None)).astype(np.int64)
        constants = [np.append(np.where(np.isin(shape[:1], (ANY_BATCH, rows.batch)), batch, shape[:1]), shape[1:])]
        step = replace(step, attributes={})
    step.allowance.spend(step, entries=2 * rows.width)
    places = np.arange(math.prod(batch) * rows.width).reshape(*batch, *rows.dims) + 1
    found = CONSTANTS[step.kind](step, places, *constants)
    first = found[0] if batch else found
    for i, row in enumerate(found if batch else ()):
        if len(found) != batch[0] or np.any(row != np.where(first, first + i * rows.width, 0)):
            raise unreadable(step, "it mixes the rows of a batch")
    if not batch and first.ndim > 1 and len(first) == 1:  # (1, D): the axis that was missing
        rows, first = replace(rows, batch=1), first[0]
    return rows.selected(first.ravel() - 1, first.shape, step)


def _constant(step):
    for name in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if name in step.attributes:
            value = step.attributes[name]
            return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    raise unreadable(step, "only constants of numbers are read")


def _constant_cast(step, value):
    return value.astype(helper.tensor_dtype_to_np_dtype(step.attributes["to"]))


def _constant_reshape(step, value, shape=None):
    shape = np.ravel(step.attributes.get("shape", shape))
    return np.reshape(value, [value.shape[i] if m == 0 else int(m) for i, m in enumerate(shape)])


def _constant_flatten(step, value):
    axis = step.attributes.get("axis", 1)
    return value.reshape(math.prod(value.shape[:axis]), -1)


def _squeeze(step, value, axes=None):
    if (axes := step.attributes.get("axes", axes)) is None:
        raise unreadable(step, "it does not say which axes, and the batch axis may be among them")
    return np.squeeze(value, tuple(np.ravel(axes).tolist()))


def _unsqueeze(step, value, axes=None):
    return np.expand_dims(value, tuple(np.ravel(step.attributes.get("axes", axes)).tolist()))


def _slice(step, value, starts=None, ends=None, axes=None, steps=None):
    starts, ends, axes = (step.attributes.get(n, v) for n, v in (("starts", starts), ("ends", ends), ("axes", axes)))
    axes, index = range(value.ndim) if axes is None else np.ravel(axes), [slice(None)] * value.ndim
    by = np.ones(len(starts), dtype=int) if steps is None else np.ravel(steps)
    for axis, *bounds in zip(axes, np.ravel(starts), np.ravel(ends), by):
        index[axis] = slice(*map(int, bounds))
    return value[tuple(index)]


def _gather(step, value, places):
    axis = step.attributes.get("axis", 0)
    step.allowance.spend(step, entries=value.size // max(1, value.shape[axis]) * np.size(places))
    return np.asarray(np.take(value, np.asarray(places), axis))


def _pad(step, value, pads=None, constant=None, axes=None):
    read = step.attributes.get
    pads = np.ravel(read("pads", pads)).reshape(2, -1).T
    if read("mode", b"constant") != b"constant" or np.any(constant) or read("value", 0) or axes is not None:
        raise unreadable(step, "only zeros around all axes are read")
    if pads.shape != (value.ndim, 2) or pads.min() < 0:
        raise unreadable(step, f"pads of shape {pads.T.shape} do not fit {value.ndim} axes, or are negative")
    step.allowance.spend(step, entries=math.prod(int(m + sum(pair)) for m, pair in zip(value.shape, pads.tolist())))
    return np.pad(value, pads)


def shape_of(step, rows):
    """``Shape`` of rows, with `ANY_BATCH` for a batch axis of any length."""
    if step.attributes.get("start", 0) or step.attributes.get("end") is not None or None in rows.dims:
        raise unreadable(step, "the axes of a row must be known, and all be wanted")
    return np.array([ANY_BATCH if rows.batch is None else rows.batch, *rows.dims][rows.batch == 0 :])


def _constant_concat(step, *parts):
    step.allowance.spend(step, entries=sum(part.size for part in parts))
    return np.concatenate(parts, step.attributes["axis"])


def _constant_matmul(step, a, b):
    if a.ndim != 2 or b.ndim != 2:
        raise unreadable(step, f"of constants, only matrices are multiplied, got shapes {a.shape} and {b.shape}")
    step.allowance.spend(step, a.size * b.shape[-1], entries=len(a) * b.shape[-1])
    return a @ b


_ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


def _constant_arithmetic(step, a, b):
    size = math.prod(np.broadcast_shapes(a.shape, b.shape))
    if size > max(a.size, b.size, 1):  # an outer product may fill any memory
        raise unreadable(step, f"constants of shapes {a.shape} and {b.shape} make a larger one")
    return _ARITHMETIC[step.kind](a, b)


CONSTANTS = {
    "Constant": _constant,
    "Identity": lambda step, value: value,
    "Cast": _constant_cast,
    "Reshape": _constant_reshape,
    "Transpose": lambda step, value: np.transpose(value, step.attributes.get("perm")),
    "Neg": lambda step, value: -value,
    "Flatten": _constant_flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Gather": _gather,
    "Pad": _pad,
    "Concat": _constant_concat,
    "MatMul": _constant_matmul,
    **dict.fromkeys(_ARITHMETIC, _constant_arithmetic),
    "Sqrt": lambda step, value: np.sqrt(value),
}
