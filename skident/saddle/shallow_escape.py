"""The fastest escape of a depth-two ReLU network by branch and bound, and a bound of escape speeds of every depth."""

import heapq
from dataclasses import dataclass
from itertools import count

import numpy as np
from sklearn.utils import check_random_state

from skident.budget.constants import MANY_ROUNDS, RANDOM_UNITS

from .shallow_relaxation import Relaxation

_N_STEPS = 400  # of the ascent (budget)
_FIRST_STEP = 0.3  # of the ascent, relative to the unit sphere: steps decrease geometrically to the last one
_LAST_STEP = 1e-4  # optima lie on activation boundaries, which only short steps approach


@dataclass(frozen=True)
class ShallowEscape:
    """The fastest known escape of a depth-two network, with an upper bound.

    Attributes
    ----------
    speed : float
        ``-<G, f(X)>`` of the weights.
    upper_bound : float
        No depth-two network, of any width, is faster.
    weights : list of ndarray (D, 1), (1, 1)
        ``f(X) = relu(X W_1) W_2``, each layer of norm one: one unit is fastest.
    n_regions : int
        Regions of weights that were bounded.
    """

    speed: float
    upper_bound: float
    weights: list
    n_regions: int


def fastest_shallow_escape(X, gradient, *, tol=1e-2, max_regions=2000, random_state=None):
    """Maximize ``-<G, relu(X W_1) w_2>`` over layers of norm one and any number of units.

    Parameters
    ----------
    X : array-like of shape (n, D)
        Inputs.
    gradient : array-like of shape (n,)
        G, the loss's gradient with respect to a single output.
    tol : float, default=1e-2
        Relative gap between speed and bound at which the search ends.
    max_regions : int, default=2000
        Regions to bound at most. The search then ends with a larger gap.
    random_state : int, RandomState or None, default=None
        Starts of the ascent.

    Returns
    -------
    ShallowEscape

    Raises
    ------
    ValueError
        If the inputs are not finite, or do not match the gradient.

    Notes
    -----
    One unit is fastest: the speed is the largest ``|sum_j g_j relu(w . x_j)|`` over the unit sphere. Terms with
    ``g_j > 0`` make it nonconvex. Branch and bound splits the sphere by their signs ``w . x_j``. Within a region,
    ``relu(z) <= z / 2 + (rho z^2 + 1 / rho) / 4`` for all ``rho > 0``; and relu(z) is at least ``sigma z`` for sigma in
    [0, 1], at least ``z / 2 + z^2 / (2 |x|)``, and at least any mean of both. The signs of the region add ``w . x_j``
    and their products with multipliers of at least zero. What remains is a quadratic function on the sphere, whose
    maximum is a largest eigenvalue. Its minimum over all multipliers is a semidefinite program, and every choice of
    them is a bound, to rounding.

    Cost: on tables with 2 to 10 columns and 100 to 600 rows, the two regions of either sign of w_2 suffice for 1 %, in
    0.1 to 1 s. A gradient that is noise takes up to some hundred regions, and 25 s. Source: Proposition 3.2 of Bantzis,
    Simon, Jacot (2025), for one unit.

    Examples
    --------
    >>> from skident.datasets import make_alternating_circle
    >>> from skident.saddle import fastest_shallow_escape
    >>> escape = fastest_shallow_escape(*make_alternating_circle(8), random_state=0)
    >>> print(round(escape.speed, 4), escape.upper_bound <= 1.01 * escape.speed)
    0.4142 True
    """
    X, G = _checked(X, gradient)
    norms = np.linalg.norm(X, axis=1)
    scale = float(norms.max(initial=0.0) * np.abs(G).max(initial=0.0))
    if scale == 0:
        w = np.eye(X.shape[1])[:, :1]
        return ShallowEscape(0.0, 0.0, [w, np.array([[-1.0]])], 0)
    used = (norms > 0) & (G != 0)
    U, g = X[used] / norms.max(), G[used] / np.abs(G).max()
    rng = check_random_state(random_state)
    found = [_ascend(U, -top * g, rng) for top in (1.0, -1.0)]
    bound, found, n_regions = _branch(U, g, found, tol, max_regions)
    top = 1.0 if found[0][0] >= found[1][0] else -1.0
    w = found[0 if top > 0 else 1][1][:, None]
    speed = -float(G @ np.maximum(X @ w, 0.0)[:, 0]) * top
    return ShallowEscape(speed, max(bound * scale, speed), [w, np.array([[top]])], n_regions)


def _checked(X, gradient):
    """Inputs (n, D) and gradient (n,) as arrays."""
    X, G = np.asarray(X, dtype=np.float64), np.asarray(gradient, dtype=np.float64)
    if X.ndim != 2 or X.size == 0 or G.shape != (len(X),) or not (np.isfinite(X).all() and np.isfinite(G).all()):
        raise ValueError(
            f"the search takes finite inputs (n, D) and a gradient (n,) of one output, got shapes {X.shape} and "
            f"{G.shape}."
        )
    return X, G


def _ascend(X, g, rng):
    """Largest ``sum_j g_j relu(w . x_j)`` of projected ascents on the sphere, and its w (D,)."""
    W = rng.standard_normal((X.shape[1], RANDOM_UNITS))
    W /= np.linalg.norm(W, axis=0)
    best, w = -np.inf, W[:, 0]
    for step in np.geomspace(_FIRST_STEP, _LAST_STEP, _N_STEPS):
        Z = X @ W
        values = g @ np.maximum(Z, 0.0)
        if values.max() > best:
            best, w = float(values.max()), W[:, values.argmax()].copy()
        slopes = X.T @ (g[:, None] * (Z > 0))
        lengths = np.linalg.norm(slopes, axis=0)
        W = W + step * slopes / np.where(lengths > 0, lengths, 1.0)
        W /= np.linalg.norm(W, axis=0)
    return best, w


def _branch(X, g, found, tol, max_regions):
    """Upper bound of both signs of w_2, the pairs (value, w) tried, and the number of regions; the widest first."""
    relaxations = [Relaxation(X, -top * g) for top in (1.0, -1.0)]
    order, known = count(), max(value for value, _ in found)
    heap = []
    for side, relaxation in enumerate(relaxations):
        bounded = relaxation.bound(np.zeros(len(X), dtype=np.int8), known * (1 + tol))
        found[side] = max(found[side], bounded.candidate, key=lambda pair: pair[0])
        heapq.heappush(heap, (-bounded.upper, next(order), side, bounded))
    n_regions = len(heap)
    known = max(value for value, _ in found)
    while -heap[0][0] > known * (1 + tol) and n_regions + 2 <= max_regions and heap[0][3].branch is not None:
        upper, _, side, region = heapq.heappop(heap)
        for sign in (1, -1):
            signs = region.signs.copy()
            signs[region.branch] = sign
            bounded = relaxations[side].bound(signs, known * (1 + tol))
            found[side] = max(found[side], bounded.candidate, key=lambda pair: pair[0])
            heapq.heappush(heap, (max(upper, -bounded.upper), next(order), side, bounded))
        known, n_regions = max(known, found[side][0]), n_regions + 2
    return -heap[0][0], found, n_regions


def deep_escape_bound(X, gradient, *, tol=1e-2, max_regions=2000, random_state=None):
    """Upper bound of ``-<G, f(X)>`` over bias-free ReLU networks f of every depth and width, layers of norm one.

    Parameters
    ----------
    X : array-like of shape (n, D)
        Inputs.
    gradient : array-like of shape (n,)
        G, the loss's gradient with respect to a single output.
    tol, max_regions, random_state
        Of `fastest_shallow_escape`.

    Returns
    -------
    float
        At least the speed of depth two, which every deeper network reaches. If both agree, depth makes no escape
        faster.

    Raises
    ------
    ValueError
        If the inputs are not finite, or do not match the gradient.

    Notes
    -----
    Let ``g = -w_L G`` for either sign of w_L. The pre-activations of the last hidden unit lie in the convex hull of
    ``+- relu(h)`` for those h that one layer less reaches. Replacing ``relu(h_j)`` by ``sigma h_j`` in the terms with
    ``g_j < 0`` raises the speed and makes it convex, so that it is largest at an extreme point. It is then at most the
    larger of two speeds with one layer less: of the gradient whose negative entries are multiplied by sigma, and of
    these entries alone, with positive sign. Repeated with sigma = 1, both are speeds of depth two, whatever the depth.
    The bound is the smallest over sigma in [0, 1]. It is tight if the negative entries alone are not faster.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skident.saddle import deep_escape_bound, fastest_shallow_escape
    >>> X, y = load_iris(return_X_y=True)
    >>> G = (y == 2) / 150 - 1 / 3 / 150
    >>> speed = fastest_shallow_escape(X - X.mean(axis=0), G, random_state=0).speed
    >>> print(round(deep_escape_bound(X - X.mean(axis=0), G, random_state=0) / speed, 3))
    1.0
    """
    shallow = fastest_shallow_escape(X, gradient, tol=tol, max_regions=max_regions, random_state=random_state)
    X, G = np.asarray(X, dtype=np.float64), np.asarray(gradient, dtype=np.float64)
    norms = np.linalg.norm(X, axis=1)
    scale = float(norms.max() * np.abs(G).max())
    if scale == 0:
        return 0.0
    used = (norms > 0) & (G != 0)
    U, g = X[used] / norms.max(), G[used] / np.abs(G).max()
    known = shallow.upper_bound / scale
    return scale * max(known, *(_side(U, -top * g, known) for top in (1.0, -1.0)))


def _side(X, g, known):
    """The bound of all depths for one sign of the last weight; values up to the known speed of depth two are alike."""
    losses = np.maximum(-g, 0.0)
    alone = _upper(X, losses, known)
    if alone <= known:
        return alone
    low, high, best = known / alone, 1.0, np.inf
    share = low
    for _ in range(MANY_ROUNDS):
        both = _upper(X, np.where(g > 0, g, share * g), known)
        best = min(best, max(both, share * alone))
        if best <= known:
            break
        low, high = (share, high) if both > share * alone else (low, share)
        share = (low + high) / 2
    return best


def _upper(X, g, target):
    """Upper bound of depth two with weight one, without a split."""
    return Relaxation(X, g).bound(np.zeros(len(g), dtype=np.int8), target).upper
