"""What follows a first layer, as far as it is known: rows of some units, all others saturated as in one cell."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.network import Activation, get_activation
from skident.optim import DenseNormalEquations, levenberg_marquardt

from ..assembling import preactivations_of
from ..damped_step import damped_step

__all__ = ["KnownUnits"]

_STEPS, _DAMPING = 2, 1e-13  # Gauss-Newton steps from starts that are good already
_EXACT, _CLEARLY, _HARDLY = 1e-15, 0.3, 0.9  # misfit that is none, parts of the cost that are progress, and none
_FIRST, _HARDER, _DAMPINGS = 1e-20, 1e3, 5  # damping of steps by QR
_LENGTHS = 1e-6  # relative error of lengths that are known beforehand


@dataclass(frozen=True)
class KnownUnits:
    """``f = sum_j v_j g(W_Kj . g(t_K + delta_K) + c_j) + v_0`` where all units but K are saturated as in a cell.

    Attributes
    ----------
    activation : Activation
        g.
    units : ndarray of int, shape (k,)
        K, first-layer units.
    shifts : ndarray of shape (k,)
        delta, what is to be added to their pre-activations.
    rows : ndarray of shape (k, m_2)
    biases : ndarray of shape (m_2,)
        c, what the others add included.
    readout : ndarray of shape (m_2, m_L)
    offset : ndarray of shape (m_L,)
    """

    activation: Activation
    units: np.ndarray
    shifts: np.ndarray
    rows: np.ndarray
    biases: np.ndarray
    readout: np.ndarray
    offset: np.ndarray

    @classmethod
    def from_patch(cls, patch, activation):
        """The free units of a known patch.

        Parameters
        ----------
        patch : KnownPatch
        activation : {"tanh", "erf"}

        Returns
        -------
        KnownUnits
        """
        shifts = preactivations_of(activation, patch.theta)
        return cls(
            get_activation(activation), patch.free, shifts, patch.rows, patch.shifts, patch.readout, patch.offset
        )

    def levels(self, outputs, chosen):
        """Pre-activations as known at which some units have given outputs.

        Parameters
        ----------
        outputs : ndarray of shape (n, q)
        chosen : ndarray of int, shape (n, q)
            Places in `units`.

        Returns
        -------
        ndarray of shape (n, q)
        """
        return preactivations_of(self.activation.name, outputs) - self.shifts[chosen]

    def read(self, Z):
        """What second-layer units read.

        Parameters
        ----------
        Z : ndarray of shape (n, m_1)
            Pre-activations as known, of all units.

        Returns
        -------
        ndarray of shape (n, m_2)
        """
        return self.activation(Z[:, self.units] + self.shifts) @ self.rows + self.biases

    def joined_by(self, unit, sign, row, shift):
        """The same with one more unit.

        Parameters
        ----------
        unit : int
        sign : float
            Its saturated output in the cell, which `biases` include.
        row : ndarray of shape (m_2,)
        shift : float

        Returns
        -------
        KnownUnits
        """
        return replace(
            self,
            units=np.append(self.units, unit),
            shifts=np.append(self.shifts, shift),
            rows=np.vstack([self.rows, row]),
            biases=self.biases - sign * row,
        )

    def misfit(self, Z, Y):
        """Of answers, relative to their deviation.

        Parameters
        ----------
        Z : ndarray of shape (n, m_1)
        Y : ndarray of shape (n, m_L)

        Returns
        -------
        float
        """
        left = self.activation(self.read(Z)) @ self.readout + self.offset - Y
        return float(np.linalg.norm(left) / max(np.linalg.norm(Y - Y.mean(axis=0)), np.finfo(float).tiny))

    def fitted(self, Z, Y, max_iter):
        """All of it fitted to answers, from a start that need not be near.

        Parameters
        ----------
        Z : ndarray of shape (n, m_1)
        Y : ndarray of shape (n, m_L)
        max_iter : int
            Levenberg-Marquardt steps.

        Returns
        -------
        KnownUnits
        """
        problem = DownstreamOfKnownUnits(Z[:, self.units], Y, self.activation)
        options = {"max_iter": max_iter, "damping": 1e-6, "target": _EXACT**2 * problem.total}
        return self._from(
            problem, levenberg_marquardt(problem.cost, problem.linearise, self._vector(problem), **options).x
        )

    def refined(self, Z, Y, max_iter=_STEPS, before_a_step=None):
        """All of it and the units' lengths by Gauss-Newton steps, each by QR: also what answers hardly tell improves.

        Parameters
        ----------
        Z : ndarray of shape (n, m_1)
        Y : ndarray of shape (n, m_L)
        max_iter : int, default=2
        before_a_step : callable, default=None
            What it raises ends the fit.

        Returns
        -------
        known : KnownUnits
        stretch : ndarray of shape (k,)
            Factors of the units' pre-activations with which this is so, about 1.
        """
        problem = DownstreamOfKnownUnits(Z[:, self.units], Y, self.activation, norms_free=True)
        x, damping = self._vector(problem), _FIRST
        for _ in range(max_iter):
            if problem.cost(x) <= _EXACT**2 * problem.total:
                break
            if before_a_step is not None:
                before_a_step()
            held = _HeldLengths(problem, x)
            cost, trials = held.cost(x), []
            R, lengths = _triangular(*held.linearised(x))
            for _ in range(_DAMPINGS):
                new = x + damped_step(R, damping) / lengths
                trials.append((held.cost(new), damping, new))
                if trials[-1][0] < _CLEARLY * cost:
                    break
                damping *= _HARDER
            trial, damping, new = min(trials, key=lambda trial: trial[0])
            if not trial < _HARDLY * cost:
                break
            x, damping = new, damping / _HARDER
        return self._from(problem, x), problem.split(x)[1]

    def _vector(self, problem):
        """As a vector of the problem."""
        V = np.vstack([self.readout, self.offset - problem.offset]) / problem.scale
        W = np.vstack([self.rows, self.biases])
        return problem.join(self.shifts, np.ones(len(self.units)), W, V)

    def _from(self, problem, x):
        """The same with what a vector of the problem says."""
        shifts, _, W, V = problem.split(x)
        readout, offset = V[:-1] * problem.scale, V[-1] * problem.scale + problem.offset
        return replace(self, shifts=shifts, rows=W[:-1], biases=W[-1], readout=readout, offset=offset)

    def newest_refined(self, Z, Y, n_newest, signs):
        """The last units' rows and shifts fitted to answers by Gauss-Newton steps.

        Parameters
        ----------
        Z : ndarray of shape (n, m_1)
        Y : ndarray of shape (n, m_L)
        n_newest : int
        signs : ndarray of shape (n_newest,)
            Saturated outputs with which they joined: what is read where they have these does not change.

        Returns
        -------
        KnownUnits
        """
        problem = _Newest(self, Z, Y, n_newest, signs)
        x0 = np.column_stack([self.rows, self.shifts])[-n_newest:].ravel()
        x = levenberg_marquardt(problem.cost, problem.linearise, x0, max_iter=_STEPS, damping=_DAMPING).x
        new = x.reshape(n_newest, -1)
        rows, shifts = self.rows.copy(), self.shifts.copy()
        rows[-n_newest:], shifts[-n_newest:] = new[:, :-1], new[:, -1]
        return replace(self, rows=rows, shifts=shifts, biases=self.biases - signs @ (rows - self.rows)[-n_newest:])


class _HeldLengths:
    """A problem whose lengths are known beforehand to 1e-6: that far off they cost as much as one residual does now.

    Free altogether, lengths mend errors of rows that answers hardly tell, and the walk goes astray.
    """

    def __init__(self, problem, x):
        self.problem, self.weight = problem, np.sqrt(problem.cost(x) / problem.Y.size) / _LENGTHS

    def cost(self, x):
        """Sum of squares."""
        return self.problem.cost(x) + self.weight**2 * float(np.sum((self.problem.split(x)[1] - 1.0) ** 2))

    def linearised(self, x):
        """Jacobian and what a step is to take away."""
        k = self.problem.n_known
        J = np.vstack([self.problem.jacobian(x), np.zeros((k, len(x)))])
        J[-k:, k : 2 * k] = self.weight * np.eye(k)
        left = np.append(self.problem.residual(x).ravel(), self.weight * (self.problem.split(x)[1] - 1.0))
        return J, -left


def _triangular(J, y):
    """R of the QR factors of J, columns scaled, and y, (p + 1, p + 1), and the lengths of the columns."""
    lengths = np.linalg.norm(J, axis=0)
    lengths[lengths == 0.0] = 1.0
    return np.linalg.qr(np.column_stack([J / lengths, y]), mode="r"), lengths


class _Newest:
    """``|f - Y|^2`` as a function of the rows and shifts of the last units, (r, m_2 + 1) as one vector."""

    def __init__(self, known, Z, Y, n_newest, signs):
        self.known, self.signs, self.Y = known, signs, Y - known.offset
        self.size = max(float(np.linalg.norm(Y - Y.mean(axis=0))), np.finfo(float).tiny)
        self.t = Z[:, known.units[-n_newest:]]
        moved = known.activation(self.t + known.shifts[-n_newest:]) - signs
        self.rest = known.read(Z) - moved @ known.rows[-n_newest:]

    def parts(self, x):
        """Rows (r, m_2), outputs less their signs (n, r) and slopes of these."""
        new = x.reshape(len(self.signs), -1)
        h, slopes = self.known.activation.jet(self.t + new[:, -1], 1)
        return new[:, :-1], h - self.signs, slopes

    def cost(self, x):
        """Sum of squares."""
        W, moved, _ = self.parts(x)
        return float(np.sum((self.known.activation(self.rest + moved @ W) @ self.known.readout - self.Y) ** 2)) / (
            self.size**2
        )

    def linearise(self, x):
        """Gauss-Newton model."""
        W, moved, by_shift = self.parts(x)
        g, slopes = self.known.activation.jet(self.rest + moved @ W, 1)
        B = slopes[:, None, :] * self.known.readout.T / self.size
        by_row = moved[:, None, :, None] * B[:, :, None, :]
        J = np.concatenate([by_row, ((B @ W.T) * by_shift[:, None])[..., None]], axis=3).reshape(self.Y.size, -1)
        left = (g @ self.known.readout - self.Y).ravel() / self.size
        A = J.T @ J
        A.flat[:: len(A) + 1] += np.diag(A) == 0.0
        return DenseNormalEquations(A, J.T @ left)
