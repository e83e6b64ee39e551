"""The second layer by growing and pruning, where there are too few inputs for linear algebra on patches."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.fitting.grow_and_prune import GrowPruneLimits, grow_and_prune
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from .assembling import RecoveredNetwork, preactivations_of

__all__ = ["FitDesign", "query_where_few_units_are_free", "recover_by_fit", "fit_design"]

_ANSWERS, _MORE = 3.5, 30  # a parameter, and how many more
_MOST_PARAMETERS = 700  # of a fit whose steps take seconds beyond
_DISTANCES = (0.3, 1e3)  # of random rows from the centre, where a typical unit's pre-activation is 1
_OUTPUTS = 0.99  # of units that move, at most
_WORK, _CYCLES, _A_START = 1.2e7, (60, 600), 12  # cycles times squared parameters, cycles, and those of a start
_FOUND = 1e-6  # misfit of the answers that the polish can mend


@dataclass(frozen=True)
class FitDesign:
    """A fit of the second layer alone, downstream a first one that is known up to shifts.

    Attributes
    ----------
    n_queries : int
        Rows to ask.
    n_cycles : int
        Of growing and pruning, at most: more where they are quick.
    """

    n_queries: int
    n_cycles: int

    def with_starts(self, n_starts):
        """The same with so many random starts at most.

        Parameters
        ----------
        n_starts : int or None
            None is no limit.

        Returns
        -------
        FitDesign
        """
        return self if n_starts is None else replace(self, n_cycles=min(self.n_cycles, _A_START * n_starts))


def fit_design(n_inputs, widths):
    """How many rows tell the second layer.

    Parameters
    ----------
    n_inputs : int
        D.
    widths : tuple of int
        ``(m_1, m_2, m_L)``.

    Returns
    -------
    FitDesign or None
        None where a fit would be too slow.
    """
    m_1, m_2, m_L = widths
    n_parameters = m_1 + (m_1 + 1) * m_2 + (m_2 + 1) * m_L
    if n_inputs < 2 or n_parameters > _MOST_PARAMETERS:
        return None
    n_cycles = int(np.clip(_WORK / n_parameters**2, *_CYCLES))
    return FitDesign(int(_ANSWERS * n_parameters / m_L) + _MORE, n_cycles)


def query_where_few_units_are_free(downstream, n):
    """Rows at which none, one, two, ... up to D units move, near the centre and far from it, and their answers.

    Parameters
    ----------
    downstream : Downstream
    n : int

    Returns
    -------
    Z : ndarray of shape (n, m_1)
        Pre-activations as known.
    Y : ndarray of shape (n, m_L)

    Notes
    -----
    A row is drawn in a random direction, its distance log-uniform, and then moved by the least change that gives k
    random units outputs uniform in (-.99, .99): with k = 0 that is a vertex or a point near the centre, with 1 an edge
    and with 2 a face of the cube of first-layer outputs. On such rows alone the parameters are determined a thousand
    times better than near the centre.
    """
    (D, m), rng = downstream.shape, downstream.rng
    unit = 1.0 / np.median(np.linalg.norm(downstream.weights, axis=0))
    middle = -np.linalg.lstsq(downstream.weights.T, downstream.biases, rcond=1e-2)[0]
    U = rng.standard_normal((n, D)) * unit * np.exp(rng.uniform(*np.log(_DISTANCES), (n, 1))) + middle
    for row in range(n):
        free = rng.permutation(m)[: row % (min(D, m) + 1)]
        wanted = preactivations_of(downstream.activation, rng.uniform(-_OUTPUTS, _OUTPUTS, len(free)))
        W = downstream.weights[:, free]
        moved = U[row] + np.linalg.lstsq(W.T, wanted - downstream.biases[free] - U[row] @ W, rcond=None)[0]
        if np.linalg.norm(moved) < downstream.farthest:
            U[row] = moved
    return U @ downstream.weights + downstream.biases, downstream.query(U)


def recover_by_fit(downstream, plan, n_units, *, deadline=np.inf, progress=None):
    """All that follows a first layer of known directions, if that is one hidden layer and a linear output.

    Parameters
    ----------
    downstream : Downstream
    plan : FitDesign
    n_units : int
        m_2.
    deadline : float, default=inf
        No step is made after this time, of `time.perf_counter`.
    progress : callable, default=None
        ``progress(n)`` with the number of cycles done.

    Returns
    -------
    RecoveredNetwork

    Raises
    ------
    NotIdentified
        If no start explains the answers, or time is over before.

    Notes
    -----
    With few inputs no patch has as many free units as powers need: with D = 3 two units are free at two sign patterns.
    The answers determine the second layer nevertheless, and `grow_and_prune` finds it from random starts, shifts of the
    first layer along with it, and its lengths at the end: these are good to 1e-8 at first.
    """
    Z, Y = query_where_few_units_are_free(downstream, plan.n_queries)
    g = get_activation(downstream.activation)
    known, freed = (DownstreamOfKnownUnits(Z, Y, g, norms_free=free) for free in (False, True))
    shifts = (
        np.zeros(downstream.shape[1])
        if downstream.theta is None
        else preactivations_of(downstream.activation, downstream.theta)
    )
    growing = GrowPruneLimits(-(-plan.n_cycles // _A_START), plan.n_cycles, deadline=deadline, progress=progress)
    theta, misfit, n_cycles = grow_and_prune(known, freed, shifts, n_units, downstream.rng, growing)
    if not misfit < _FOUND:
        late = ", when its share of max_seconds was over" if time.perf_counter() >= deadline else ""
        raise NotIdentified(
            "second layer",
            "residual",
            f"growing and pruning left {misfit:.1e} of the answers unexplained after {n_cycles} cycles{late}",
        )
    shifts, stretch, W, V = known.split(theta)
    weights = [downstream.weights * stretch, W[:-1], V[:-1] * known.scale]
    biases = [downstream.biases * stretch + shifts, W[-1], V[-1] * known.scale + known.offset]
    network = FeedforwardNetwork(weights, biases, downstream.activation)
    return RecoveredNetwork(network, misfit, {"cycles": n_cycles})
