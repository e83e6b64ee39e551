"""The second layer by fits, if there are too few inputs for faces, or outputs have errors."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget import memory_allows
from skident.budget.constants import WIDE_OUTPUTS
from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.fitting.pruning import prune_to_smallest
from skident.fitting.wide_layer import WideFitLimits, bytes_of_wide_fit, fit_wide_layer
from skident.linalg import lapack
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ..constants import FEW_OUTPUTS
from .cube import RecoveredNetwork, preactivations_of

_WIDER = 2.0  # units of a fit over those of the second layer: at 1.25, one start in four detects all of 32 units
_MORE_QUERIES = 30  # in addition, for the smallest networks
_MAX_PARAMETERS = 1400  # of fits to one or two outputs, which need several starts: beyond, these take seconds
_MAX_WIDE_PARAMETERS = 12_000  # budget: a step takes 20 s
_WORK = 1.2e7  # budget: starts times squared number of parameters
_MAX_STARTS = 12  # budget of the smallest fits
_MIN_DISTANCE = 0.3  # of random points from the center, in units of 1 / (typical weight norm): near the center
_MAX_DISTANCE = 1e3  # of the farthest of them, at which nearly all units are saturated
_NOISY_MAX_DISTANCE = 100.0  # `_MAX_DISTANCE` with noise, of which binary rounding grows with the distance
_CENTER_RANK_TOL = 1e-2  # of the first layer's weights, for the point where pre-activations are smallest
_MAX_OUTPUT = 0.99  # of units that are made free
_POLISHABLE = 1e-6  # relative, of the outputs: from there on the polish converges
_MAX_NOISES = 3.0  # `_POLISHABLE` with noise, over what that leaves of a perfect fit: rounded inputs add to it


@dataclass(frozen=True)
class FitDesign:
    """Number of queries, units that are fitted at once and then reduced, and random starts."""

    n_queries: int
    n_units: int
    n_starts: int

    def with_starts(self, n_starts):
        """The same with at most so many random starts; None is no limit."""
        return self if n_starts is None else replace(self, n_starts=min(self.n_starts, n_starts))


def fit_design(n_inputs, widths):
    """The design for widths ``(m_1, m_2, m_L)``, m_2 at least; None if a fit would be too slow or large."""
    m_1, m_2, m_L = widths
    m = int(np.ceil(_WIDER * m_2))
    n_parameters = 2 * m_1 + (m_1 + 1) * m + (m + 1) * m_L
    most = _MAX_PARAMETERS if m_L < FEW_OUTPUTS else _MAX_WIDE_PARAMETERS
    if n_inputs < 2 or n_parameters > most or not memory_allows(bytes_of_wide_fit(n_parameters)):
        return None
    n_starts = int(np.clip(_WORK / n_parameters**2, 1, _MAX_STARTS))
    return FitDesign(int(WIDE_OUTPUTS * n_parameters / m_L) + _MORE_QUERIES, m, n_starts)


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

    Biases and weight norms of the first layer are fitted along. Units that are redundant are removed: all but `n_units`
    if that is given. No step is made after the `deadline` of `time.perf_counter`; ``progress(n)`` is called with the
    number of steps of a fit.
    """
    X, Y = query_where_few_units_are_free(cube, design.n_queries)
    problem = DownstreamOfKnownUnits(X @ cube.weights + cube.biases, Y, cube.g)
    limits = _limits(cube, X, Y, deadline, progress)
    good, fits = max(limits.tol, _POLISHABLE), []
    for _ in range(design.n_starts):
        fits.append(fit_wide_layer(problem, n_units, design.n_units, cube.rng, limits))
        if fits[-1][1] < good or limits.late:
            break
    params, residual = min(fits, key=lambda fit: fit[1])
    if not residual < good:
        late = ", when its share of max_seconds was over" if limits.late else ""
        raise NotIdentified(
            "second layer",
            "residual",
            f"fits left {residual:.1e} of the outputs unexplained after {len(fits)} starts{late}",
        )
    network = _network(problem, params)
    if n_units is None and network.n_parameters <= _MAX_PARAMETERS:
        least = (cube.shape[1], 1, cube.n_outputs)
        network, residual = prune_to_smallest(network, problem.Z, Y, least, tol=good, deadline=deadline)
    factors = np.diag(network.weights[0])
    weights = [cube.weights * factors, *network.weights[1:]]
    biases = [cube.biases * factors + network.biases[0], *network.biases[1:]]
    return RecoveredNetwork(network.with_parameters(weights, biases), residual)


def _limits(cube, X, Y, deadline, progress):
    """Limits of fits to outputs Y (n, m_L) at X (n, D)."""
    limits = WideFitLimits(deadline=deadline, progress=progress)
    if cube.accuracy is None:
        return limits
    noise = cube.accuracy.std_of(X, Y) / np.maximum(Y.std(axis=0), np.finfo(float).tiny)
    tol = _MAX_NOISES * float(np.sqrt(np.mean(noise**2)))
    return replace(limits, tol=tol, target=tol)


def _network(problem, params):
    """The network of first-layer pre-activations with the parameters of a fit."""
    corrections, factors, W, V = problem.split(params)
    weights, biases = [np.diag(factors), W[:-1], V[:-1] * problem.scale], [corrections, W[-1]]
    return FeedforwardNetwork(weights, [*biases, V[-1] * problem.scale + problem.offset], problem.activation.name)
