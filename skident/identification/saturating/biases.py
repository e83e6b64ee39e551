"""First-layer biases, and the width of the second layer, from gradients of the downstream network."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import BLOCK_ENTRIES, MAX_CONDITION
from skident.fitting.directions_at_saturation import EXPONENTIAL_RATES
from skident.linalg import lapack
from skident.network import get_activation

from ..constants import POINTS_PER_UNIT
from ..query_points import query_block

_SPREAD = 0.7  # standard deviation of the pre-activations at which gradients are taken: units bend, none saturates
_STEP = 2e-4  # of fourth-order differences, in z: rounding 1e-12, truncation below it even for steep downstream layers
_ROUNDING_STEPS = 0.2  # steps of exact outputs, times the fifth root of their rounding: 2e-4 for 1e-15
# Residual below which a null space is real. Not tuned: between the 1e-8 of exact gradients and 1.
_REAL_NULL = 1e-4
_NULL_TOL_OF_NOISE = 300.0  # `_REAL_NULL` in units of the noise of the gradients
_MAX_NULL_TOL = 0.1  # `_REAL_NULL` however large the noise
_CANDIDATES = 10  # points of a classifier for every one that is used: others have no gradient to speak of
_MIN_SHARE = 1e-4  # norm of a unit's entries in the null vectors below which its bias is undetermined
_MAX_ITER = 6  # Gauss-Newton steps: quadratic convergence from the closed form
_NOT_BETTER = 0.5  # part of the residual before a step that ends the iteration if it is exceeded
_MAX_BIAS_STEP = 0.5  # per Gauss-Newton step, in z
_MAX_SCALE_STEP = 0.2  # per Gauss-Newton step, relative
_MIN_POINTS = 20  # at which gradients are taken


@dataclass
class BiasesFromGradients:
    """Corrections of pre-activations Z: the true ones are ``scales * Z + biases``, both (m_1,).

    `n_null` is the dimension ``m_1 - m_2`` of the null space, 0 if there is none; `residual` the largest of its
    singular values over the smallest of the others.
    """

    biases: np.ndarray
    scales: np.ndarray
    n_null: int
    residual: float


def biases_from_gradients(G, Z, activation, *, n_null=None):
    """Biases and scales of pre-activations Z (n, m_1) with which gradients G (n, m_1) lie in a proper subspace.

    ``d f / d z_i = g'(z_i) (W_2 s)_i`` with some vector s that depends on the point. If the second layer is narrower
    than the first, a vector v with ``W_2^T v = 0`` exists, so ``sum_i v_i G_ni / g'(z_ni) = 0`` at every point,
    however many layers follow. For tanh and sigmoid ``1 / g'(z + b)`` is a combination of ``exp(cz), exp(-cz), 1``
    whose coefficients determine b: one null space of an (n, 3 m_1) matrix. From there (for other activations from
    b = 0) the same equation is linearized in biases and scales. `n_null` is ``m_1 - m_2`` if known, else the one with
    the smallest residual is taken. ``O(n m_1^2)``; n should be above 4 m_1.
    """
    m = G.shape[1]
    dimensions = range(1, m) if n_null is None else [n_null]
    best = BiasesFromGradients(np.zeros(m), np.ones(m), 0, np.inf)
    if len(G) < 3 * m:
        return best
    rate, start = EXPONENTIAL_RATES.get(activation.name), None
    if rate is not None:
        start = _decompose(np.stack([G * np.exp(rate * Z), G * np.exp(-rate * Z), 2.0 * G], axis=1))
    for k in dimensions:
        biases = np.zeros(m) if start is None else _closed_form(start, k, rate)
        if np.isfinite(biases).all():
            best = min(best, _gauss_newton(G, Z, activation, biases, k), key=lambda result: result.residual)
    return best


def _gauss_newton(G, Z, activation, biases, k):
    """Refine biases and scales for a null space of dimension k."""
    m = G.shape[1]
    scales = np.ones(m)
    best = BiasesFromGradients(biases, scales, 0, np.inf)
    for _ in range(_MAX_ITER):
        check_deadline()
        spectrum = _decompose(_linear_columns(G, Z, activation, biases, scales))
        if spectrum is None:
            break
        V, residual = _null_space(spectrum, k)
        done = residual > _NOT_BETTER * best.residual
        # A unit that hardly contributes is corrected by a step that leaves the residual at rounding.
        if residual < best.residual / _NOT_BETTER:
            best = BiasesFromGradients(biases, scales, k, residual)
        bias_step, scale_step = _ratios(V[1], V[0]), _ratios(V[2], V[0])
        if done or not (np.isfinite(bias_step).all() and np.isfinite(scale_step).all()):
            break
        biases = biases + np.clip(bias_step, -_MAX_BIAS_STEP, _MAX_BIAS_STEP)
        scales = scales + np.clip(scale_step, -_MAX_SCALE_STEP, _MAX_SCALE_STEP)
    return best


def _closed_form(spectrum, k, rate):
    """Biases b from ``v (e^{rate b}, e^{-rate b}, 1)``, the null vectors of every unit's three columns."""
    V, _ = _null_space(spectrum, k)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(_ratios(V[0], V[2]) / _ratios(V[1], V[2])) / (2.0 * rate)


def _linear_columns(G, Z, activation, biases, scales):
    """``r = G / g'(scales Z + biases)`` and its derivatives by bias and scale, (n, 3, m_1)."""
    _, slope, curvature = activation.jet(scales * Z + biases, 2)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        r = G / slope
        change = -r * curvature / slope
    return np.stack([r, change, change * Z], axis=1)


def _decompose(columns):
    """Singular values and right singular vectors, of unscaled and scaled columns, of the (n, 3 m) matrix; or None."""
    A = columns.reshape(len(columns), -1)
    if not np.isfinite(A).all():
        return None
    A = A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), np.finfo(float).tiny)
    norms = np.maximum(np.linalg.norm(A, axis=0), np.finfo(float).tiny)
    s, Vt = lapack.svd(A / norms, full_matrices=False)[1:]
    return s, Vt / norms, Vt


def _null_space(spectrum, k):
    """The last k right singular vectors as three blocks (k, m), and the ratio of singular values at the gap.

    The ratio is infinite if some unit has no share in them: its bias is undetermined.
    """
    s, unscaled, Vt = spectrum
    m = Vt.shape[1] // 3
    V = unscaled[-k:].reshape(k, 3, m)
    share = np.sum(Vt[-k:].reshape(k, 3, m) ** 2, axis=(0, 1))
    residual = s[-k] / max(s[-k - 1], np.finfo(float).tiny)
    return (V[:, 0], V[:, 1], V[:, 2]), float(residual) if share.min() > _MIN_SHARE**2 else np.inf


def _ratios(numerators, denominators):
    """Least-squares ratio of two families of null vectors (k, m), unit by unit."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sum(numerators * denominators, axis=0) / np.sum(denominators**2, axis=0)


def find_first_biases(oracle, first, activation, rng, *, n_next=None, noise=0.0):
    """Exact first-layer biases and scales if the second layer is narrower: first layer, m_2 and residual.

    The first layer must have all its units, ``m_1 <= D``. It is returned unchanged, with m_2 = None, if the second
    layer is not narrower or the outputs are too coarse to decide; `n_next` is m_2 if known. The biases are reliable for
    a residual at rounding level, 1e-6 and below (see `BiasesFromGradients`). With `noise` (relative to the outputs'
    standard deviation) the differences' steps grow with its fifth root, and the biases lose its 4/5th power.
    ``4 m_1 n`` queries with ``n = 20 + 4.5 m_1 / m_L`` points.
    """
    g = get_activation(activation)
    W, b = first.weights, first.biases
    D, m = W.shape
    if m > D or lapack.cond(W) > MAX_CONDITION or m < 2:
        return first, None, np.inf
    n = _MIN_POINTS + int(np.ceil(POINTS_PER_UNIT * m / (oracle.n_outputs or 1)))
    step = gradient_step(oracle.accuracy, noise)
    Z = _precise_points(oracle, W, b, n, rng)
    G = preactivation_gradients(oracle, W, b, Z, step)
    n_null = None if n_next is None or n_next >= m else m - n_next
    result = biases_from_gradients(G.reshape(-1, m), np.repeat(Z, G.shape[1], axis=0), g, n_null=n_null)
    if not result.residual < np.clip(_NULL_TOL_OF_NOISE * noise / step, _REAL_NULL, _MAX_NULL_TOL):
        return first, None, np.inf
    biases = result.scales * b + result.biases
    return replace(first, weights=W * result.scales, biases=biases), m - result.n_null, result.residual


def gradient_step(accuracy, noise=0.0):
    """Step of the differences in `find_first_biases`, in pre-activations, for outputs of an `Accuracy` and noise.

    A large offset of exact outputs is rounded by more than what the outputs vary.
    """
    return max(_STEP, noise**0.2, _ROUNDING_STEPS * accuracy.relative_error**0.2 if accuracy.exact else 0.0)


def _precise_points(oracle, W, b, n, rng):
    """Pre-activations (n, m_1) of points with precise gradients: of a classifier, with the most precise logits."""
    if oracle.response == "predict":
        return _SPREAD * rng.standard_normal((n, W.shape[1]))
    Z = _SPREAD * rng.standard_normal((_CANDIDATES * n, W.shape[1]))
    error = oracle.query((Z - b) @ lapack.pinv(W))[1]
    return Z[np.argsort(error, kind="stable")[:n]]


def preactivation_gradients(oracle, W, b, Z, step, units=None):
    """Derivatives (n, m_L, k) of every output by the pre-activations of some units, by fourth-order differences.

    The points are queried in blocks, so that memory is bounded.
    """
    inverse = lapack.pinv(W)  # rows u with W^T u = z
    U, inverse = (Z - b) @ inverse, inverse if units is None else inverse[units]
    moves = np.array([-2.0, -1.0, 1.0, 2.0])[:, None, None] * step * inverse
    size = max(1, BLOCK_ENTRIES // moves.size)
    blocks = [_differences(oracle, U[i : i + size], moves, step) for i in range(0, len(U), size)]
    return np.concatenate(blocks)


def _differences(oracle, U, moves, step):
    """Derivatives (n, m_L, k) at points U (n, D), from four moves (4, k, D) per unit."""
    Y = query_block(oracle, U[:, None, None] + moves)
    return np.swapaxes((Y[:, 0] - 8.0 * Y[:, 1] + 8.0 * Y[:, 2] - Y[:, 3]) / (12.0 * step), 1, 2)
