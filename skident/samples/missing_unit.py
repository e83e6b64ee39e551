"""Test whether a fitted ReLU network lacks a unit: the largest correlation of a unit with the residuals."""

from dataclasses import dataclass, field

import numpy as np

from skident.budget.constants import BLOCK_ENTRIES, FEW_ROUNDS, NO_EFFECT

from .ridges import jacobian_of_ridges

_CANDIDATES = 1500  # random units that are tried (budget): their products take most of the time
_FEW_CANDIDATES = 600  # `_CANDIDATES` where units are only sought (budget)
_NEAR = 24  # units sought near each unit of the fit, which may stand for two close ones (budget)
_TURNS = (0.25, 0.5)  # angles of these to it, radians: two units of a cosine of 0.9 are 0.45 apart
_SOUGHT_ASCENTS = 8  # of random units that are sought, and of units near those of the fit (budget)
_NEAR_ONE_UNIT = 2  # of the latter, at most so many near one unit
_ALIKE = 0.99  # cosine of two units that are one
_LATE = 0.05  # share of samples that a tried unit has on either side at least: fewer decide nothing
_ASCENT_STEPS = 6  # least squares steps per ascent
_LEAST_NEW = 1e-3  # norm of a unit beyond the tangent space, relative to its own; below, the fit has it already


@dataclass(frozen=True)
class MissingUnitTest:
    """Result of a test for a missing unit.

    Attributes
    ----------
    p_value : float
        Probability of a statistic at least as large if no unit is missing.
    statistic : float
        Largest squared correlation of the residuals with a unit, both without the tangent space of the fit.
    weights : ndarray of shape (d,)
    bias : float
        The unit with this correlation.
    n_simulations : int

    Examples
    --------
    >>> from skident import TensorReLURegressor
    >>> from skident.datasets import make_relu_network
    >>> X, y, _ = make_relu_network(500, n_features=3, n_units=2, noise=0.3, random_state=0)
    >>> test = TensorReLURegressor(n_units=2, random_state=0).fit(X, y).missing_unit_test(X, y)
    >>> print(test.n_simulations, 0 < test.p_value <= 1)
    199 True
    """

    p_value: float
    statistic: float
    weights: np.ndarray = field(repr=False)
    bias: float = field(repr=False)
    n_simulations: int


def missing_unit_test(network, X, y, *, linear=0.0, n_simulations=199, random_state=None):
    """A `MissingUnitTest`: ``sup_w |<r, relu(w . x + b)>|`` against its law for Gaussian noise, simulated.

    `network` has one ReLU layer, to which ``X @ linear`` is added; r are its residuals on the samples of the fit (n,).
    Residuals of a least squares fit are noise without its components in the tangent space of the network, up to second
    order. The statistic does not depend on the scale of the noise, and the simulations go through the same search as
    the residuals: the p-value is exact in this approximation, however good the search is.
    """
    rng = np.random.default_rng(random_state)
    residuals = y - network(X)[:, 0] - X @ (np.zeros(X.shape[1]) + linear)
    center, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    Z = np.column_stack([(X - center) / scale, np.ones(len(X))])
    Q = _tangent_space(X @ network.weights[0] + network.biases[0] > 0, Z)
    if Q.shape[1] >= len(X) - 1:
        raise ValueError(f"{len(X)} samples leave nothing to test beyond {Q.shape[1]} parameters; give more samples.")
    both = np.column_stack([residuals, rng.standard_normal((len(X), n_simulations))])
    both = _without(Q, both)
    both /= np.linalg.norm(both, axis=0)
    found, units = _largest(Z, Q, both, rng)
    p_value = (1 + np.sum(found[1:] >= found[0])) / (1 + n_simulations)
    weights = units[0, :-1] / scale
    return MissingUnitTest(
        float(p_value), float(found[0]), weights, float(units[0, -1] - weights @ center), n_simulations
    )


def correlated_units(Z, known, residuals, n_units, rng):
    """Units (n_units, d + 1), biases last, whose outputs correlate most with residuals (n,) of a fit.

    Z (n, d + 1) has a last column of ones; known (m, d + 1) are the units of the fit.

    Random units and units near those of the fit start ascents. Two units of a network whose directions are close often
    end as one in a fit; in eight dimensions no random unit is near enough to the missing one.
    """
    Q = _tangent_space(Z @ known.T > 0, Z)
    residuals = _without(Q, residuals[:, None])
    starts = []
    for units, most in (_random_units(Z, rng, _FEW_CANDIDATES), len(Z)), (_near_units(known, rng), _NEAR_ONE_UNIT):
        values, of = _correlations(Z, Q, units, residuals)[:, 0], np.arange(len(units)) // _NEAR
        order = np.argsort(-values)
        kept = [i for at, i in enumerate(order) if np.sum(of[order[:at]] == of[i]) < most][:_SOUGHT_ASCENTS]
        starts += [(values[i], units[i]) for i in kept]
    ends = sorted((_ascend(Z, Q, residuals, *start) for start in starts), key=lambda end: -end[0])
    found = []
    for _, unit in ends:
        direction = unit / np.linalg.norm(unit)
        if len(found) < n_units and all(abs(direction @ one) < _ALIKE for one in found):
            found.append(direction)
    return np.array(found)


def _tangent_space(active, Z):
    """Orthonormal basis of the derivatives of a network with a linear part with respect to all its parameters."""
    blocks = jacobian_of_ridges(Z, active, skip=True)
    values, vectors = np.linalg.eigh(blocks.T @ blocks)
    kept = values > NO_EFFECT * values[-1]
    # Once more: an orthonormal basis to rounding, though the products square the condition.
    return np.linalg.qr(blocks @ (vectors[:, kept] / np.sqrt(values[kept])))[0]


def _without(Q, A):
    """A without its components in the span of Q."""
    return A - Q @ (Q.T @ A)


def _largest(Z, Q, residuals, rng):
    """For each column of residuals, the largest squared correlation with a unit, and the unit (d + 1,)."""
    units = _random_units(Z, rng, _CANDIDATES)
    values = _correlations(Z, Q, units, residuals)
    found, best = np.zeros(residuals.shape[1]), np.zeros((residuals.shape[1], Z.shape[1]))
    for j in range(residuals.shape[1]):
        for i in np.argsort(-values[:, j])[:FEW_ROUNDS]:
            value, unit = _ascend(Z, Q, residuals[:, j : j + 1], values[i, j], units[i])
            if value > found[j]:
                found[j], best[j] = value, unit
    return found, best


def _random_units(Z, rng, n_candidates):
    """Units (m, d + 1) of random directions that bend within the samples."""
    directions = rng.standard_normal((n_candidates, Z.shape[1] - 1))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    rows = (rng.uniform(_LATE, 1.0 - _LATE, n_candidates) * (len(Z) - 1)).astype(int)
    biases = [-np.partition(Z[:, :-1] @ one, row)[row] for one, row in zip(directions, rows, strict=True)]
    return np.column_stack([directions, biases])


def _near_units(known, rng):
    """Units (_NEAR m, d + 1) that differ from those known (m, d + 1) by turns in random directions."""
    known = np.repeat(known / np.linalg.norm(known, axis=1, keepdims=True), _NEAR, axis=0)
    turned = rng.standard_normal(known.shape)
    turned -= np.sum(turned * known, axis=1, keepdims=True) * known
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    angles = np.resize(_TURNS, len(known))[:, None]
    return known * np.cos(angles) + turned * np.sin(angles)


def _correlations(Z, Q, units, residuals):
    """Squared correlations (m, k) of units with residuals, both without the tangent space."""
    block, found = max(1, BLOCK_ENTRIES // len(Z)), []
    for first in range(0, len(units), block):
        outputs = np.maximum(Z @ units[first : first + block].T, 0.0)
        sizes = np.linalg.norm(outputs, axis=0)
        outputs = _without(Q, outputs)
        norms = np.linalg.norm(outputs, axis=0)
        new = norms > _LEAST_NEW * np.maximum(sizes, np.finfo(float).tiny)
        found.append((outputs.T @ residuals / np.where(new, norms, np.inf)[:, None]) ** 2)
    return np.concatenate(found)


def _ascend(Z, Q, residual, value, unit):
    """Least squares over a unit's weights with its active samples fixed, repeated while the correlation rises."""
    for _ in range(_ASCENT_STEPS):
        active = Z * (Z @ unit > 0)[:, None]
        step = np.linalg.lstsq(_without(Q, active), residual[:, 0], rcond=NO_EFFECT)[0]
        size = np.linalg.norm(step)
        if not size > 0:
            break
        # Either sign of the output weight: the unit or its mirror image correlates.
        options = np.stack([step, -step, unit + 0.5 * step * np.linalg.norm(unit) / size]) / size
        kept = [o for o in options if _LATE <= np.mean(Z @ o > 0) <= 1.0 - _LATE]
        if not kept:
            break
        values = _correlations(Z, Q, np.array(kept), residual)[:, 0]
        if not values.max() > value * (1.0 + 1e-6):
            break
        value, unit = float(values.max()), kept[int(values.argmax())]
    return value, unit
