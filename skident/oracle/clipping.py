"""Detect whether a model clips its inputs, and where."""

import numpy as np

from skident.budget.constants import CONSTANT_TOL
from skident.optim import bisect

_FAR = 1e4  # standard deviations of an input: units with weight norms above 0.01 are saturated or linear there
_CHECK_STEP = 1e-2  # standard deviations before the border at which the outputs must change at full rate
_N_BISECTIONS = 40  # 1e4 / 2^40 = 1e-8 standard deviations
_MIN_CHANGE = 1e-7  # of the outputs' range, per step; a tanh that becomes constant in float64 has moved by 1e-15
_RATE_RANGE = (1.8, 2.2)  # change over two steps over that of one: 2 at a full rate, less or more for a smooth curve


def detect_clipped_inputs(oracle, n_base=3, rng=None):
    """Bounds (low, high), each (D,), of the model's inputs beyond which they are ignored; infinite if there are none.

    Along one input, a model that clips is exactly constant beyond a border and changes at full rate before it.
    Saturating units become constant gradually. If the outputs beyond a border do not depend on the other inputs either,
    the outputs are clipped, or at rest. Each border is the last place where the outputs differ from
    those far out, by 40 steps of bisection with ``2 D n_base`` queries each.

    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.oracle.clipping import detect_clipped_inputs
    >>> low, high = detect_clipped_inputs(
    ...     Oracle(lambda X: np.tanh(np.clip(X, -4, 5)).sum(axis=1), 2)
    ... )
    >>> print(high.round(4))
    [5. 5.]
    """
    rng = np.random.RandomState(0) if rng is None else rng
    D = oracle.n_inputs
    base = np.repeat(rng.standard_normal((n_base, D)), 2 * D, axis=0)
    axis, sign = np.tile(np.repeat(np.arange(D), 2), n_base), np.tile([-1.0, 1.0], n_base * D)
    rows = np.arange(len(base))

    def query(t):
        U = base.copy()
        U[rows, axis] = sign * t
        return oracle(U)

    far, scale = query(np.full(len(base), _FAR)), np.abs(oracle(base)).max()
    tol = CONSTANT_TOL * max(scale, np.finfo(float).tiny)

    def change(t):
        return np.abs(query(t) - far).max(axis=1)

    constant = change(np.full(len(base), 2.0 * _FAR)) <= tol
    start, end = np.zeros(len(base)), np.full(len(base), _FAR)
    _, right = bisect(lambda t: change(t) <= tol, start, end, _N_BISECTIONS)
    near, farther = change(right - _CHECK_STEP), change(right - 2.0 * _CHECK_STEP)
    ratio = farther / np.maximum(near, np.finfo(float).tiny)
    abrupt = (near > _MIN_CHANGE * scale) & (ratio > _RATE_RANGE[0]) & (ratio < _RATE_RANGE[1])
    border = constant & abrupt & (right > 2.0 * _CHECK_STEP)
    others_matter = np.ptp(far.reshape(n_base, 2 * D, -1), axis=0).max(axis=1) > tol
    edges = sign * np.where(border & np.tile(others_matter, n_base), right, np.inf)
    low, high = edges.reshape(n_base, D, 2)[:, :, 0].max(axis=0), edges.reshape(n_base, D, 2)[:, :, 1].min(axis=0)
    return oracle.to_inputs(low), oracle.to_inputs(high)
