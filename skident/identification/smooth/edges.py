"""Edges of the cube of first-layer outputs: one unit moves, and determines its norm and bias."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from skident.optim import BatchedSeparableProblem, batched_levenberg_marquardt
from skident.oracle import NotIdentified

from ..saturating.norms import ENDING, LONGEST, unit_interval
from .cube import preactivations_of

NODES = np.sinh(np.linspace(-3.0, 3.0, 36))  # pre-activations along an edge: |z| up to 10, dense near 0
_PLACES = 2  # edges per unit
_RAYS = 300  # budget of rays per edge
_DEGREES = (5, 9, 14, 20)  # of the rest of the network as a polynomial in one unit's output
_GOOD = 1e-8  # root mean square residual of a polynomial that is right, of outputs of size one
_TRIALS = 90  # norms that are compared
_LOG_NORMS = (-3.0, 3.0)  # of the trials, relative to the norms known so far
_MINIMA = 3  # of the trials from which fits start
_TAIL = 0.1  # share of the change on either side of the middle
_OFF_CENTER = 1.0  # pre-activation from which on a hyperplane is off its unit's center
_MAX_FACTOR = 2.5  # between a norm and the one of the middle of the change: steep units narrow it
_CENTERINGS = 2  # budget

# Of activations: the pre-activation with a given g'' / g', and the largest g'' / g'.
_CENTERS = {
    "tanh": (lambda r: np.arctanh(np.clip(-0.5 * r, -1 + 1e-12, 1 - 1e-12)), 2.0),
    "sigmoid": (lambda r: 2.0 * np.arctanh(np.clip(-r, -1 + 1e-12, 1 - 1e-12)), 1.0),
    "erf": (lambda r: -0.5 * r, np.inf),
}


@dataclass(frozen=True)
class Edges:
    """Outputs `Y` (m, e, n, P) at pre-activations `NODES` of each unit, while all others are saturated."""

    Y: np.ndarray
    g: object

    def norm_and_bias(self, i, curvature):
        """Log norm, bias and residual of unit i from its own edges, given g'' / g' at its hyperplane.

        The outputs are a polynomial in ``g(a t + b)``, of the lowest degree that fits, with ``a g''(b) / g'(b)`` known.
        """
        Y = self.Y[i] - self.Y[i].mean(axis=1, keepdims=True)
        Y = np.concatenate(list(Y / (np.abs(Y).max(axis=(1, 2), keepdims=True) + np.finfo(float).tiny)), axis=1)
        center, steepest = _CENTERS[self.g.name]
        low = np.log(np.abs(curvature) / steepest) if curvature and np.isfinite(steepest) else _LOG_NORMS[0]
        trials = np.linspace(max(_LOG_NORMS[0], low + 1e-3), max(_LOG_NORMS[1], low + 2.0), _TRIALS)
        best = 0.0, np.inf
        for degree in _DEGREES:
            columns = functools.partial(self._columns, curvature, degree)
            log_norm, cost = _least(BatchedSeparableProblem(columns, Y, longest=LONGEST[:1]), trials)
            best = min(best, (log_norm, float(np.sqrt(cost / Y.size))), key=lambda pair: pair[1])
            if best[1] < _GOOD:
                break
        return best[0], float(center(curvature / np.exp(best[0]))), best[1]

    def _columns(self, curvature, degree, log_norms):
        """Powers (B, n, degree + 1) of the unit's output, mapped to [-1, 1]."""
        norms = np.exp(log_norms)
        biases = _CENTERS[self.g.name][0](curvature / norms)
        return chebyshev.chebvander(unit_interval(norms * NODES + biases, self.g), degree)


def _least(problem, trials):
    """Where problems in one parameter have the least cost, and that cost: fits from the best of equidistant trials."""
    values = problem.cost(trials[:, None])
    inner = np.flatnonzero((values[1:-1] <= values[:-2]) & (values[1:-1] <= values[2:])) + 1
    starts = trials[[np.argmin(values), *inner[np.argsort(values[inner])[:_MINIMA]]]]
    fits = batched_levenberg_marquardt(problem, starts[:, None], ENDING)
    k = np.argmin(fits.cost)
    return float(fits.x[k, 0]), float(fits.cost[k])


def query_edges(cube, n_places=_PLACES):
    """The `Edges` of all units, some per unit, and the cube with hyperplanes moved to the centers of its units.

    If what follows is steep, the profile near a hyperplane may be that of a unit whose pre-activation is 6 there, or
    have the shape of another norm. Half of the outputs' change is done near the center, whatever follows.
    """
    edges = [edges_of(cube, i, n_places=n_places) for i in range(cube.shape[1])]
    spread = 2.0 * preactivations_of(cube.g, 1.0 - 2.0 * _TAIL)
    for _ in range(_CENTERINGS):
        lows, centers, highs = np.array([_quantiles(Y) for Y in edges]).T
        scales = spread / np.maximum(highs - lows, np.diff(NODES).min())
        scales = np.where((scales > _MAX_FACTOR) | (scales < 1.0 / _MAX_FACTOR), scales, 1.0)
        shifts = np.where(np.abs(centers) > _OFF_CENTER, -centers, 0.0) * scales
        moved = np.flatnonzero((scales != 1.0) | (shifts != 0.0))
        if not len(moved):
            break
        cube = cube.rescaled(scales, shifts)
        for i in moved:
            edges[i] = edges_of(cube, i, n_places=n_places)
    return Edges(np.array(edges), cube.g), cube


def edges_of(cube, i, nodes=NODES, n_places=_PLACES):
    """Outputs (e, n, P) along edges of a unit."""
    face = cube.face([i], n_places, _RAYS, between=False)
    if not len(face.points):
        raise NotIdentified("second layer", "saturation", "no far inputs saturate all first-layer units but one.")
    face = face[np.arange(n_places) % len(face.points)]
    return cube.at(face.points[:, None] + nodes[:, None] * face.moves)


def _quantiles(Y):
    """Pre-activations at which a tenth, half and nine tenths of the change of outputs Y (e, n, P) are done."""
    change = np.linalg.norm(np.diff(Y, axis=1), axis=2)
    change = np.sum(change / (change.sum(axis=1, keepdims=True) + np.finfo(float).tiny), axis=0)
    done = np.append(0.0, np.cumsum(change)) / max(change.sum(), np.finfo(float).tiny)
    return np.interp((_TAIL, 0.5, 1.0 - _TAIL), done, NODES)
