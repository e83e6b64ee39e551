"""ReLU units from a fit with more units than needed and a penalty, for inputs of any distribution."""

import math
from dataclasses import dataclass

import numpy as np

from skident.budget.constants import COLLINEAR
from skident.optim.adam import Adam, batches

from .ridges import EXACT, linear_model, regress_on_ridges, ridge_gram

_WIDTH = 2  # times the units searched for
_STEPS = 8000  # of Adam (budget; tuned on relu/large)
_BATCH = 512  # samples per step (tuned on relu/large)
_DIRECTION_RATE = 0.01  # of directions, whose length is 1; output weights and the linear function have theirs below it
_WEIGHT_RATE = 0.003  # learning rate of weights and biases (tuned on relu/large)
_LINEAR_RATE = 0.001  # learning rate of the linear part (tuned on relu/large)
_NORMALISE = 200  # steps between
_START = 0.45  # norm of the first output weights
_SHRINKAGE = 0.3  # times noise sqrt((k + 1) / n), of output weights: a third of what the noise does to a unit
_NOISE = 0.1  # standard deviation of the noise, in those of y, if none is given (tuned on relu/large)


@dataclass(frozen=True)
class WideFit:
    """Ridges that a stochastic fit ended with.

    Attributes
    ----------
    U : ndarray of shape (width, k)
        Unit rows.
    b : ndarray of shape (width,)
    """

    U: np.ndarray
    b: np.ndarray


def _gradients(X, y, w, parameters, shrinkage):
    """Of the mean square of the residuals over two, and of the sum of the sizes of the output weights."""
    W, a, u = parameters
    t = X @ W
    sign = np.sign(t)
    np.abs(t, out=t)
    r = w * (t @ a + X @ u - y) / np.float32(len(y))
    sign *= r[:, None]
    return X.T @ sign * a, r @ t + shrinkage * np.sign(a), r @ X


def fit_wide(sample, width, rng, noise=_NOISE):
    """Minimize ``E (y - sum_i a_i |u_i . z + b_i| - u . z - c)^2 / 2 + mu sum_i |a_i|`` over units of length one.

    More units than there are lead out of the minima in which a fit of the right number ends; what the penalty on their
    output weights is for is that those which are not needed go to zero instead of fitting noise. ``mu`` is
    ``.3 noise sqrt((k + 1) / n)``: with 100 units behind 100 000 rows in 100 dimensions, noise .1, a fit of 200 units
    finds 38 to 66 of them without it and all with it.

    8000 steps of Adam with 512 rows each, in single precision, the rate falling to zero along a cosine: ``O(width k)``
    a row and step, whatever n is. Memory for the rows in single precision.
    """
    Z, y, w = sample.arrays(np.float32)
    X, k = np.column_stack([Z, np.ones(len(Z), np.float32)]), Z.shape[1]
    w *= np.float32(1.0 / w.mean())
    start = linear_model(sample)
    W = rng.standard_normal((k + 1, width))
    W /= np.linalg.norm(W[:-1], axis=0)
    W[-1] = rng.uniform(-1.0, 1.0, width)
    a = rng.choice([-1.0, 1.0], width) * _START / math.sqrt(width)
    parameters = [p.astype(np.float32) for p in (W, a, np.append(start.u, start.c))]
    shrinkage = np.float32(_SHRINKAGE * noise * math.sqrt((k + 1) / sample.effective_rows))
    adam = Adam(parameters, (_DIRECTION_RATE, _WEIGHT_RATE, _LINEAR_RATE))
    for step, batch in zip(range(_STEPS), batches((X, y, w), _BATCH, rng)):
        adam.step(_gradients(*batch, parameters, shrinkage), 0.5 + 0.5 * math.cos(math.pi * step / _STEPS))
        if step % _NORMALISE == _NORMALISE - 1:
            lengths = np.linalg.norm(parameters[0][:-1], axis=0)
            parameters[0] /= lengths
            parameters[1] *= lengths
    U = parameters[0].astype(np.float64).T
    lengths = np.linalg.norm(U[:, :-1], axis=1)
    return WideFit(U[:, :-1] / lengths[:, None], U[:, -1] / lengths)


def eliminate(sample, wide, sizes):
    """Take ridges away one after the other, always that one which the others replace best.

    One Gram matrix, one pass over the rows; leaving out a ridge is a change of rank one of its inverse.
    """
    m = len(wide.b)
    (gram,) = sample.reduce(ridge_gram, wide.U, wide.b)
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    gram /= np.outer(scale, scale)
    A, right = gram[:-1, :-1], gram[:-1, -1]
    values, vectors = np.linalg.eigh(A)
    inverse = (vectors / np.maximum(values, COLLINEAR * values[-1])) @ vectors.T
    coefficients = inverse @ right
    rss = max(1.0 - right @ coefficients, 0.0) * scale[-1] ** 2
    left, best = np.arange(m), (sizes(m, rss), np.arange(m))
    while len(left):
        removal = coefficients[left] ** 2 / np.maximum(np.diag(inverse)[left], np.finfo(float).tiny)
        at = int(np.argmin(removal))
        i, left, rss = left[at], np.delete(left, at), rss + removal[at] * scale[-1] ** 2
        column = inverse[:, i] / max(inverse[i, i], np.finfo(float).tiny)
        coefficients = coefficients - column * coefficients[i]
        inverse = inverse - np.outer(column, inverse[i])
        if sizes(len(left), rss) <= best[0]:
            best = sizes(len(left), rss), left
    return regress_on_ridges(sample, wide.U[best[1]], wide.b[best[1]])


def wide_candidate(sample, n_units, rng, *, unit_price=None, noise=_NOISE):
    """So many units from a fit of twice as many; with a `unit_price`, in noise variances, as many as are worth it."""
    wide = fit_wide(sample, _WIDTH * n_units, rng, noise)

    def size(m, rss):
        if m > n_units:
            return math.inf
        if unit_price is None:
            return -m
        return sample.effective_rows * math.log(max(rss / sample.total, EXACT)) + m * unit_price

    return eliminate(sample, wide, size)
