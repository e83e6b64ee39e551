"""Network completion from several starts, in standardised features and answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.linalg import column_units
from skident.optim import best_of
from skident.oracle import NotIdentified

from .ridge_units import fit_ridge_units
from .scales_and_shifts import solve_completion

__all__ = ["Completed", "best_completion", "completion_starts"]

# A start whose relative misfit ends below this has found the right valley. Entangled weights of deeper networks are
# approximate, so their best misfit is of the order of their error; one hidden layer's directions are exact.
_GOOD_MISFIT, _GOOD_RIDGE_MISFIT = 1e-2, 1e-6


@dataclass(frozen=True)
class Completed:
    """A solution of eq. (18).

    Attributes
    ----------
    weights : list of ndarray of shape (m_{l-1}, m_l)
        On the first block of features, the first one diagonal.
    biases : list of ndarray of shape (m_l,)
    history : list of float
        Of the objective, step by step.
    n_iter : int
    stopped : bool
        Whether the steps ran out before anything else ended the search.
    misfit : float or None
        Relative root mean square misfit at the end, where it was measured, in the units of the search.
    """

    weights: list[np.ndarray]
    biases: list[np.ndarray]
    history: list[float]
    n_iter: int
    stopped: bool = False
    misfit: float | None = None


def _is_ridge(problem):
    """Whether the outputs are free linear combinations of one hidden layer: then variable projection solves it."""
    return problem.free_readout and len(problem.widths) == 2 and problem.activations[-1].name == "identity"


def completion_starts(problem, blocks, given, n_starts, rng):
    """Where Levenberg-Marquardt starts, one after another.

    The given start, or else ``T = R = 1, tau = 0`` (but for variable projection); then pre-activations centred and of
    standard deviation 1 (for variable projection 0.5); then the same with random scales.

    Parameters
    ----------
    problem : CompletionProblem
    blocks : list of ndarray of shape (n, m_l)
        Features, layer by layer.
    given : tuple of two ndarray of shape (m_1,) or None
        First-layer scales and shifts.
    n_starts : int
    rng : numpy.random.RandomState

    Yields
    ------
    scales, shifts : ndarray of shape (m_1,)
        Of the first layer, for the features as they are.
    units : list of ndarray of shape (m_l,) or None
        What every block's units are worth; None is all ones.
    """
    m, ridge = problem.widths[0], _is_ridge(problem)
    if given is not None:
        yield *given, None
    elif not ridge:
        yield np.ones(m), np.zeros(m), None
    stds = [column_units(Z)[1] for Z in blocks]
    for k in range(n_starts - (given is not None or not ridge)):
        scales = (0.5 if ridge else 1.0) / stds[0] * (1.0 if k == 0 else np.exp(rng.standard_normal(m)))
        yield scales, -scales * blocks[0].mean(axis=0), [1.0 / scales, *stds[1:]]


def best_completion(problem, Z, Y, starts, *, max_iter, tol, log):
    """Scales and shifts by Levenberg-Marquardt from several starts, until one ends with a small misfit.

    Parameters
    ----------
    problem : CompletionProblem
    Z : ndarray of shape (n, m_1)
        First block of features.
    Y : ndarray of shape (n, m_L)
    starts : iterable
        As `completion_starts` gives them.
    max_iter : int
        Steps a start.
    tol : float
        Relative root mean square misfit at which a start stops.
    log : StageLog
        Says how every start ended.

    Returns
    -------
    Completed
        In features and answers as they are.

    Raises
    ------
    ValueError
        If no start gives finite answers.

    Notes
    -----
    One hidden layer below a free linear readout is solved by `fit_ridge_units`, all else by `solve_completion`; a
    relative misfit below 1e-6 and 1e-2 is small.
    """
    units = _Units.of(problem, Z, Y)
    U, V = units.standardised(Z, Y)
    total = max(np.sum(V**2), np.finfo(float).tiny)
    good = max(_GOOD_RIDGE_MISFIT if _is_ridge(problem) else _GOOD_MISFIT, 2.0 * tol)

    def solutions():
        for scales, shifts, worth in starts:
            start = scales * units.std, shifts + scales * units.mean, worth
            weights, biases, result = _solution(problem, U, V, start, max_iter, tol)
            log.say(f"{result.n_iter} steps, relative misfit {np.sqrt(result.cost / total):.2e}")
            yield weights, biases, result

    (weights, biases, result), _ = best_of(
        solutions(),
        cost=lambda solution: solution[2].cost,
        enough=lambda costs: np.sqrt(costs[-1] / total) < good,
    )
    if not np.isfinite(result.cost):
        raise NotIdentified("completion", "diverged", "no start gives finite answers; scale the features.")
    misfit, stopped = float(np.sqrt(result.cost / total)), result.status == "max_iter" and result.n_iter >= max_iter
    return Completed(*units.undone(weights, biases), result.history, max(1, result.n_iter), stopped, misfit)


def _solution(problem, U, V, start, max_iter, tol):
    """Weights, shifts and the solver's result."""
    scales, shifts, worth = start
    if _is_ridge(problem):
        g = problem.activations[0]
        network, result = fit_ridge_units(U, V, g, scales, shifts, max_iter=max_iter, tol=tol)
        return network.weights, network.biases, result
    omega = problem.with_readout(problem.initial(scales, shifts, worth), U, V)
    result = solve_completion(problem, U, V, omega, max_iter=max_iter, tol=tol)
    return *problem.layers(result.x), result


@dataclass(frozen=True)
class _Units:
    """Mean and unit of every feature of the first block, and of every answer."""

    mean: np.ndarray
    std: np.ndarray
    offset: np.ndarray
    unit: np.ndarray

    @classmethod
    def of(cls, problem, Z, Y):
        # A linear last layer takes any offset and unit on, but starts look for answers of order one.
        linear = problem.activations[-1].name == "identity"
        return cls(*column_units(Z), *(column_units(Y) if linear else (0.0, 1.0)))

    def standardised(self, Z, Y):
        return (Z - self.mean) / self.std, (Y - self.offset) / self.unit

    def undone(self, weights, biases):
        """Weights and shifts of the network on features and answers as they are."""
        first = weights[0] / self.std[:, None]
        weights, biases = [first, *weights[1:]], [biases[0] - self.mean @ first, *biases[1:]]
        return [*weights[:-1], weights[-1] * self.unit], [*biases[:-1], biases[-1] * self.unit + self.offset]
