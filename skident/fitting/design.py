"""Query design: inputs at which the hidden units of a network are not saturated."""

import numpy as np
import scipy.linalg

from skident.budget import check_deadline, chunks, require_memory
from skident.budget.constants import CHUNK_COPIES, FEW_ROUNDS, RIDGE
from skident.linalg import lapack

from .standard_errors import parameter_jacobian

_ACTIVE_RANGE = 2.5  # |pre-activation| up to which a unit is not saturated: tanh' there is 0.03
_SATURATED_SHARE = 0.05  # of the Gauss points; a unit that is active at fewer gets points of its own
_EXTRA_POINTS = 1.5  # per parameter of such a unit, D + 2 with its output weight
_CENTER_RCOND = 1e-2  # of the weights: directions that the units hardly depend on stay at 0
_SPREADS = (0.5, 1.0, 2.0, 4.0, 8.0)  # of candidates, in typical pre-activations of the first layer
_CANDIDATES = 20  # per point wanted, for every spread (budget)
_CHUNK_PARTS = 3  # arrays of a Jacobian's size: two layers' blocks and their concatenation
_PROBES = 48  # random combinations of parameters whose sum estimates a leverage to 20 %
_OCTAVES = (-2.0, 4.0)  # distances of candidates, in powers of two of a standard deviation
_ON_UNIT = 0.3  # pre-activation of candidates near a hyperplane, over that before they were moved
_MOVE_OCTAVES = 0.7  # by which the distance of good candidates is varied
_MOVE = 0.2  # `_MOVE_OCTAVES` of their position, over their distance per coordinate
_TIE_BREAK = 1e-3  # largest random term in the order of candidates, in pre-activations: equal ones are drawn at random


def design_points(weights, biases, n_samples, spread, rng, near=0.5):
    """At least `n_samples` inputs (n, D) at which first-layer units, weights (D, m) and biases (m,), are active.

    The Gaussian part is centered where the pre-activations are smallest; `spread` is the standard deviation of a
    typical pre-activation. A fraction `near` of the samples is moved along the normal of one unit, units in turn, to a
    pre-activation uniform in [-2.5, 2.5]: this reaches units whose hyperplane is far from the center. Unless `near` is
    0, a unit that is saturated on nearly all of the Gaussian part gets ``1.5 (D + 2)`` samples more, because each
    determines no more than one of its D + 1 parameters. MemoryLimitError if the samples do not fit.
    """
    norms = np.linalg.norm(weights, axis=0)
    if norms.any():  # units without weights are constant
        weights, biases, norms = weights[:, norms > 0], biases[norms > 0], norms[norms > 0]
    D, m = weights.shape
    require_memory(CHUNK_COPIES * 8 * D * n_samples, f"{n_samples} samples of {D} inputs")
    sigma = spread / np.median(norms)
    units = np.arange(int(near * n_samples)) % m
    # All units may be saturated on the data; at this center as few as possible are.
    center = -lapack.lstsq(weights.T, biases, rcond=_CENTER_RCOND)[0]
    gaussian = center + rng.standard_normal((n_samples - len(units), D)) * sigma
    if len(units):
        active = np.mean(np.abs(gaussian @ weights + biases) < _ACTIVE_RANGE, axis=0)
        saturated = np.flatnonzero(active < _SATURATED_SHARE)
        units = np.concatenate([units, np.repeat(saturated, int(_EXTRA_POINTS * (D + 2)))])
    U = center + rng.standard_normal((len(units), D)) * sigma
    W = weights[:, units].T
    move = rng.uniform(-_ACTIVE_RANGE, _ACTIVE_RANGE, len(units)) - np.sum(U * W, axis=1) - biases[units]
    return np.concatenate([U + (move / norms[units] ** 2)[:, None] * W, gaussian])


def points_for_deep_units(network, n_samples, rng):
    """At most `n_samples` inputs (n, D) at which units behind the first hidden layer are active.

    For every unit as many candidates of five spreads are chosen, at random among those where its pre-activation is at
    most 2.5, or else those where it is smallest. MemoryLimitError if the candidates do not fit.
    """
    W, b, n_candidates = network.weights[0], network.biases[0], len(_SPREADS) * _CANDIDATES * n_samples
    require_memory(
        2 * 8 * (len(W) + sum(network.layer_widths)) * n_candidates, f"{n_candidates} samples to choose from"
    )
    U = np.concatenate([design_points(W, b, _CANDIDATES * n_samples, spread, rng) for spread in _SPREADS])
    depths, H = [], U
    for W, b, activation in zip(network.weights[:-1], network.biases[:-1], network.activations[:-1], strict=True):
        Z = H @ W + b
        depths, H = [*depths, np.abs(Z)], activation(Z)
    depths = np.hstack(depths[1:])
    per_unit = n_samples // depths.shape[1]
    order = [np.argsort(np.maximum(z, _ACTIVE_RANGE) + rng.uniform(0.0, _TIE_BREAK, len(z))) for z in depths.T]
    return U[np.unique(np.concatenate([chosen[:per_unit] for chosen in order]))]


def rows_near_and_far(network, n, rng, reach=np.inf):
    """Inputs (n, D) at distances from 1/4 to 16 standard deviations, half of them moved close to a first-layer unit."""
    W, b = network.weights[0], network.biases[0]
    U = 2.0 ** rng.uniform(*_OCTAVES, (n, 1)) * rng.standard_normal((n, len(W)))
    norms = np.maximum(np.linalg.norm(W, axis=0), np.finfo(float).tiny)
    unit, moved = rng.randint(W.shape[1], size=n), rng.uniform(size=n) < 0.5
    z = (np.einsum("ni,in->n", U, W[:, unit]) + b[unit]) / norms[unit] ** 2
    move = np.where(moved, (1.0 - _ON_UNIT * rng.standard_normal(n)) * z, 0.0)
    U = U - move[:, None] * W[:, unit].T
    return U * np.minimum(1.0, reach / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), np.finfo(float).tiny))


def rows_by_leverage(network, n, std_of, draw, rng):
    """About n inputs (k, D) whose outputs determine the parameters of a network best, of any depth.

    ``std_of(U)`` (n, m_L) or (n, 1) gives the standard deviation of outputs at inputs U, ``draw(n)`` candidates (n, D).
    In three rounds half of the rows give way to the candidates, new ones and others close to good rows, of the largest
    leverage ``j^T (J^T J)^-1 j``, with ``j`` the gradients of an output by all parameters over its standard deviation.
    Leverages are estimated from random combinations: ``O(n P (P + 48))`` operations in all per round.
    """
    rows = draw(n)
    for _ in range(FEW_ROUNDS):
        near = rows[rng.randint(len(rows), size=n)]
        far = np.linalg.norm(near, axis=1, keepdims=True) / np.sqrt(near.shape[1])
        near = near * 2.0 ** rng.uniform(-_MOVE_OCTAVES, _MOVE_OCTAVES, (n, 1))
        near = near + _MOVE * far * rng.standard_normal(near.shape)
        candidates = np.concatenate([draw(n), near])
        leverages = _leverages(network, rows, candidates, std_of, rng)
        best = candidates[np.argsort(-leverages)[: n // 2]]
        rows = np.concatenate([rows[rng.permutation(n)[: n - len(best)]], best])
    return rows


def _leverages(network, rows, candidates, std_of, rng):
    """Leverages (k,) of candidates (k, D) beside rows (n, D), the sum over outputs, estimated to 20 %."""
    P = network.n_parameters
    require_memory(3 * 8 * P**2, f"the information matrix of {P} parameters")
    information = np.zeros((P, P))
    for J in _scaled_jacobians(network, rows, std_of):
        check_deadline(len(J) * P**2)
        information += J.T @ J
    scale = np.sqrt(np.diag(information))
    scale = np.where(scale > 0.0, scale, 1.0)
    information /= scale[:, None] * scale
    information.flat[:: P + 1] += RIDGE * P
    check_deadline(P**3 / 3.0)
    factor = lapack.scipy_cholesky(information, lower=True, overwrite_a=True, check_finite=False)
    signs = rng.choice([-1.0, 1.0], (P, min(_PROBES, P)))
    # |L^-1 j|^2 = E (j^T L^-T s)^2 for random signs s
    probes = scipy.linalg.solve_triangular(factor, signs, lower=True, trans="T") / scale[:, None]
    parts = [np.sum((J @ probes) ** 2, axis=1) for J in _scaled_jacobians(network, candidates, std_of)]
    return np.concatenate(parts).reshape(len(candidates), -1).sum(axis=1)


def _scaled_jacobians(network, U, std_of):
    """Parameter Jacobians over the outputs' standard deviations, (k m_L, P) for chunks of rows."""
    for some in chunks(len(U), _CHUNK_PARTS * 8 * network.n_parameters * network.n_outputs):
        std = np.broadcast_to(std_of(U[some]), (len(U[some]), network.n_outputs))
        yield parameter_jacobian(network, U[some]) / std.reshape(-1, 1)
