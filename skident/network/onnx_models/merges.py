"""Recognize activations that a graph composes of two tensors: products, maxima, bounds, pairs of classes."""

import math
from dataclasses import replace

import numpy as np
import scipy.linalg

from skident.budget.constants import SAME_SINGLE

from ..activations import ACTIVATIONS, Clip, clip, get_activation, leaky_relu
from ..partly_linear import partly_linear
from .values import BatchTensor, Layer, joined, unreadable

NO_BOUND = 1e30  # magnitude of a bound that stands for infinity


def product(step, u, v):
    """The product of two tensors that depend on the input: a square, a SiLU ``u sigmoid(u)``, or a GELU."""
    if u is v:
        return u.activated(get_activation("quadratic"), step)
    for linear, gate in ((u, v), (v, u)):
        gated = _gated(step, linear, gate)
        if gated is not None:
            return gated
    raise unreadable(step, "a product of two tensors is read where it is a square, a SiLU or a GELU")


def known_activation(step, name):
    """An activation of `ACTIVATIONS`; ValueError if it is not in this release."""
    if name not in ACTIVATIONS:
        raise unreadable(step, f"{name} is no activation of FeedforwardNetwork")
    return ACTIVATIONS[name]


def _gated(step, u, gate):
    """``u (e + d g(k u))`` as a multiple of a GELU (g = erf, e = d) or a SiLU (g = sigmoid, e = 0), or None."""
    if len(gate.layers) != len(u.layers) + 1 or gate.maps or max(np.size(gate.scale), np.size(gate.offset)) > 1:
        return None
    last = gate.layers[-1]
    ratio = _ratio(u.maps, last.maps) if gate.layers[:-1] == u.layers else None
    d, e = float(gate.scale), float(gate.offset)
    name, inner, outer, offset = {
        "erf": ("gelu", math.sqrt(2.0), 2.0, d),
        "sigmoid": ("silu", 1.0, 1.0, 0.0),
    }.get(last.activation.name, ("", 1.0, 1.0, None))
    if ratio is None or offset is None or abs(e - offset) > SAME_SINGLE * abs(d):
        return None
    inner = 1.0 if abs(inner * ratio - 1.0) < SAME_SINGLE else inner * ratio
    return u.scaled(inner, 0.0).activated(known_activation(step, name), step).scaled(outer * d / inner, 0.0)


def _ratio(maps, others):
    """k such that the other maps equal these, multiplied by k at the end; None if there is no such k."""
    if not maps or len(maps) != len(others) or any(a is not b for a, b in zip(maps[:-1], others[:-1])):
        return None
    one, other = (np.append(A.ravel(), c) for A, c in (maps[-1], others[-1]))
    if one.shape != other.shape or not one.any():
        return None
    ratio = float(one @ other / (one @ one))
    return ratio if np.abs(other - ratio * one).max() <= SAME_SINGLE * np.abs(other).max() else None


def largest(step, u, v):
    """The larger (Max) or smaller (Min) of two tensors, if it is a leaky ReLU, ``max(u, s u)``."""
    for one, other in ((u, v), (v, u)):
        base, slope = other.multiple_of or (None, 1.0)
        if base is one and (slope < 1.0 if step.kind == "Max" else slope > 1.0):
            return one.activated(leaky_relu(slope), step)
    raise unreadable(step, "of two tensors it is read where it is a leaky ReLU, max(x, s x)")


def bounded(step, rows, low, high):
    """A tensor with bounds, which only outputs may have."""
    low, high = (np.where(np.abs(bound) > NO_BOUND, np.copysign(np.inf, bound), bound) for bound in (low, high))
    if not rows.maps and rows.plain and rows.layers:
        last = rows.layers[-1]
        before = clip(0.0) if last.activation.name == "relu" else last.activation
        if not isinstance(before, Clip):
            return None
        # The second bound wins where they contradict each other, which a clip cannot say.
        low, high = np.maximum(before.low, low), np.minimum(before.high, high)
        rows = replace(rows, layers=rows.layers[:-1], maps=last.maps)
    low, high = np.broadcast_arrays(low, high)
    if not rows.maps or not np.all(low < high):
        return None
    return rows.activated(clip(low, high), step)


def pair_of_classes(step, parts):
    """Probabilities of two classes, ``(1 - p, p)`` with a sigmoid p, as the log-odds of the second."""
    if len(parts) == 2 and all(part.layers and not part.maps for part in parts):
        q, p = parts
        last = p.layers[-1]
        if q.layers == p.layers and p.plain and p.width == 1 and last.activation.name == "sigmoid":
            if np.all(q.scale == -1.0) and np.all(q.offset == 1.0):
                return replace(p, layers=p.layers[:-1], maps=last.maps, classes=True)
    return None


def beside(step, u, v):
    """Rows of u followed by those of v; what one has before layers of the other passes these by linear units."""
    if len(u.layers) < len(v.layers):
        order = np.roll(np.arange(u.width + v.width), u.width)
        return beside(step, v, u).selected(order, (u.width + v.width,), step)
    depth, n = len(v.layers), v.width
    if u.layers[:depth] != v.layers:
        raise unreadable(step, "of branches, one may be linear where the other has layers")
    later, (W, b) = u.layers[depth:], _affine(step, v)
    blocks, done = [joined(layer.maps, layer.step) for layer in later], list(v.layers)
    if u.maps or not u.plain or not later:
        blocks.append(_affine(step, u))
    for i, (A, c) in enumerate(blocks):
        rows = len(A) + n * (i > 0)
        step.allowance.spend(step, entries=rows * (len(c) + n))
        A = np.hstack([A, W]) if i == 0 else scipy.linalg.block_diag(A, np.eye(n))
        maps = ((A, np.append(c, b if i == 0 else np.zeros(n))),)
        if i < len(later):
            done.append(Layer(maps, partly_linear(later[i].activation, n), later[i].step))
    return BatchTensor((u.width + n,), u.batch, tuple(done), maps if len(blocks) > len(later) else ())


def _affine(step, rows):
    """Matrix and bias of a tensor since its last activation."""
    step.allowance.spend(step, entries=rows.width * (1 if rows.maps else rows.width))
    return joined((rows if rows.maps else rows.flat().times_matrix(np.eye(rows.width))).maps, step)
