"""First-layer shifts, and how many units follow, from where the gradients of the rest of the network lie."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from skident.budget import check_deadline
from skident.network import get_activation

from ..query_points import query_block

__all__ = ["BiasesFromGradients", "find_first_biases", "gradient_step", "biases_from_gradients"]

# 1 / g'(z) is a combination of exp(c z), exp(-c z) and 1.
_EXPONENTS = {"tanh": 2.0, "sigmoid": 1.0}
_SPREAD = 0.7  # standard deviation of the pre-activations at which gradients are taken
_STEP = 2e-4  # of fourth-order differences: rounding 1e-12, truncation below it also where the rest is steep
_OF_ROUNDING = 0.2  # steps for exact answers beside the fifth root of their rounding: that step for 1e-15
_TELLING = 1e-4  # residual below which a null space is real
_CANDIDATES = 10  # points of a classifier for every one that is used
_PART = 1e-4  # length of a unit's part in the null vectors below which it has none


@dataclass
class BiasesFromGradients:
    """Corrections to a first layer's pre-activations.

    Attributes
    ----------
    shifts, stretches : ndarray of shape (m_1,)
        The true pre-activations are ``stretches * Z + shifts``.
    n_null : int
        Dimension of the null space found: ``m_1 - m_2``. 0 if there is none.
    residual : float
        Largest of the null space's singular values over the smallest of the others; infinite if there is none.
    """

    shifts: np.ndarray
    stretches: np.ndarray
    n_null: int
    residual: float


def biases_from_gradients(G, Z, activation, *, n_null=None, max_iter=6):
    """Shifts and stretches of pre-activations that put the gradients of the next layers into a proper subspace.

    Parameters
    ----------
    G : ndarray of shape (n, m_1)
        Gradients by the pre-activations: ``d f / d z_i`` at points with pre-activations Z, of any outputs.
    Z : ndarray of shape (n, m_1)
        Pre-activations up to unknown shifts, and lengths that are nearly right.
    activation : Activation
        Smooth and strictly monotone.
    n_null : int, default=None
        ``m_1 - m_2`` if known; otherwise the one with the smallest residual.
    max_iter : int, default=6
        Gauss-Newton steps at most.

    Returns
    -------
    BiasesFromGradients

    Notes
    -----
    ``d f / d z_i = g'(z_i) (W_2 s)_i`` with some vector s that depends on the point. Where the second layer is narrower
    than the first, a vector v with ``W_2^T v = 0`` exists, so ``sum_i v_i G_ni / g'(z_ni) = 0`` at every point,
    however many layers follow. For tanh and sigmoid ``1 / g'(z + b)`` is a combination of three functions of z whose
    coefficients give b: one null space of an (n, 3 m_1) matrix. From there (for other activations from b = 0) the
    same equation is linearised in shifts and stretches. ``O(n m_1^2)``; n should be above 4 m_1.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import get_activation
    >>> from skident.identification.saturating.biases import biases_from_gradients
    >>> rng = np.random.default_rng(0)
    >>> Z, W, shifts = rng.standard_normal((40, 3)), np.array([[1.0], [0.5], [-0.7]]), np.array([0.3, -0.2, 0.1])
    >>> G = rng.standard_normal((40, 1)) @ W.T / np.cosh(Z + shifts) ** 2
    >>> print(np.round(biases_from_gradients(G, Z, get_activation("tanh")).shifts, 6))
    [ 0.3 -0.2  0.1]
    """
    m = G.shape[1]
    dimensions = range(1, m) if n_null is None else [n_null]
    best = BiasesFromGradients(np.zeros(m), np.ones(m), 0, np.inf)
    if len(G) < 3 * m:
        return best
    start = None
    if activation.name in _EXPONENTS:
        start = _decompose(_closed_form_columns(G, Z, _EXPONENTS[activation.name]))
    for k in dimensions:
        shifts = np.zeros(m) if start is None else _closed_form_shifts(start, k, _EXPONENTS[activation.name])
        if np.isfinite(shifts).all():
            found = _improve(G, Z, activation, shifts, k, max_iter)
            best = min(best, found, key=lambda f: f.residual)
    return best


def _improve(G, Z, activation, shifts, k, max_iter):
    """Gauss-Newton steps in shifts and stretches for a null space of dimension k."""
    m = G.shape[1]
    stretches = np.ones(m)
    best = BiasesFromGradients(shifts, stretches, 0, np.inf)
    for _ in range(max_iter):
        check_deadline()
        spectrum = _decompose(_linear_columns(G, Z, activation, shifts, stretches))
        if spectrum is None:
            break
        V, residual = _null_space(spectrum, k)
        done = residual > 0.5 * best.residual
        if residual < best.residual:
            best = BiasesFromGradients(shifts, stretches, k, residual)
        move, stretch = _ratios(V[1], V[0]), _ratios(V[2], V[0])
        if done or not (np.isfinite(move).all() and np.isfinite(stretch).all()):
            break
        shifts = shifts + np.clip(move, -0.5, 0.5)
        stretches = stretches + np.clip(stretch, -0.2, 0.2)
    return best


def _closed_form_shifts(spectrum, k, exponent):
    """``b`` from ``v (e^{cb}, e^{-cb}, 1)``, the null vectors of the three columns of every unit."""
    V, _ = _null_space(spectrum, k)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(_ratios(V[0], V[2]) / _ratios(V[1], V[2])) / (2.0 * exponent)


def _closed_form_columns(G, Z, c):
    return np.stack([G * np.exp(c * Z), G * np.exp(-c * Z), 2.0 * G], axis=1)


def _linear_columns(G, Z, activation, shifts, stretches):
    """``r``, ``dr / d shift`` and ``dr / d stretch`` for ``r = G / g'(stretches Z + shifts)``."""
    _, slope, bend = activation.jet(stretches * Z + shifts, 2)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        r = G / slope
        change = -r * bend / slope
    return np.stack([r, change, change * Z], axis=1)


def _decompose(columns):
    """Singular values and right singular vectors of the (n, 3 m) matrix with rows of length 1, columns unscaled."""
    A = columns.reshape(len(columns), -1)
    if not np.isfinite(A).all():
        return None
    A = A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), np.finfo(float).tiny)
    length = np.maximum(np.linalg.norm(A, axis=0), np.finfo(float).tiny)
    s, Vt = scipy.linalg.svd(A / length, full_matrices=False)[1:]
    return s, Vt / length, Vt


def _null_space(spectrum, k):
    """The last k right singular vectors as three blocks (k, m), and how null they are beside the next one.

    Infinite where a unit takes no part in them: its shift is not determined.
    """
    s, scaled, Vt = spectrum
    m = Vt.shape[1] // 3
    V = scaled[-k:].reshape(k, 3, m)
    part = np.sum(Vt[-k:].reshape(k, 3, m) ** 2, axis=(0, 1))
    residual = s[-k] / max(s[-k - 1], np.finfo(float).tiny)
    return (V[:, 0], V[:, 1], V[:, 2]), float(residual) if part.min() > _PART**2 else np.inf


def _ratios(numerators, denominators):
    """Least squares ratio of two families of null vectors, unit by unit."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sum(numerators * denominators, axis=0) / np.sum(denominators**2, axis=0)


def find_first_biases(oracle, first, activation, rng, *, n_next=None, noise=0.0):
    """Shifts of the first layer, exactly, whenever the second layer is narrower; and how narrow.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
        With all units, ``m_1 <= D``.
    activation : str
        Of the first layer.
    rng : numpy.random.RandomState
    n_next : int, default=None
        ``m_2`` if known.
    noise : float, default=0
        Of the answers, relative to their standard deviation: the steps of the differences grow with its fifth root,
        and the accuracy of the shifts is lost with its 4/5th power.

    Returns
    -------
    first : FirstLayer
        Weights stretched and shifts as found; unchanged if no null space shows.
    n_next : int or None
        ``m_2``; None where the second layer is not narrower than the first, or answers are too coarse to tell.
    residual : float
        See `BiasesFromGradients`: rounding level (1e-6 and below) when the shifts can be relied on.

    Notes
    -----
    ``4 m_1 n`` queries with ``n = 20 + 4.5 m_1 / m_L`` points, ``m_1`` components of a gradient each. A classifier's
    points are those of ten times as many whose logits are most precise: others have no gradient to speak of.
    """
    g = get_activation(activation)
    W, b = first.weights, first.biases
    D, m = W.shape
    if m > D or np.linalg.cond(W) > 1e6 or m < 2:
        return first, None, np.inf
    n = 20 + int(np.ceil(4.5 * m / (oracle.n_outputs or 1)))
    step = gradient_step(oracle.accuracy, noise)
    Z = _precise_points(oracle, W, b, n, rng)
    G = _gradients(oracle, W, b, Z, step)
    rows = np.repeat(Z, G.shape[1], axis=0)
    n_null = None if n_next is None or n_next >= m else m - n_next
    found = biases_from_gradients(G.reshape(-1, m), rows, g, n_null=n_null)
    if not found.residual < np.clip(300.0 * noise / step, _TELLING, 0.1):
        return first, None, np.inf
    biases = found.stretches * b + found.shifts
    return replace(first, weights=W * found.stretches, biases=biases), m - found.n_null, found.residual


def gradient_step(accuracy, noise=0.0):
    """The step of the differences in `find_first_biases`, in pre-activations.

    Parameters
    ----------
    accuracy : Accuracy
        Of the oracle; the rounding of a large offset is more than that of the answers beside it.
    noise : float, default=0
        See `find_first_biases`.

    Returns
    -------
    float
    """
    return max(_STEP, noise**0.2, _OF_ROUNDING * accuracy.relative_error**0.2 if accuracy.exact else 0.0)


def _precise_points(oracle, W, b, n, rng):
    """Pre-activations (n, m_1) of points where a gradient can be told."""
    if oracle.response == "predict":
        return _SPREAD * rng.standard_normal((n, W.shape[1]))
    Z = _SPREAD * rng.standard_normal((_CANDIDATES * n, W.shape[1]))
    error = oracle.query((Z - b) @ np.linalg.pinv(W))[1]
    return Z[np.argsort(error, kind="stable")[:n]]


def _gradients(oracle, W, b, Z, step):
    """Derivatives of every output by every pre-activation, (n, m_L, m_1), by fourth-order differences."""
    inverse = np.linalg.pinv(W)  # rows: W^T u = z
    U = (Z - b) @ inverse
    moves = np.array([-2.0, -1.0, 1.0, 2.0])[:, None, None] * step * inverse
    Y = query_block(oracle, U[:, None, None] + moves)
    return np.swapaxes((Y[:, 0] - 8.0 * Y[:, 1] + 8.0 * Y[:, 2] - Y[:, 3]) / (12.0 * step), 1, 2)
