"""A hidden layer found by growing and pruning in turn: units that the residual asks for replace those that do least."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skident.optim import levenberg_marquardt, one_blas_thread

__all__ = ["Growing", "grow_and_prune"]

_CANDIDATES = 400
_SIZES = (0.3, 3.0)  # of candidates' weights, beside those of a unit pre-activation
_LARGEST = 2.0  # times the largest output weight: that of a new unit at most
_PART = 5.0  # one unit in so many is replaced in a cycle
_STEPS = (20, 8, 60)  # of a fit after growth, between removals, and at the width wanted
_PATIENCE, _GAIN = 8, 0.5  # a fit ends where so many steps do not lower the cost to this part
_BETTER = 0.999  # part of the cost that a cycle has to leave at most
_IN_TURN = 3  # failures after which it is no more the cheapest unit that goes
_GIVEN_UP = 12  # failures after which another start is made
_LEAST = 1e-10  # of the largest diagonal entry of Gauss-Newton matrices
_CLOSE = 1e-4  # misfit from which lengths of known units are fitted too


@dataclass(frozen=True)
class Growing:
    """How long to go on, and what is looked for.

    Attributes
    ----------
    n_starts : int
        Random starts at most.
    n_cycles : int
        Cycles at most, those of all starts.
    deadline : float
        No step is made after this time, of `time.perf_counter`.
    tol : float
        Relative root mean square misfit that counts as found.
    progress : callable or None
        ``progress(n)`` with the number of cycles done.
    """

    n_starts: int = 6
    n_cycles: int = 150
    deadline: float = np.inf
    tol: float = 1e-9
    progress: Callable | None = None

    @property
    def late(self):
        """Whether no further step may be made."""
        return time.perf_counter() >= self.deadline


def grow_and_prune(problem, closer, shifts, n_units, rng, growing=None):
    """Parameters of one hidden layer of given width through given answers, from random starts.

    Parameters
    ----------
    problem : BehindKnownUnits
    closer : BehindKnownUnits
        With more parameters free, for when the answers are nearly explained.
    shifts : ndarray of shape (m_1,)
        Of the known units, as first guessed.
    n_units : int
    rng : numpy.random.RandomState
    growing : Growing, default=None

    Returns
    -------
    theta : ndarray of shape (P,)
        See `BehindKnownUnits`.
    misfit : float
        Relative root mean square, of `closer`.
    n_cycles : int

    Notes
    -----
    Least squares at the true width ends in local minima where two units share one true unit, and one stands for two. A
    cycle adds units, fits, removes as many, and fits again; it is taken back where that did not help. The units added
    are, of 400 random ones, those that lower the cost most when all other parameters follow to first order: with the
    residual r, the Jacobian J and a unit's outputs u, the largest ``(r.u')^2 / |u'|^2`` with ``u' = u - J J^+ u``. The
    units removed are those whose loss costs least in the same sense, which is a least squares problem with their
    parameters held. After failures both are drawn rather than best. A start of (12, 12, 1) takes some ten cycles, about
    a second; a step costs ``O(n m_L P^2)``.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.fitting.downstream_of_known_units import BehindKnownUnits
    >>> from skident.fitting.grow_and_prune import grow_and_prune
    >>> from skident.network import get_activation
    >>> rng, g = np.random.RandomState(0), get_activation("tanh")
    >>> Z, W = 2.0 * rng.standard_normal((200, 4)), rng.standard_normal((4, 3))
    >>> Y = np.tanh(np.tanh(Z) @ W) @ np.ones((3, 1))
    >>> fixed, free = (BehindKnownUnits(Z, Y, g, lengths_free=free) for free in (False, True))
    >>> _, misfit, _ = grow_and_prune(fixed, free, np.zeros(4), 3, rng)
    >>> print(misfit < 1e-9)
    True
    """
    growing = Growing() if growing is None else growing
    best, least, done = None, np.inf, 0
    with one_blas_thread():
        for _ in range(growing.n_starts):
            theta = problem.start(shifts, n_units, rng)
            theta, misfit, done = _from_start(problem, closer, theta, n_units, rng, growing, done)
            if best is None or misfit < least:
                best, least = theta, misfit
            if least < growing.tol or done >= growing.n_cycles or growing.late:
                break
    return best, least, done


def _from_start(problem, closer, theta, n_units, rng, growing, done):
    """Cycles from one start until found, or in vain: parameters, misfit, and the number of all cycles."""
    theta, cost = _fit(problem, theta, _STEPS[-1], growing)
    theta, misfit = _finished(closer, theta, cost, growing)
    failures = 0
    while misfit > growing.tol and failures <= _GIVEN_UP and done < growing.n_cycles and not growing.late:
        done += 1
        new, new_cost = _cycle(problem, theta, n_units, rng, growing, failures)
        failures += 1
        if new_cost < _BETTER * cost:
            failures, cost = 0, new_cost
            theta, misfit = _finished(closer, new, cost, growing)
        if growing.progress is not None:
            growing.progress(done)
    return theta, misfit, done


def _finished(closer, theta, cost, growing):
    """Parameters and misfit, with what more may be free where the answers are nearly explained."""
    if cost < _CLOSE**2 * closer.total:
        freed, less = _fit(closer, theta, _STEPS[-1], growing)
        if less < growing.tol**2 * closer.total:
            theta, cost = freed, less
    return theta, float(np.sqrt(cost / closer.total))


def _cycle(problem, theta, n_units, rng, growing, failures):
    """Units more and as many less, with fits in between: parameters and cost."""
    n_more = max(1, round(n_units / _PART))
    theta, cost = _fit(problem, _grown(problem, theta, n_more, rng, failures), _STEPS[0], growing)
    for left in range(n_more - 1, -1, -1):
        costs = _removal_costs(problem, theta)
        rank = int(rng.exponential(0.4)) if failures >= _IN_TURN else 0
        theta = _without(problem, theta, np.argsort(costs)[min(rank, len(costs) - 1)])
        theta, cost = _fit(problem, theta, _STEPS[1 if left else 2], growing)
    return theta, cost


def _fit(problem, theta, n_steps, growing):
    """A few steps of Levenberg-Marquardt: parameters and cost."""
    costs = []

    def stop(_, cost):
        costs.append(cost)
        slow = len(costs) > _PATIENCE and cost > _GAIN * costs[-1 - _PATIENCE]
        return slow or growing.late

    options = {"target": (1e-3 * growing.tol) ** 2 * problem.total, "ftol": 1e-2, "callback": stop}
    result = levenberg_marquardt(problem.cost, problem.linearise, theta, max_iter=n_steps, **options)
    return result.x, result.cost


def _regular(A, part):
    """A Gauss-Newton matrix with a part of its diagonal added."""
    diagonal = np.maximum(np.diag(A), _LEAST * np.diag(A).max())
    A.flat[:: len(A) + 1] += part * diagonal
    return A


def _grown(problem, theta, n_more, rng, temperature):
    """More units, the best of random ones or, where that was in vain, nearly the best."""
    J, A, _ = problem.normal_equations(theta)
    factor = scipy.linalg.cho_factor(_regular(A, 1e-6), lower=True, overwrite_a=True, check_finite=False)
    shifts, stretch, W, V = problem.parts(theta)
    r, (n, m_L) = problem.residual(theta).ravel(), problem.Y.shape
    sizes = np.exp(rng.uniform(*np.log(_SIZES), _CANDIDATES)) / np.sqrt(len(W))
    C = rng.standard_normal((len(W), _CANDIDATES)) * sizes
    U = problem.activation(problem.features(theta) @ C)
    columns = np.einsum("nk,pq->npqk", U, np.eye(m_L)).reshape(n * m_L, -1)
    columns -= J @ scipy.linalg.cho_solve(factor, J.T @ columns, check_finite=False)
    columns = columns.reshape(n * m_L, m_L, _CANDIDATES)
    largest = _LARGEST * np.abs(V[:-1]).max()
    for _ in range(n_more):
        squares = np.maximum(np.sum(columns**2, axis=0), 1e-20 * n)
        overlaps = np.einsum("n,npk->pk", r, columns)
        order = np.argsort(-np.sum(overlaps**2 / squares, axis=0))
        k = order[min(int(rng.exponential(temperature)) if temperature else 0, _CANDIDATES - 1)]
        W = np.column_stack([W, C[:, k]])
        V = np.vstack([V[:-1], np.clip(-overlaps[:, k] / squares[:, k], -largest, largest), V[-1:]])
        Q = np.linalg.qr(columns[:, :, k])[0]
        r = r - Q @ (Q.T @ r)
        columns = columns - np.einsum("nq,qpk->npk", Q, np.einsum("nq,npk->qpk", Q, columns))
    return problem.joined(shifts, stretch, W, V)


def _removal_costs(problem, theta):
    """The cost without each hidden unit, all other parameters following to first order, (m,)."""
    J, A, _ = problem.normal_equations(theta)
    A = _regular(A, 1e-7)
    inverse, r = np.linalg.inv(A), problem.residual(theta)
    _, _, W, V = problem.parts(theta)
    G, costs = problem.activation(problem.features(theta) @ W), []
    for k, held in enumerate(problem.unit_places(theta)):
        left = (r - G[:, k, None] * V[k]).ravel()
        g = J.T @ left
        step = -inverse @ g
        step -= inverse[:, held] @ np.linalg.solve(inverse[np.ix_(held, held)], step[held])
        costs.append(left @ left + 2.0 * g @ step + step @ A @ step)
    return np.array(costs)


def _without(problem, theta, k):
    """One hidden unit less."""
    shifts, stretch, W, V = problem.parts(theta)
    return problem.joined(shifts, stretch, np.delete(W, k, axis=1), np.delete(V, k, axis=0))
