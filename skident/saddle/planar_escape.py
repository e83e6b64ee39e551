"""The fastest escape of a depth-three ReLU network with planar inputs, exactly by linear programs; small data only."""

from dataclasses import dataclass
from itertools import compress, product

import numpy as np
from scipy.optimize import linprog

from skident.budget.constants import CONSTANT_TOL

_HIGHS_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}  # the least HiGHS takes
_MAX_COLUMN_ROUNDS = 100  # of column generation (budget)


@dataclass(frozen=True)
class PlanarEscape:
    """The fastest escape of a depth-three network with one top unit, with an upper bound.

    Attributes
    ----------
    speed : float
        ``-<G, f(X)>`` of the weights.
    upper_bound : float
        No network of this kind, of any width, is faster: the dual value of the programs.
    weights : list of ndarray (2, m), (m, 1), (1, 1)
        ``f(X) = relu(relu(X W_1) W_2) W_3``, each layer of norm one.
    n_programs : int
        Linear programs solved.
    """

    speed: float
    upper_bound: float
    weights: list
    n_programs: int


def fastest_planar_escape(X, gradient, *, tol=1e-9, max_subsets=4096):
    """Maximize ``-<G, w_3 relu(relu(X W_1) w_2)>`` over layers of norm one and any number of first-layer units.

    Parameters
    ----------
    X : array-like of shape (n, 2)
        Inputs in the plane.
    gradient : array-like of shape (n,)
        G, the loss's gradient with respect to a single output.
    tol : float, default=1e-9
        Absolute error of the speed, relative to the largest norm of an input times the largest entry of G.
    max_subsets : int, default=4096
        Raise ValueError if more subsets than this would have to be tried.

    Returns
    -------
    PlanarEscape

    Raises
    ------
    ValueError
        If the inputs are not finite, not planar, do not match the gradient, or if there are too many subsets.
    RuntimeError
        If a linear program is not solved.

    Notes
    -----
    With ``g = -w_3 G`` for both signs of w_3, the speed is ``sum_j g_j relu(h(x_j))``. The pre-activations h of the top
    unit are the combinations ``sum_k c_k relu(w_k . x)`` with unit vectors w_k and ``sum |c_k| <= 1``. Samples with
    ``g_j < 0`` enter as a concave function of h. Those with ``g_j > 0`` do once it is fixed on which of them the unit
    is active, so one linear program per subset gives the maximum. Its columns, the units w_k, are generated: the next
    one maximizes ``|lambda . relu(X w)|`` for the program's multipliers lambda, which in the plane is solved exactly,
    arc by arc. That value is also an upper bound, which eliminates most subsets at once.

    Cost: up to ``2^p + 2^q`` times a few linear programs of about n rows, for p and q samples of either sign; 0.3 s at
    n = 8, 1 s at n = 12. Source: Example 1 of Bantzis, Simon, Jacot (2025), whose rank-two point this proves to be the
    fastest of its kind.

    Examples
    --------
    >>> from skident.datasets import make_alternating_circle
    >>> from skident.saddle import fastest_planar_escape
    >>> print(round(fastest_planar_escape(*make_alternating_circle(6)).speed, 6))
    0.464102
    """
    X, G = _checked(X, gradient, max_subsets)
    norms = np.linalg.norm(X, axis=1)
    # Largest norm and largest entry one: the solver's tolerances are absolute.
    scale = float(norms.max(initial=0.0) * np.abs(G).max(initial=0.0))
    if scale == 0:
        return PlanarEscape(0.0, 0.0, _weights(np.zeros(0), np.zeros((0, 2)), -1.0), 0)
    U, units, bound, n_programs = X / norms.max(), _candidates(X, G), 0.0, 0
    fastest, weights = 0.0, _weights(np.zeros(0), np.zeros((0, 2)), -1.0)
    for top in (-1.0, 1.0):
        g = -top * G / np.abs(G).max()
        for active in _subsets(g > 0):
            value, upper, c, units, n = _solve_subset(U, g, active, units, fastest, tol)
            n_programs, bound = n_programs + n, max(bound, upper)
            if value > fastest:
                fastest, weights = value, _weights(c, units, top)
    speed = -float(G @ (np.maximum(np.maximum(X @ weights[0], 0) @ weights[1], 0) @ weights[2])[:, 0])
    return PlanarEscape(speed, bound * scale, weights, n_programs)


def _checked(X, gradient, max_subsets):
    """Inputs (n, 2) and gradient (n,) as arrays; ValueError if there are too many subsets."""
    X, G = np.asarray(X, dtype=np.float64), np.asarray(gradient, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != 2 or G.shape != (len(X),) or not (np.isfinite(X).all() and np.isfinite(G).all()):
        raise ValueError(
            "the program takes finite inputs (n, 2) in the plane and a gradient (n,), "
            f"got shapes {X.shape} and {G.shape}."
        )
    n_subsets = 2.0 ** np.sum(G > 0) + 2.0 ** np.sum(G < 0)
    if n_subsets > max_subsets:
        raise ValueError(
            f"{np.sum(G > 0)} rows of positive and {np.sum(G < 0)} of negative gradient make {n_subsets:.0f} linear "
            f"programs, more than max_subsets={max_subsets}; take fewer rows."
        )
    return X, G


def _subsets(positive):
    """Masks of all nonempty subsets of the marked samples, the whole first."""
    for counted in product((True, False), repeat=int(np.sum(positive))):
        active = np.zeros(len(positive), dtype=bool)
        active[list(compress(np.flatnonzero(positive), counted))] = True
        if active.any():
            yield active


def _solve_subset(X, g, active, units, known, tol):
    """One subset's maximum by column generation, stopped once it cannot exceed the known speed.

    Returns the value, its upper bound (the known speed if stopped), the coefficients of the first units, all units, and
    the number of programs.
    """
    for n in range(1, _MAX_COLUMN_ROUNDS + 1):
        value, c, multipliers = _restricted(np.maximum(X @ units.T, 0.0), g, active)
        candidates = _candidates(X, multipliers)
        prices = np.abs(multipliers @ np.maximum(X @ candidates.T, 0.0))
        upper = float(prices.max())
        if upper <= max(known, value) + tol:
            return value, max(known, value) + tol, c, units, n
        new = candidates[prices > max(value + tol, 0.5 * (value + upper))]
        units = np.vstack([units, np.unique(new, axis=0)])
    return value, upper, c, units, n


def _restricted(atoms, g, active):
    """The program over given atoms (n, K): value, coefficients (K,), multipliers lambda (n,) of h(x_j)."""
    negative = np.flatnonzero(g < 0)
    K = atoms.shape[1]
    objective = np.concatenate([-(g[active] @ atoms[active]), g[active] @ atoms[active], -g[negative]])
    # h_j - xi_j <= 0 where a positive h_j costs, and sum |c_k| <= 1.
    rows = np.hstack([atoms[negative], -atoms[negative], -np.eye(len(negative))])
    rows = np.vstack([rows, np.concatenate([np.ones(2 * K), np.zeros(len(negative))])])
    right = np.append(np.zeros(len(negative)), 1.0)
    solved = linprog(objective, A_ub=rows, b_ub=right, method="highs", options=_HIGHS_OPTIONS)
    if solved.status != 0:
        raise RuntimeError(f"the linear program of an escape was not solved: {solved.message}")
    multipliers = np.where(active, g, 0.0)
    multipliers[negative] = np.clip(solved.ineqlin.marginals[:-1], g[negative], 0.0)
    return -float(solved.fun), solved.x[:K] - solved.x[K : 2 * K], multipliers


def _candidates(X, multipliers):
    """Unit vectors (K, 2) that include the maximizers of ``|sum_j lambda_j relu(x_j . w)|`` over the circle.

    Between two activation boundaries the sum is linear in w, so its maximum is at one of the two ends, or in the
    direction of its coefficients if that lies between them.
    """
    rows = X[np.linalg.norm(X, axis=1) > 0]
    angles = np.arctan2(rows[:, 1], rows[:, 0]) + np.pi / 2
    ends = np.unique(np.concatenate([angles, angles + np.pi]) % (2 * np.pi))
    middles = ends + np.diff(np.append(ends, ends[0] + 2 * np.pi)) / 2
    middles = np.column_stack([np.cos(middles), np.sin(middles)])
    linear = ((middles @ X.T > 0) * multipliers) @ X
    norms = np.linalg.norm(linear, axis=1, keepdims=True)
    linear = (linear / np.where(norms > 0, norms, 1.0))[norms[:, 0] > 0]
    return np.vstack([np.column_stack([np.cos(ends), np.sin(ends)]), linear, -linear])


def _weights(c, units, top):
    """Layers of norm one: a unit's coefficient is split evenly between its incoming and outgoing weights."""
    used = np.abs(c) > CONSTANT_TOL
    c, units = c[used], units[: len(used)][used]
    shares = np.sqrt(np.abs(c) / max(np.abs(c).sum(), np.finfo(float).tiny))
    return [(units * shares[:, None]).T, (np.sign(c) * shares)[:, None], np.array([[top]])]
