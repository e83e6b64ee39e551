"""Projected ascent on products of unit spheres, many starts at once."""

import math
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace


@dataclass(frozen=True)
class SphereAscentResult:
    """Where `sphere_ascent` ended.

    Attributes
    ----------
    blocks : list of array of shape (R, a_l, b_l)
        Every ``blocks[l][r]`` has Frobenius norm 1.
    values : array of shape (R,)
        The objective there.
    n_iter : int
    """

    blocks: list
    values: Any
    n_iter: int


def unit_norm(block):
    """Divide every matrix of a batch by its Frobenius norm, except matrices of zeros.

    Parameters
    ----------
    block : array of shape (..., a, b)

    Returns
    -------
    array of shape (..., a, b)

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import unit_norm
    >>> print(unit_norm(np.array([[[3.0, 4.0]]])))
    [[[0.6 0.8]]]
    """
    # The largest entry first: squares of entries below 1e-154 (1e-19 in single precision) would vanish.
    largest = array_namespace(block).linalg.vector_norm(block, axis=(-2, -1), keepdims=True, ord=math.inf)
    block = block / _or_one(largest)
    return block / _or_one(_norms(block))


def _norms(block):
    return array_namespace(block).linalg.vector_norm(block, axis=(-2, -1), keepdims=True)


def _or_one(norms):
    """Norms with zeros replaced by ones, so that they can be divided by."""
    xp = array_namespace(norms)
    return xp.where(norms > 0, norms, xp.ones_like(norms))


def _moved(W, gradient, step):
    """``P(W + step g / ||g||)``, in as few passes over the matrices as possible."""
    W = W + (step / _or_one(_norms(gradient))) * gradient
    return W / _or_one(_norms(W))


def sphere_ascent(value_and_gradient, blocks, *, step_size=0.1, last_step_size=1e-4, max_iter=200, callback=None):
    """Maximize a function of several matrices of unit norm from R starts: ``W_l <- P(W_l + eta_t g_l / ||g_l||)``.

    P divides by the Frobenius norm. The steps eta_t decrease geometrically from `step_size` to `last_step_size`.

    Parameters
    ----------
    value_and_gradient : callable
        ``blocks -> (values, gradients)``: arrays (R,), and a list like `blocks`.
    blocks : list of array (R, a_l, b_l)
        Starts; normalized first. NumPy arrays or torch tensors, on any device.
    step_size, last_step_size : float, default=0.1, 1e-4
    max_iter : int, default=200
        Steps taken.
    callback : callable, default=None
        ``callback(n_iter, values)`` before every step; True ends the ascent.

    Returns
    -------
    SphereAscentResult

    Raises
    ------
    ValueError
        If a step size or the number of steps is not positive.

    Notes
    -----
    Steps are relative to the matrices, whatever the scale of the gradient. They have to decrease: maxima of networks of
    ReLU units lie on activation boundaries, where a fixed step oscillates. With a large step this is the power method,
    which ends in worse maxima. A start whose gradient vanishes does not move. ``max_iter + 1`` evaluations.
    Source: the projected gradient descent of Bantzis, Simon, Jacot (2025), Section 4.1, on the product of the layers'
    spheres instead of one sphere: a homogeneous function has the same maxima on both.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import sphere_ascent
    >>> A = np.diag([3.0, 2.0, 1.0])
    >>> starts = np.ones((1, 3, 1))
    >>> result = sphere_ascent(
    ...     lambda b: (np.sum(b[0] * (A @ b[0]), axis=(1, 2)), [2 * A @ b[0]]),
    ...     [starts],
    ...     step_size=1.0,
    ... )
    >>> print(round(float(result.values[0]), 3))
    3.0
    """
    if not (0 < last_step_size and 0 < step_size and max_iter >= 1):
        raise ValueError(
            f"step sizes and the number of steps must be positive, got step_size={step_size}, "
            f"last_step_size={last_step_size}, max_iter={max_iter}."
        )
    shrinkage = (last_step_size / step_size) ** (1.0 / max(1, max_iter - 1))
    blocks, step, n_iter = [unit_norm(W) for W in blocks], step_size, 0
    for n_iter in range(1, max_iter + 1):
        values, gradients = value_and_gradient(blocks)
        if callback is not None and callback(n_iter - 1, values):
            return SphereAscentResult(blocks, values, n_iter - 1)
        blocks = [_moved(W, g, step) for W, g in zip(blocks, gradients)]
        step *= shrinkage
    return SphereAscentResult(blocks, value_and_gradient(blocks)[0], n_iter)
