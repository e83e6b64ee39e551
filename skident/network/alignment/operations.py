"""Rules of operations without weights: how units pass through them, by torch module, function and method name."""

import operator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from .layers import LAYER_RULES, PLAIN
from .units import Segment, Units

_NO_UNITS = (Segment(),)


def _segments(value):
    return _NO_UNITS if value is PLAIN else value.segments


# -- entry by entry ----------------------------------------------------------------------------------------------------


def _passes(*, sign, scale):
    """A rule for operations that act entry by entry, or on every channel on its own."""

    def rule(call):
        if call.x is not PLAIN:
            call.registry.restrict(call.x.segments, sign=sign, scale=scale)
        return call.x

    return rule


_linear_pass = _passes(sign=True, scale=True)
_positive = _passes(sign=False, scale=True)
_odd = _passes(sign=True, scale=False)
_other = _passes(sign=False, scale=False)


def _hardtanh(call):
    limits = call.argument(1, "min_val", -1.0), call.argument(2, "max_val", 1.0)
    low, high = limits if call.module is None else (call.module.min_val, call.module.max_val)
    return (_odd if low == -high else _other)(call)


def _even(call):
    """Signs end here: the values after it have a new factor, which is 1."""
    x = call.x
    if x is PLAIN:
        return PLAIN
    call.registry.restrict(x.segments, scale=False)
    out = call.registry.with_new_factors(call.name, x.segments)
    call.registry.restrict(out, sign=False, scale=False)
    return replace(x, segments=out)


def _power(call):
    exponent = call.argument(1, "exponent")
    if not isinstance(exponent, (int, float)):
        raise ValueError("only powers that are numbers are supported.")
    return (_even if exponent % 2 == 0 else _odd if exponent % 2 == 1 else _other)(call)


def _clamp(call):
    low, high = call.argument(1, "min"), call.argument(2, "max")
    symmetric = None not in (low, high) and low == -high
    return (_odd if symmetric else _positive if (low, high) in ((0, None), (None, 0)) else _other)(call)


def _sum(call):
    """Values that are added have one space and one factor; an added number fixes the factor."""
    x, y = call.x, call.argument(1, "other")
    units, other = (y, x) if x is PLAIN or isinstance(x, (int, float)) else (x, y)
    if isinstance(other, (int, float)) and other == 0:
        return units
    if isinstance(other, (int, float)):
        call.registry.restrict(units.segments, sign=False, scale=False)
        return units
    _same_layout(units, other)
    call.registry.unite(units.segments, _segments(other))
    return units


def _product(call):
    """One of two factors must be 1, so that the other is the product's."""
    x, y = call.x, call.argument(1, "other")
    units, other = (y, x) if x is PLAIN or isinstance(x, (int, float)) else (x, y)
    if isinstance(other, (int, float)):
        return units
    if x is y:
        return _even(call)
    _same_layout(units, other)
    call.registry.restrict(_segments(other), sign=False, scale=False)
    call.registry.unite(units.segments, _segments(other), factors=False)
    return units


def _quotient(call):
    x, y = call.x, call.argument(1, "other")
    if not (isinstance(x, Units) and isinstance(y, (int, float))):
        raise ValueError("only division by a number is supported.")
    return x


def _same_layout(x, y):
    if y is not PLAIN and (x.axis != y.axis or (None not in (x.ndim, y.ndim) and x.ndim != y.ndim)):
        raise ValueError("its arguments have their channels along different axes.")


def _concatenation(call):
    values, axis = call.argument(0, "tensors"), call.argument(1, "dim", 0)
    known = next(v for v in values if v is not PLAIN)
    if axis != known.axis and not (axis == 1 and known.ndim in (None, 2)):
        raise ValueError(f"dim={axis}: only concatenation along the channels is supported.")
    for value in values:
        _same_layout(known, value)
    return replace(known, segments=tuple(s for value in values for s in _segments(value)))


# -- shapes ------------------------------------------------------------------------------------------------------------


def _spatial(call):
    """Pooling and the like, which do not mix the channels."""
    if call.x is not PLAIN and (call.x.axis != 1 or call.x.ndim in (None, 2)):
        raise ValueError("there are no spatial axes after the channels.")
    return call.x


def _padding(call):
    """Zeros, or mirrored values, around the spatial axes."""
    constant = call.argument(2, "mode", "constant") == "constant"
    if call.argument(3, "value") or (constant and len(call.argument(1, "pad")) > 2 * ((call.x.ndim or 0) - 2)):
        raise ValueError("only zeros around the axes after the channels are supported.")
    return _spatial(call)


def _part(call):
    """``x[:, :, ::2, ::2]``: a part along the axes after the channels."""
    x, index = call.x, call.argument(1, "index")
    whole = isinstance(index, tuple) and len(index) <= (x.ndim or 0) and index[1:2] == (slice(None),)
    if x.axis != 1 or not whole or not all(isinstance(part, slice) for part in index):
        raise ValueError("only slices along the axes after the channels are supported.")
    return x


def _max_pooling(call):
    wants_indices = getattr(call.module, "return_indices", call.kwargs.get("return_indices", False))
    return _unsupported(call) if wants_indices else _positive(replace(call, args=(_spatial(call), *call.args[1:])))


def _flatten(call):
    start = call.module.start_dim if call.module else call.argument(1, "start_dim", 0)
    end = call.module.end_dim if call.module else call.argument(2, "end_dim", -1)
    if call.x is PLAIN or (start == 1 and call.x.ndim == 2):
        return call.x
    if start != 1 or end not in (-1, (call.x.ndim or 0) - 1):
        raise ValueError(f"dims {start} to {end}: only flattening of all but the first axis is supported.")
    return _flat(call.x)


def _flat(x):
    if x.axis != 1 or x.ndim is None:
        raise ValueError("there are no spatial axes after the channels.")
    return Units(tuple(replace(s, flattened=True) for s in x.segments), -1, 2)


def _view(call):
    """``x.view(n, -1)`` flattens, ``x.view(n, c, 1, 1)`` adds axes after the channels."""
    x, shape = call.x, call.args[1:]
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    n = None if any(s.flattened or s.size is None for s in x.segments) else sum(s.size for s in x.segments)
    if len(shape) == 2 and shape.count(-1) == 1 and isinstance(shape[1], int):
        if x.ndim == 2:
            return x
        if x.axis == 1 and (shape[1] == -1 or (n and shape[1] % n == 0)):
            return _flat(x)
    if len(shape) > 2 and shape[2:] == (1,) * (len(shape) - 2) and n and x.ndim == 2 and shape[1] in (-1, n, PLAIN):
        return Units(x.segments, 1, len(shape))
    raise ValueError("of reshapings only torch.flatten(x, 1), x.view(len(x), -1) and x.view(n, c, 1, 1) are supported.")


def _mean(call):
    x, dims, keep = call.x, call.argument(1, "dim"), call.argument(2, "keepdim", False)
    if x is PLAIN:
        return PLAIN
    dims = dims if isinstance(dims, (tuple, list)) else (dims,)
    if x.axis == 1 and x.ndim is not None and None not in dims:
        dims = {d % x.ndim for d in dims}
        if dims <= set(range(2, x.ndim)):
            ndim = x.ndim if keep else x.ndim - len(dims)
            return Units(x.segments, -1 if ndim == 2 else 1, ndim)
    raise ValueError("only means and sums over the axes after the channels are supported.")


def _squeeze(call):
    x, dim = call.x, call.argument(1, "dim")
    if x is PLAIN:
        return PLAIN
    if dim is None or x.ndim in (None, 2) or x.axis != 1 or not 2 <= dim % x.ndim:
        raise ValueError("only axes after the channels may be squeezed, with their dim named.")
    return Units(x.segments, -1 if x.ndim == 3 else 1, x.ndim - 1)


def _transpose(call):
    x, dims = call.x, {call.argument(1, "dim0"), call.argument(2, "dim1")}
    if x is PLAIN:
        return PLAIN
    if dims in ({1, 2}, {1, -1}, {-2, -1}, {2, -2}) and x.ndim in (None, 3):
        return Units(x.segments, -x.axis, 3)
    raise ValueError("only the two last of three axes may be swapped.")


def _size(call):
    if call.argument(1, "name") in ("shape", "ndim", "dtype", "device"):
        return PLAIN
    return _unsupported(call)


def _number(call):
    return PLAIN


def _unsupported(call):
    raise ValueError("this operation is not supported.")


_POOLS = ["AvgPool1d", "AvgPool2d", "AvgPool3d"] + [f"AdaptiveAvgPool{k}d" for k in (1, 2, 3)]
_MAX_POOLS = ["MaxPool1d", "MaxPool2d", "MaxPool3d"] + [f"AdaptiveMaxPool{k}d" for k in (1, 2, 3)]
_PADS = ["ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReplicationPad2d", "Upsample"]
_DROPOUTS = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "Identity"]
_OTHERS = ["Sigmoid", "GELU", "SiLU", "Mish", "ELU", "SELU", "CELU", "Softplus", "Hardswish", "Hardsigmoid", "ReLU6"]
_OTHERS += ["LogSigmoid", "Threshold", "Softmax", "LogSoftmax"]

MODULE_RULES = {
    **LAYER_RULES,
    nn.Flatten: _flatten,
    nn.Hardtanh: _hardtanh,
    **dict.fromkeys([nn.ReLU, nn.LeakyReLU, nn.RReLU], _positive),
    **dict.fromkeys([nn.Tanh, nn.Softsign, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink], _odd),
    **{getattr(nn, name): _linear_pass for name in _DROPOUTS},
    **{getattr(nn, name): _spatial for name in _POOLS + _PADS},
    **{getattr(nn, name): _max_pooling for name in _MAX_POOLS},
    **{getattr(nn, name): _other for name in _OTHERS},
}

FUNCTION_RULES = {
    F.linear: LAYER_RULES[nn.Linear],
    **dict.fromkeys([F.relu, F.relu_, torch.relu, torch.relu_, F.leaky_relu, F.leaky_relu_], _positive),
    **dict.fromkeys([torch.tanh, F.tanh, torch.sin, torch.erf, torch.special.erf, torch.atan, torch.asinh], _odd),
    **dict.fromkeys([F.softsign, F.tanhshrink, F.hardshrink, F.softshrink], _odd),
    **dict.fromkeys([torch.sigmoid, F.sigmoid, F.gelu, F.silu, F.mish, F.elu, F.selu, F.celu, F.softplus], _other),
    **dict.fromkeys([F.hardswish, F.hardsigmoid, F.relu6, F.logsigmoid, F.softmax, F.log_softmax], _other),
    **dict.fromkeys([torch.softmax, torch.log_softmax, torch.exp], _other),
    **dict.fromkeys([F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, torch.neg, operator.neg], _linear_pass),
    **dict.fromkeys([torch.abs, abs, torch.square, torch.cos], _even),
    **dict.fromkeys([torch.pow, operator.pow], _power),
    F.hardtanh: _hardtanh,
    torch.clamp: _clamp,
    **dict.fromkeys([operator.add, operator.iadd, torch.add, operator.sub, operator.isub, torch.sub], _sum),
    **dict.fromkeys([operator.mul, operator.imul, torch.mul], _product),
    **dict.fromkeys([operator.truediv, torch.div], _quotient),
    **dict.fromkeys([torch.cat, torch.concat], _concatenation),
    **dict.fromkeys([F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.interpolate], _spatial),
    **dict.fromkeys([F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d], _spatial),
    **dict.fromkeys([F.max_pool1d, F.max_pool2d, F.max_pool3d], _max_pooling),
    **dict.fromkeys([torch.max_pool1d, torch.max_pool2d, torch.max_pool3d], _max_pooling),
    **dict.fromkeys([F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d], _max_pooling),
    F.pad: _padding,
    operator.getitem: _part,
    torch.flatten: _flatten,
    **dict.fromkeys([torch.mean, torch.sum], _mean),
    torch.squeeze: _squeeze,
    torch.transpose: _transpose,
    torch.reshape: _view,
    getattr: _size,
}

# Rules with several arguments that may be tensors; those where a tensor of one entry is a number; those with sizes.
OF_SEVERAL = {_sum, _product, _quotient, _concatenation}
WITH_NUMBERS = {_sum, _product, _quotient}
WITH_SIZES = {_view, _spatial, _padding, _part}

METHOD_RULES = {
    **dict.fromkeys(["relu", "relu_"], _positive),
    **dict.fromkeys(["tanh", "tanh_", "sin", "erf"], _odd),
    **dict.fromkeys(["sigmoid", "softmax", "log_softmax", "exp"], _other),
    **dict.fromkeys(["abs", "square", "cos"], _even),
    "pow": _power,
    **dict.fromkeys(["clamp", "clamp_"], _clamp),
    **dict.fromkeys(["contiguous", "clone", "detach", "float", "double", "neg"], _linear_pass),
    **dict.fromkeys(["add", "add_", "sub"], _sum),
    **dict.fromkeys(["mul", "mul_"], _product),
    "div": _quotient,
    "flatten": _flatten,
    **dict.fromkeys(["view", "reshape"], _view),
    **dict.fromkeys(["mean", "sum"], _mean),
    "squeeze": _squeeze,
    "transpose": _transpose,
    **dict.fromkeys(["size", "dim"], _number),
}
