"""Undetermined weights of hidden layers, from outputs on which they act."""

import numpy as np
from scipy.optimize import least_squares

from skident.budget import check_deadline
from skident.budget.constants import EXACT_RESIDUAL, TINY
from skident.network import FeedforwardNetwork

from ..constants import EXPLAINED, EXPLAINED_ERRORS, TRIES
from .readout import point_pool
from .validation import OutputSamples

_POOL = 4000  # random points among which those are chosen
_RADII = (0.5, 1.0, 2.0, 4.0)  # standard deviations of these
_POINTS = 6  # per unknown, and beyond:
_MORE_POINTS = 12  # more
_LEAST_CHANGE = 1e-3  # of an output by unknowns of size 1, over the largest one
_LEAST_EXPLAINED = 0.6  # share of the outputs: at others units may be missing
_LOSS_SCALE = 1e-3  # residual over the median one of the first guess, above which it counts by its size
_NEAR = 1e-3  # residual over the median one of the first guess, up to which a sample is fitted exactly then
_EVALUATIONS = 60  # of the residuals by a fit (budget)


def close_open_parts(probe, network, levels, rng):
    """Determine open parts of units from outputs, in place; whether they explain most outputs on which they act.

    `levels` are lists of the `Unit`s of the network's hidden layers, of any signs. An open weight matters where its
    input is active, on one side of its unit, which is all that no boundary shows. ``6 s + 12`` queries for s unknowns.
    """
    parts, opened = [], [(k, unit) for k, units in enumerate(levels) for unit in units if unit.nullity]
    for k, unit in opened:
        columns = np.vstack([network.weights[k], network.biases[k]])
        cosines = unit.coef @ columns / np.maximum(np.linalg.norm(columns, axis=0), TINY)
        j = int(np.abs(cosines).argmax())
        parts.append((k, j, np.sign(cosines[j]) * unit.V))
    n = sum(V.shape[1] for *_, V in parts)
    if n == 0:
        return False
    X = point_pool(probe, [], _POOL, _RADII, rng)
    change = np.abs(_changed(network, parts, rng.standard_normal(n))(X) - network(X)).max(axis=1)
    matters = rng.permutation(np.flatnonzero(change > _LEAST_CHANGE * change.max(initial=0.0)))
    samples = OutputSamples.at(probe, X[matters[: _POINTS * n + _MORE_POINTS]])
    samples = samples.take(np.isfinite(samples.tol))
    if len(samples.X) < 2 * n:
        return False
    explained = max(EXPLAINED / probe.resolution, EXPLAINED_ERRORS) * samples.tol
    theta, jacobian = _fitted(network, parts, samples, explained, rng)
    if theta is None:
        return False
    sizes = np.linalg.norm(jacobian, axis=0)
    errors, theta = explained.max() / np.maximum(sizes, explained.max()), np.where(sizes > explained.max(), theta, 0.0)
    for (_, unit), (*_, V) in zip(opened, parts, strict=True):
        q = V.shape[1]
        unit.determine(unit.V @ theta[:q], errors[:q])
        theta, errors = theta[q:], errors[q:]
    return True


def _changed(network, parts, theta):
    """The network with open parts: lists of layer, unit and directions (T, q)."""
    weights, biases = [W.copy() for W in network.weights], [b.copy() for b in network.biases]
    for k, j, V in parts:
        coef, theta = V @ theta[: V.shape[1]], theta[V.shape[1] :]
        weights[k][:, j] += coef[:-1]
        biases[k][j] += coef[-1]
    return FeedforwardNetwork(weights, biases, network.activation)


def _fitted(network, parts, samples, explained, rng):
    """Unknowns that explain most samples, and the Jacobian (n, s) there; None twice if there are none."""
    n = sum(V.shape[1] for *_, V in parts)
    scale = np.median(np.abs(network(samples.X) - samples.F))

    def residual(theta, X, F):
        return (_changed(network, parts, theta)(X) - F).ravel() / scale

    for start in [np.zeros(n), *rng.standard_normal((TRIES, n))]:
        check_deadline()
        fit = least_squares(
            residual, start, loss="soft_l1", f_scale=_LOSS_SCALE, max_nfev=_EVALUATIONS, args=samples[:2]
        )
        error = np.abs(_changed(network, parts, fit.x)(samples.X) - samples.F).max(axis=1)
        good = error < np.maximum(explained, _NEAR * scale)
        if np.mean(good) >= _LEAST_EXPLAINED:
            X, F, _ = samples.take(good)
            fit = least_squares(
                residual, fit.x, xtol=EXACT_RESIDUAL, ftol=EXACT_RESIDUAL, gtol=None, max_nfev=_EVALUATIONS, args=(X, F)
            )
            if np.all(np.abs(_changed(network, parts, fit.x)(X) - F).max(axis=1) < explained[good]):
                return fit.x, fit.jac * scale
    return None, None
