"""The shallow network of a patch by least squares on its outputs: variable projection, growing and pruning of units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import REMOVAL_STEPS
from skident.linalg import lapack
from skident.optim import DenseJacobian, fit_coefficients, levenberg_marquardt

__all__ = ["PatchFit", "PatchNetwork", "grow_to_width"]

_RANK_TOL = 1e-15  # of second-layer outputs: rounding
_TYPICAL_OUTPUT_WEIGHT = 0.3  # of outputs of norm 1
_RIDGE = 1e-2  # part of the residual that typical output weights may cost
# Natural units of W2, biases, corrections and norm factors, in which steps are damped: typical errors at the start.
_SCALES = (0.1, 1.0, 1e-5, 1e-6)
_FIRST_DAMPING = 1e-2  # relative to the squared residual
_MAX_STEP = 50.0  # in natural units: longer steps are refused without a cost
_MAX_SLOW_STEPS = 2  # in a row, that end a fit
_EXACT = 3e-15  # relative residual that no step can lower: rounding of the outputs
# Growing and pruning.
_N_CANDIDATES = 1500  # budget of random units compared
_MAX_BIAS = 5.5  # of candidates, in region 0: beyond, a unit is within 4e-5 of saturation
_MIRROR_SD = 0.3  # deviation of a candidate's bias in region 1 from minus that in region 0: saturated units change sign
_MIN_NORM = 0.5  # of candidates, times the median of present units
_MAX_NORM = 2.0  # same
_MIN_NEW_PART = 1e-6  # squared part of a candidate outside the tangent space of present units: bounds what it gains
_MORE_UNITS = 3  # grown beyond the width, from the second cycle on, of which the least useful are removed
_SLOW = 0.02  # relative gain of the cost below which a step is slow
_FIRST_FIT = 25  # budget of the first fit
_STEPS_PER_UNIT = 14  # budget after every new unit
_N_REMOVED = 4  # budget of units whose removal is tried
_LAST_STEPS = 25  # budget of fits without a ridge
_LAST_DAMPING = 1e-26  # their first damping: directions that change the outputs by 1e-13 per natural unit may move
_MAX_CYCLES = 6  # budget of growing and pruning
_MIN_IMPROVEMENT = 0.7  # residual over that of the cycle before, above which no other cycle follows
_SOLVED = 3e-12  # relative residual at which growing ends: three digits above rounding


@dataclass(frozen=True)
class PatchNetwork:
    """Parameters of ``tanh(H @ W2 + biases[region])`` with ``H = tanh(z * norm_factors + corrections[region])``.

    `W2` (k, m_2), `biases` (G, m_2), `corrections` (G, k), `norm_factors` (k,) for G regions. Corrections differ
    between regions: directions that are wrong by 1e-13 move hyperplanes by 1e-10 far out.
    """

    W2: np.ndarray
    biases: np.ndarray
    corrections: np.ndarray
    norm_factors: np.ndarray

    @property
    def width(self):
        """m_2."""
        return self.W2.shape[1]

    @property
    def vector(self):
        """All parameters, (P,)."""
        return np.concatenate([self.W2.ravel(), self.biases.ravel(), self.corrections.ravel(), self.norm_factors])

    @property
    def scales(self):
        """Natural units of all parameters, (P,)."""
        parts = (self.W2, self.biases, self.corrections, self.norm_factors)
        return np.concatenate([np.full(part.size, scale) for part, scale in zip(parts, _SCALES, strict=True)])

    def like(self, vector):
        """The network with parameters (P,)."""
        parts = [self.W2, self.biases, self.corrections, self.norm_factors]
        pieces = np.split(vector, np.cumsum([part.size for part in parts])[:-1])
        return PatchNetwork(*(piece.reshape(part.shape) for piece, part in zip(pieces, parts, strict=True)))

    def subset(self, units):
        """The network with some of its second-layer units."""
        return PatchNetwork(self.W2[:, units], self.biases[:, units], self.corrections, self.norm_factors)

    def with_unit(self, weights, biases):
        """The network with one more unit of weights (k, 1) and biases (G, 1)."""
        W2, biases = np.hstack([self.W2, weights]), np.hstack([self.biases, biases])
        return PatchNetwork(W2, biases, self.corrections, self.norm_factors)


class PatchFit:
    """Least squares on outputs Y (n, m_L) at free pre-activations T (n, k) in regions (n,) with the same free units.

    Output weights are eliminated, with a small ridge whose size falls with the residual, and steps are damped in
    natural units: what the outputs do not determine yet, as of units nearly saturated in both regions, stays where it
    is until the rest is accurate. Without both, such units run away to large biases and output weights that cancel.
    With one offset for all regions, as is true, the valley from one bias to another is curved, since the difference
    between regions ties output weights to biases; with one offset per region it is straight, until the last steps.
    """

    def __init__(self, T, regions, Y, one_offset=True, check_deadline=lambda: None):
        self.T, self.regions, self.check_deadline = T, regions, check_deadline
        self.members = np.eye(regions.max() + 1)[regions]
        self.constants = np.ones((len(T), 1)) if one_offset else self.members
        self.offset = Y.mean(axis=0)
        self.size = max(float(np.linalg.norm(Y - self.offset)), np.finfo(float).tiny)
        self.Y = (Y - self.offset) / self.size

    def with_separate_offsets(self):
        """The same with an offset per region."""
        return PatchFit(self.T, self.regions, self.Y, one_offset=False, check_deadline=self.check_deadline)

    def hidden_outputs(self, network):
        """First-layer outputs (n, k) and second-layer outputs (n, m_2)."""
        H = np.tanh(self.T * network.norm_factors + network.corrections[self.regions])
        return H, np.tanh(H @ network.W2 + network.biases[self.regions])

    def eliminated(self, network, ridge=0.0):
        """Hidden outputs, and the `LinearFit` of output weights, offsets last; ridge rows come below the outputs."""
        H, A = self.hidden_outputs(network)
        m = A.shape[1]
        constants = np.vstack([self.constants, np.zeros((m, self.constants.shape[1]))])
        Phi = np.column_stack([np.vstack([A, ridge * np.eye(m)]), constants])
        Y = np.vstack([self.Y, np.zeros((m, self.Y.shape[1]))])
        return H, A, fit_coefficients(Phi, Y, _RANK_TOL)

    def residual(self, network, ridge=0.0):
        """Relative residual norm with the best output weights."""
        return float(np.linalg.norm(self.eliminated(network, ridge)[2].residual))

    def output_layer(self, network):
        """The best output weights (m_2, m_L) and offset (m_L,)."""
        v = self.eliminated(network)[2].coefficients * self.size
        return v[:-1], v[-1] + self.offset

    def jacobian(self, network, ridge=0.0):
        """Jacobian (m_L (n + m_2), P) in Kaufman's form and residuals (m_L (n + m_2),), output weights eliminated."""
        H, A, fit = self.eliminated(network, ridge)
        n, V, slopes = len(H), fit.coefficients[: A.shape[1]], 1.0 - A**2

        def project_out(changes):
            padded = np.concatenate([changes, np.zeros((len(fit.basis) - n, changes.shape[1]))])
            return padded - fit.basis @ (fit.basis[:n].T @ changes)

        parts = [slopes[:, None] * part[:, :, None] for part in (H, self.members)]
        by_units = project_out(np.concatenate(parts, axis=1).reshape(n, -1))
        blocks = []
        for w in V.T:
            by_z = ((slopes * w) @ network.W2.T) * (1.0 - H**2)
            by_first = np.concatenate([*(by_z * member[:, None] for member in self.members.T), by_z * self.T], axis=1)
            blocks.append(np.hstack([by_units * np.tile(w, by_units.shape[1] // len(w)), project_out(by_first)]))
        return np.concatenate(blocks), fit.residual.T.ravel()

    def improved(self, network, max_iter, *, damping=None, ridged=True, slow=0.0, target=0.0):
        """The network after Levenberg-Marquardt steps, until two in a row gain less than `slow` of the cost."""
        residual, n_slow = self.residual(network), 0
        damping = _FIRST_DAMPING * residual**2 if damping is None else damping
        for _ in range(max_iter):
            self.check_deadline()
            ridge = _RIDGE * residual / (_TYPICAL_OUTPUT_WEIGHT * np.sqrt(network.width)) if ridged else 0.0
            cost_before, result = self._step(network, ridge, damping)
            if result.cost >= 1.0:
                break
            network, damping = network.like(result.x), result.damping * cost_before
            residual = self.residual(network)
            n_slow = n_slow + 1 if result.cost > 1.0 - slow else 0
            if residual <= target or n_slow == _MAX_SLOW_STEPS:
                break
        return network

    def _step(self, network, ridge, damping):
        """The cost, and one step of Levenberg-Marquardt in units of it: relative dampings have a floor, costs none."""
        cost_before, x, scales = self.residual(network, ridge) ** 2, network.vector, network.scales
        cost_before = max(cost_before, np.finfo(float).tiny)

        def cost(new):
            if np.abs((new - x) / scales).max() > _MAX_STEP:
                return np.inf
            return self.residual(network.like(new), ridge) ** 2 / cost_before

        def linearize(_):
            J, r = self.jacobian(network, ridge)
            return DenseJacobian(J / np.sqrt(cost_before), r / np.sqrt(cost_before), scales)

        return cost_before, levenberg_marquardt(cost, linearize, x, max_iter=1, damping=damping / cost_before)


def grow_to_width(fit, network, n_units, rng):
    """The network with `n_units`: present units fitted, others added one by one, redundant ones removed.

    A unit that is nearly saturated in both regions, ``|bias| >= 4``, adds about an exponential of a few inputs of size
    1e-5: Taylor coefficients do not show it, outputs accurate to 1e-15 do. Whether all units are right is for the
    caller to check.
    """
    separate = fit.with_separate_offsets()
    options = {"slow": _SLOW, "target": _EXACT}
    network, residual = separate.improved(network, _FIRST_FIT, **options), np.inf
    for cycle in range(_MAX_CYCLES):
        while network.width < n_units + (_MORE_UNITS if cycle else 0):
            network = separate.improved(_with_best_candidate(separate, network, rng), _STEPS_PER_UNIT, **options)
        while network.width > n_units:
            network = _without_least_useful(separate, network)
        if separate.residual(network) > _EXACT:
            network = separate.improved(network, _LAST_STEPS, damping=_LAST_DAMPING, ridged=False, **options)
        before, residual = residual, separate.residual(network)
        if residual < _SOLVED or residual > _MIN_IMPROVEMENT * before:
            break
    return fit.improved(network, _LAST_STEPS, damping=_LAST_DAMPING, ridged=False, slow=_SLOW)


def _with_best_candidate(fit, network, rng):
    """One more unit: the random one that explains most of what present units and their changes do not."""
    (n, m_L), m = fit.Y.shape, network.width
    J, residual = fit.jacobian(network, 1e-3 * fit.residual(network))
    J /= np.maximum(np.linalg.norm(J, axis=0), np.finfo(float).tiny)
    tangent = lapack.qr(J)[0]
    residual = (residual - tangent @ (tangent.T @ residual)).reshape(m_L, n + m)[:, :n]
    tangent = tangent.reshape(m_L, n + m, -1)[:, :n]
    H, A = fit.hidden_outputs(network)
    Q = lapack.qr(np.column_stack([A, fit.constants]))[0]
    weights, biases = _candidates(network, rng)
    new = np.tanh(H @ weights + biases[fit.regions])
    new -= Q @ (Q.T @ new)
    new /= np.maximum(np.linalg.norm(new, axis=0), np.finfo(float).tiny)
    gains = np.zeros(_N_CANDIDATES)
    for r, basis in zip(residual, tangent, strict=True):
        outside = 1.0 - np.sum((basis.T @ new) ** 2, axis=0)
        gains += (r @ new) ** 2 / np.maximum(outside, _MIN_NEW_PART)
    best = [int(np.argmax(gains))]
    return network.with_unit(weights[:, best], biases[:, best])


def _candidates(network, rng):
    """Random weights (k, n) with norms like those of present units, and biases (2, n) of opposite sign."""
    norms = np.linalg.norm(network.W2, axis=0)
    typical = np.clip(norms, _MIN_NORM * np.median(norms), _MAX_NORM * np.median(norms))
    weights = rng.standard_normal((len(network.W2), _N_CANDIDATES))
    weights *= rng.choice(typical, _N_CANDIDATES) / np.linalg.norm(weights, axis=0)
    bias = rng.uniform(-_MAX_BIAS, _MAX_BIAS, _N_CANDIDATES)
    return weights, np.stack([bias, _MIRROR_SD * rng.standard_normal(_N_CANDIDATES) - bias])


def _without_least_useful(fit, network):
    """One unit less: the one whose removal the others compensate best."""
    units = np.arange(network.width)
    residuals = [fit.residual(network.subset(units != j)) for j in units]
    order = np.argsort(residuals)[:_N_REMOVED]
    tries = [fit.improved(network.subset(units != j), REMOVAL_STEPS, slow=_SLOW) for j in order]
    return min(tries, key=fit.residual)
