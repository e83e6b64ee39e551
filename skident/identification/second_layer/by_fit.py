"""The second layer by growing and pruning a fit, if there are too few inputs for linear algebra on patches."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.fitting.grow_and_prune import GrowPruneLimits, grow_and_prune
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from .downstream import RecoveredNetwork, preactivations_of

__all__ = ["FitDesign", "fit_design", "query_where_few_units_are_free", "recover_by_fit"]

_OUTPUTS_PER_PARAMETER = 3.5  # overdetermined, so that a wrong minimum shows
_MORE_QUERIES = 30  # in addition, for the smallest networks
_MAX_PARAMETERS = 700  # beyond, a step takes seconds
_MIN_DISTANCE = 0.3  # of random points from the center, in units of 1 / (typical weight norm): near the center
_MAX_DISTANCE = 1e3  # same: nearly all units are saturated there
_CENTER_RANK_TOL = 1e-2  # of the first layer's weights, for the point where pre-activations are smallest
_MAX_OUTPUT = 0.99  # of units that are made free
_WORK = 1.2e7  # budget: cycles times squared number of parameters
_MIN_CYCLES = 60  # budget of growing and pruning, for the largest fits
_MAX_CYCLES = 600  # budget of growing and pruning, for the smallest fits
_CYCLES_PER_START = 12  # of growing and pruning before a new random start
_MAX_RESIDUAL = 1e-6  # relative, of the outputs: from there on the polish converges


@dataclass(frozen=True)
class FitDesign:
    """Number of queries, and budget of cycles of growing and pruning."""

    n_queries: int
    n_cycles: int

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
    return FitDesign(int(_OUTPUTS_PER_PARAMETER * n_parameters / m_L) + _MORE_QUERIES, n_cycles)


def query_where_few_units_are_free(downstream, n):
    """Pre-activations (n, m_1) and outputs (n, m_L) at points where zero, one, two, ... up to D units are free.

    A random point, its distance log-uniform, is moved by the least change that gives k random units outputs uniform in
    (-.99, .99): a vertex of the cube of first-layer outputs for k = 0, an edge for 1, a face for 2. Such points alone
    determine the parameters a thousand times better than points near the center.
    """
    (D, m), rng = downstream.shape, downstream.rng
    length_scale = 1.0 / np.median(np.linalg.norm(downstream.weights, axis=0))
    center = -np.linalg.lstsq(downstream.weights.T, downstream.biases, rcond=_CENTER_RANK_TOL)[0]
    X = rng.standard_normal((n, D)) * length_scale
    X = X * np.exp(rng.uniform(np.log(_MIN_DISTANCE), np.log(_MAX_DISTANCE), (n, 1))) + center
    for i in range(n):
        free = rng.permutation(m)[: i % (min(D, m) + 1)]
        wanted = preactivations_of(downstream.activation, rng.uniform(-_MAX_OUTPUT, _MAX_OUTPUT, len(free)))
        W = downstream.weights[:, free]
        moved = X[i] + np.linalg.lstsq(W.T, wanted - downstream.biases[free] - X[i] @ W, rcond=None)[0]
        if np.linalg.norm(moved) < downstream.farthest:
            X[i] = moved
    return downstream.preactivations(X), downstream.query(X)


def recover_by_fit(downstream, design, n_units, *, deadline=np.inf, progress=None):
    """The network downstream, if that is one hidden layer of `n_units` and a linear output, from random starts.

    Bias corrections are fitted along, and weight norms at the end: these are accurate to 1e-8 at first. No step is made
    after the `deadline` of `time.perf_counter`; ``progress(n)`` is called with the number of cycles.
    """
    Z, Y = query_where_few_units_are_free(downstream, design.n_queries)
    g = get_activation(downstream.activation)
    norms_fixed, norms_free = (DownstreamOfKnownUnits(Z, Y, g, norms_free=free) for free in (False, True))
    center_outputs = np.zeros(downstream.shape[1]) if downstream.center_outputs is None else downstream.center_outputs
    n_starts = -(-design.n_cycles // _CYCLES_PER_START)
    limits = GrowPruneLimits(n_starts, design.n_cycles, deadline=deadline, progress=progress)
    start = preactivations_of(downstream.activation, center_outputs)
    params, residual, n_cycles = grow_and_prune(norms_fixed, norms_free, start, n_units, downstream.rng, limits)
    if not residual < _MAX_RESIDUAL:
        late = ", when its share of max_seconds was over" if time.perf_counter() >= deadline else ""
        raise NotIdentified(
            "second layer",
            "residual",
            f"growing and pruning left {residual:.1e} of the outputs unexplained after {n_cycles} cycles{late}",
        )
    corrections, factors, W, V = norms_fixed.split(params)
    weights = [downstream.weights * factors, W[:-1], V[:-1] * norms_fixed.scale]
    biases = [downstream.biases * factors + corrections, W[-1], V[-1] * norms_fixed.scale + norms_fixed.offset]
    network = FeedforwardNetwork(weights, biases, downstream.activation)
    return RecoveredNetwork(network, residual, {"cycles": n_cycles})
