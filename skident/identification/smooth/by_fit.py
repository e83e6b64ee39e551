"""The second layer by growing and pruning a fit, if there are too few inputs for faces, or outputs have errors."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from skident.budget import memory_allows
from skident.budget.constants import WIDE_OUTPUTS
from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.fitting.grow_and_prune import GrowPruneLimits, grow_and_prune, prune_within_tolerance
from skident.fitting.wide_layer import bytes_of_wide_fit, fit_wide_layer
from skident.linalg import lapack
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ..constants import FEW_OUTPUTS
from .cube import RecoveredNetwork, preactivations_of

__all__ = [
    "FitDesign",
    "fit_design",
    "query_where_few_units_are_free",
    "recover_by_fit",
    "wide_fit_design",
]

_OUTPUTS_PER_PARAMETER = 3.5  # overdetermined, so that a wrong minimum shows
_MORE_QUERIES = 30  # in addition, for the smallest networks
_MAX_PARAMETERS = 700  # beyond, a step takes seconds
_MAX_WIDE_PARAMETERS = 12_000  # budget: a step takes 20 s
_MIN_DISTANCE = 0.3  # of random points from the center, in units of 1 / (typical weight norm): near the center
_MAX_DISTANCE = 1e3  # same: nearly all units are saturated there
_NOISY_MAX_DISTANCE = 100.0  # same with noise, of which binary rounding grows with the distance
_CENTER_RANK_TOL = 1e-2  # of the first layer's weights, for the point where pre-activations are smallest
_MAX_OUTPUT = 0.99  # of units that are made free
_WORK = 1.2e7  # budget: cycles times squared number of parameters
_MIN_CYCLES = 60  # budget of growing and pruning, for the largest fits
_MAX_CYCLES = 600  # budget of growing and pruning, for the smallest fits
_CYCLES_PER_START = 12  # of growing and pruning before a new random start
_POLISHABLE = 1e-6  # relative, of the outputs: from there on the polish converges
_MAX_NOISES = 3.0  # same with noise, in units of what the noise leaves of a perfect fit: rounded inputs add to it


@dataclass(frozen=True)
class FitDesign:
    """Number of queries, budget of cycles of growing and pruning, and the second layer's width they are for.

    A `wide` fit has no cycles: so many units are fitted at once, then reduced.
    """

    n_queries: int
    n_cycles: int
    n_units: int
    wide: bool = False

    def with_starts(self, n_starts):
        """The same with at most so many random starts; None is no limit."""
        return self if n_starts is None else replace(self, n_cycles=min(self.n_cycles, _CYCLES_PER_START * n_starts))


def fit_design(n_inputs, widths):
    """The design for widths ``(m_1, m_2, m_L)``; None if a fit would be too slow."""
    m_1, m_2, m_L = widths
    n_parameters = m_1 + (m_1 + 1) * m_2 + (m_2 + 1) * m_L
    if n_inputs < 2 or n_parameters > _MAX_PARAMETERS:
        return None
    n_cycles = int(np.clip(_WORK / n_parameters**2, _MIN_CYCLES, _MAX_CYCLES))
    return FitDesign(int(_OUTPUTS_PER_PARAMETER * n_parameters / m_L) + _MORE_QUERIES, n_cycles, m_2)


def wide_fit_design(n_inputs, widths):
    """The design of a wide fit for ``(m_1, m, m_L)``, m units being fitted; None if it is too slow or large."""
    m_1, m, m_L = widths
    n_parameters = 2 * m_1 + (m_1 + 1) * m + (m + 1) * m_L
    if n_inputs < 2 or m_L < FEW_OUTPUTS or n_parameters > _MAX_WIDE_PARAMETERS:
        return None
    if not memory_allows(bytes_of_wide_fit(n_parameters)):
        return None
    return FitDesign(int(WIDE_OUTPUTS * n_parameters / m_L) + _MORE_QUERIES, 0, m, wide=True)


def query_where_few_units_are_free(cube, n):
    """Points (n, D) where zero, one, two, ... up to D units are free, and outputs (n, m_L) there.

    A random point, its distance log-uniform, is moved by the least change that gives k random units outputs uniform in
    (-.99, .99): a vertex of the cube of first-layer outputs for k = 0, an edge for 1, a face for 2. Such points alone
    determine the parameters a thousand times better than points near the center.
    """
    (D, m), rng = cube.shape, cube.rng
    farthest = _MAX_DISTANCE if cube.accuracy is None else _NOISY_MAX_DISTANCE
    length_scale = 1.0 / np.median(np.linalg.norm(cube.weights, axis=0))
    center = -lapack.lstsq(cube.weights.T, cube.biases, rcond=_CENTER_RANK_TOL)[0]
    X = rng.standard_normal((n, D)) * length_scale
    X = X * np.exp(rng.uniform(np.log(_MIN_DISTANCE), np.log(farthest), (n, 1))) + center
    for i in range(n):
        free = rng.permutation(m)[: i % (min(D, m) + 1)]
        wanted = preactivations_of(cube.g, rng.uniform(-_MAX_OUTPUT, _MAX_OUTPUT, len(free)))
        W = cube.weights[:, free]
        moved = X[i] + lapack.lstsq(W.T, wanted - cube.biases[free] - X[i] @ W, rcond=None)[0]
        if np.linalg.norm(moved) < cube.farthest:
            X[i] = moved
    X = cube.representable(X)
    return X, cube.query(X)


def recover_by_fit(cube, design, n_units, *, deadline=np.inf, progress=None):
    """The network behind a cube, if that is one hidden layer of `n_units` and a linear output, from random starts.

    Biases and weight norms of the first layer are fitted along. Without `n_units`, a layer as wide as that of the
    design is fitted, and its redundant units are removed. No step is made after the `deadline` of `time.perf_counter`;
    ``progress(n)`` is called with the number of cycles.
    """
    X, Y = query_where_few_units_are_free(cube, design.n_queries)
    Z = X @ cube.weights + cube.biases
    problem = DownstreamOfKnownUnits(Z, Y, cube.g, norms_free=True)
    limits = _limits(cube, design, X, Y, deadline, progress)
    start = np.zeros(cube.shape[1])
    width = design.n_units if n_units is None else n_units
    if design.wide:
        (params, residual), n_cycles = fit_wide_layer(problem, start, n_units, design.n_units, cube.rng, limits), 1
    else:
        params, residual, n_cycles = grow_and_prune(problem, problem, start, width, cube.rng, limits)
    if not residual < max(limits.tol, _POLISHABLE):
        late = ", when its share of max_seconds was over" if time.perf_counter() >= deadline else ""
        raise NotIdentified(
            "second layer",
            "residual",
            f"growing and pruning left {residual:.1e} of the outputs unexplained after {n_cycles} cycles{late}",
        )
    if n_units is None and not design.wide:
        params = prune_within_tolerance(problem, params, cube.rng, limits)
    return RecoveredNetwork(_network(cube, problem, params), residual, {"cycles": n_cycles})


def _limits(cube, design, X, Y, deadline, progress):
    """Limits of growing and pruning on outputs Y (n, m_L) at X (n, D)."""
    n_starts = -(-design.n_cycles // _CYCLES_PER_START)
    limits = GrowPruneLimits(n_starts, design.n_cycles, deadline=deadline, progress=progress)
    if cube.accuracy is None:
        return limits
    noise = cube.accuracy.std_of(X, Y) / np.maximum(Y.std(axis=0), np.finfo(float).tiny)
    tol = _MAX_NOISES * float(np.sqrt(np.mean(noise**2)))
    return replace(limits, tol=tol, target=tol)


def _network(cube, problem, params):
    """The whole network, given the parameters of a fit of what follows the first layer."""
    corrections, factors, W, V = problem.split(params)
    weights = [cube.weights * factors, W[:-1], V[:-1] * problem.scale]
    biases = [cube.biases * factors + corrections, W[-1], V[-1] * problem.scale + problem.offset]
    return FeedforwardNetwork(weights, biases, cube.g.name)
