"""The second layer's rows at all other first-layer units, one after the other, each freed beside known ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import power_jacobian, symmetric_power
from skident.linalg.packing import packing_weights
from skident.optim import DenseNormalEquations, levenberg_marquardt
from skident.oracle import NotIdentified

from ..downstream import Downstream, PatchSample
from ..kernel.charts import exponents
from ..kernel.taylor import taylor_coefficients

__all__ = ["Rows", "recover_further_units"]

_LOOKS, _ENOUGH = 12, 5  # sets of known units looked at for a patch in reach, and after which the best one is taken
_NEAR = 4000.0  # distance of a patch that is near enough at once
_STUCK, _REPEATS = 5e-4, 3  # misfit after which a unit is looked at again beside others, and how often
_LOOSE = 1e-2  # misfit that the last of these may leave to the polish
_OFF_CENTRE = 0.5  # |theta| at which a unit that is stuck is looked at again from its centre
_LARGEST = 0.95  # |theta|
_STEP = 1e-6  # of the derivative by theta


@dataclass(frozen=True)
class Rows:
    """Rows of the second layer at all first-layer units, up to one factor a second-layer unit.

    Attributes
    ----------
    rows : ndarray of shape (m_1, m_2)
    theta : ndarray of shape (m_1,)
    samples : list of PatchSample
    misfit : float
        The largest relative one of any unit.
    downstream : Downstream
        With the biases that theta belongs to.
    """

    rows: np.ndarray
    theta: np.ndarray
    samples: list
    misfit: float
    downstream: Downstream


@dataclass(frozen=True)
class _UnitFit:
    """One more unit: its row (m_2,), theta, coefficients at the points (n, m_L, m_2), values and relative misfit."""

    row: np.ndarray
    theta: float
    sample: PatchSample
    misfit: float


def recover_further_units(downstream, plan, first, callback=None):
    """All rows, from those at the first patch's units.

    Parameters
    ----------
    downstream : Downstream
    plan : PowerDesign
        Its rule of further units with the reach that serves best.
    first : FirstPatchPowers
    callback : callable, default=None
        ``callback(n_known, m_1)`` after every unit.

    Returns
    -------
    Rows

    Raises
    ------
    NotIdentified
        If a unit is not seen from any patch in reach, or its terms agree with the known rows nowhere.
    """
    m_1 = downstream.shape[1]
    rows, theta = np.zeros((m_1, first.rows.shape[1])), np.zeros(m_1)
    rows[first.free], theta[first.free] = first.rows, first.theta
    known, samples, misfits = list(first.free), [first.sample], [first.misfit]
    queue = [(j, 0) for j in np.setdiff1d(np.arange(m_1), first.free)]
    while queue:
        j, tried = queue.pop(0)
        beside = _known_beside(downstream, plan, first, rows, known, j, tried)
        fit = None if beside is None else _fit_unit(downstream, plan.rule_of_more, rows, theta, beside)
        last = tried == (_REPEATS if fit is not None else 1)
        if fit is None or fit.misfit > (_LOOSE if last else _STUCK):
            if last:
                seen = "no patch is in reach" if fit is None else f"its terms misfit by {fit.misfit:.1e}"
                raise NotIdentified(
                    "second layer",
                    "residual",
                    f"the second layer's weights from first-layer unit {j} were not found: {seen}",
                )
            downstream = downstream if fit is None else _recentred(downstream, j, fit.theta)
            queue.append((j, tried + 1))
            continue
        rows[j], theta[j] = fit.row, fit.theta
        known.append(j)
        samples.append(fit.sample)
        misfits.append(fit.misfit)
        if callback is not None:
            callback(len(known), m_1)
    return Rows(rows, theta, samples, float(max(misfits)), downstream)


def _recentred(downstream, unit, theta):
    """The same with a unit's bias moved to its centre, where it was far off and only saturated so far."""
    if abs(theta) < _OFF_CENTRE or downstream.theta is not None or downstream.shape[1] <= downstream.shape[0]:
        return downstream
    biases = downstream.biases.copy()
    biases[unit] += np.arctanh(theta)
    return replace(downstream, biases=biases)


def _known_beside(downstream, plan, first, rows, known, j, tried):
    """A patch of k known units and j, the last of its free ones: near and well conditioned; None if there is none."""
    k, order = plan.n_free, plan.rule.order
    needed = 1.15 * rows.shape[1] / (downstream.n_outputs * len(exponents(k, order - 1)))
    best, least = None, np.inf
    for look in range(_LOOKS):
        beside = first.free if look == 0 and not tried else np.array(known)[downstream.rng.permutation(len(known))[:k]]
        patch = downstream.patch(np.append(beside, j), plan.n_more * (1 + tried))
        if len(patch.points) >= needed:
            V = rows[beside].T
            lengths = np.maximum(np.linalg.norm(V, axis=1, keepdims=True), np.finfo(float).tiny)
            score = patch.distance * np.sqrt(np.linalg.cond(symmetric_power(V / lengths, order)))
            if score < least:
                best, least = patch, score
            if (look == 0 and patch.distance < _NEAR) or look >= _ENOUGH:
                break
    return best


def _fit_unit(downstream, rule, rows, theta, patch):
    """The row and shift of a patch's last free unit, its other units' being known."""
    K, p = patch.free[:-1], rule.order
    chart, V = downstream.chart(patch.free), rows[K].T
    tensors = taylor_coefficients(downstream.query, patch, chart, rule)
    terms = _Terms(chart, tensors, theta[K], V, p)
    last = patch.free[-1]
    u, shift = terms.start()
    u, shift, coefficients, misfit = terms.refined(
        u, shift, None if downstream.theta is None else downstream.theta[last]
    )
    shape = tensors[-1].shape
    sample = PatchSample(patch, coefficients.reshape(*shape[:2], -1), tensors[0][..., 0])
    return _UnitFit(u, shift, sample, misfit)


class _Terms:
    """Terms of order p on a patch of known units and a new one, the last: ``sum_k c_k (V_k . eta + u_k eta_j)^p``."""

    def __init__(self, chart, tensors, theta, V, order):
        self.chart, self.tensors, self.theta, self.V, self.order = chart, tensors, theta, V, order
        self.n_free = V.shape[1] + 1
        self.size = np.ones((tensors[-1].shape[0] * tensors[-1].shape[1], 1))
        self.size = np.maximum(np.linalg.norm(self.targets(0.0), axis=1, keepdims=True), np.finfo(float).tiny)

    def targets(self, shift, order=None):
        """Packed terms (n m_L, d) of an order, the new unit's theta being `shift`, over the rows' sizes."""
        theta = np.append(self.theta, shift) if self.chart.theta is None else self.chart.theta
        T = self.chart.coefficients(self.tensors, theta, self.order if order is None else order)
        return T.reshape(-1, T.shape[-1]) / self.size

    def start(self):
        """Row (m_2,) from terms linear in the new unit, theta from quadratic ones."""
        degrees = exponents(self.n_free, self.order)[:, -1]
        none, one, two = (np.flatnonzero(degrees == d) for d in range(3))
        T = self.targets(0.0)
        Phi = symmetric_power(np.column_stack([self.V, np.ones(len(self.V))]), self.order)
        c = np.linalg.lstsq(Phi[:, none].T, T[:, none].T, rcond=None)[0].T
        M = (c[:, None, :] * Phi[:, one].T[None]).reshape(-1, len(self.V))
        u = np.linalg.lstsq(M, T[:, one].ravel(), rcond=None)[0]
        if self.chart.theta is not None:
            return u, 0.0
        weights = packing_weights(self.n_free, self.order)[two]
        lower = np.flatnonzero(exponents(self.n_free, self.order - 1)[:, -1] == 1)
        below = self.targets(0.0, self.order - 1)[:, lower] * packing_weights(self.n_free, self.order - 1)[lower]
        lacking = ((c * u**2) @ Phi[:, two] - T[:, two]) * weights
        shift = np.clip(np.sum(below * lacking) / max(np.sum(below**2), np.finfo(float).tiny), -0.9, 0.9)
        return u / (1.0 - shift**2), float(shift)

    def refined(self, u, shift, known_shift):
        """Row, theta, coefficients (n m_L, m_2) and relative misfit of the least sum of squares over all terms."""
        x0 = u if known_shift is not None else np.append(u, shift)
        result = levenberg_marquardt(self.cost, self.linearise, x0, max_iter=12, damping=1e-6, ftol=1e-3)
        u, shift = self.split(result.x)
        _, _, c, _ = self.eliminated(u, shift)
        shift = shift if known_shift is None else known_shift
        return u, shift, c * self.size, float(np.sqrt(result.cost / len(self.size)))

    def split(self, x):
        """Row and theta of the vector that is fitted."""
        return (x, 0.0) if len(x) == len(self.V) else (x[:-1], float(np.clip(x[-1], -_LARGEST, _LARGEST)))

    def eliminated(self, u, shift):
        """Powers (m_2, d), an orthonormal basis of them (d, m_2), the coefficients that fit best, what these leave."""
        Phi, T = symmetric_power(np.column_stack([self.V, u]), self.order), self.targets(shift)
        lengths = np.maximum(np.linalg.norm(Phi, axis=1, keepdims=True), np.finfo(float).tiny)
        Q, R = np.linalg.qr((Phi / lengths).T)
        inside = T @ Q
        c = np.linalg.lstsq(R, inside.T, rcond=None)[0].T / lengths.T
        return Phi, Q, c, T - inside @ Q.T

    def cost(self, x):
        return float(np.sum(self.eliminated(*self.split(x))[3] ** 2))

    def linearise(self, x):
        """Gauss-Newton model with the coefficients eliminated."""
        u, shift = self.split(x)
        _, Q, c, left = self.eliminated(u, shift)
        change = power_jacobian(np.column_stack([self.V, u]), self.order)[:, :, -1].T
        change = change - Q @ (Q.T @ change)
        matrix, gradient = (change.T @ change) * (c.T @ c), -np.sum(c * (left @ change), axis=0)
        if len(x) == len(u):
            return DenseNormalEquations(matrix, gradient)
        moved = (self.targets(shift + _STEP) - self.targets(shift - _STEP)) / (2.0 * _STEP)
        moved = moved - moved @ Q @ Q.T
        mixed = -np.sum(c * (moved @ change), axis=0)
        matrix = np.block([[matrix, mixed[:, None]], [mixed[None], np.sum(moved**2)]])
        return DenseNormalEquations(matrix, np.append(gradient, np.sum(moved * left)))
