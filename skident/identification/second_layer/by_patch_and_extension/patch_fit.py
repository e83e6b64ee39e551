"""The shallow network of a patch, fitted to answers over all of it, shifts and lengths of its free units with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ..damped_step import damped_step

__all__ = ["PatchFit", "Shallow"]

_INDEPENDENT = 1e-15  # part of a column of outputs that is its own
_TYPICAL_READOUT = 0.3  # times the size of the answers
_RIDGE = 1e-2  # part of the misfit that typical output weights may cost
_SCALES = (0.1, 1.0, 1e-5, 1e-6)  # of rows, shifts, deltas and stretch: a step that is one
_DAMPING = 1e-2  # at first, times the squared misfit
_QUIET = 2  # steps
_TRIES, _EASED, _FARTHEST, _LEAST = 12, 20.0, 50.0, 1e-40  # dampings a step, their decrease, steps refused unseen


@dataclass(frozen=True)
class Shallow:
    """What is nonlinear in ``f = tanh(H @ rows + shifts[cell]) @ v + v_0``, ``H = tanh(t * stretch + deltas[cell])``.

    Attributes
    ----------
    rows : ndarray of shape (k, m_2)
    shifts : ndarray of shape (G, m_2)
        In every cell.
    deltas : ndarray of shape (G, k)
        What the free units' pre-activations lack, in every cell: directions that are wrong by 1e-13 move hyperplanes
        by 1e-10 where the cell is far out.
    stretch : ndarray of shape (k,)
        Factors of these units' lengths, about 1.
    """

    rows: np.ndarray
    shifts: np.ndarray
    deltas: np.ndarray
    stretch: np.ndarray

    @property
    def vector(self):
        """All numbers in one array, (P,)."""
        return np.concatenate([self.rows.ravel(), self.shifts.ravel(), self.deltas.ravel(), self.stretch])

    def like(self, vector):
        """The same from such an array.

        Parameters
        ----------
        vector : ndarray of shape (P,)

        Returns
        -------
        Shallow
        """
        parts = [self.rows, self.shifts, self.deltas, self.stretch]
        pieces = np.split(vector, np.cumsum([part.size for part in parts])[:-1])
        return Shallow(*(piece.reshape(part.shape) for piece, part in zip(pieces, parts, strict=True)))

    def units(self, index):
        """Some of the second-layer units.

        Parameters
        ----------
        index : ndarray of int or bool

        Returns
        -------
        Shallow
        """
        return Shallow(self.rows[:, index], self.shifts[:, index], self.deltas, self.stretch)

    def beside(self, rows, shifts):
        """With further units.

        Parameters
        ----------
        rows : ndarray of shape (k, n)
        shifts : ndarray of shape (G, n)

        Returns
        -------
        Shallow
        """
        return Shallow(np.hstack([self.rows, rows]), np.hstack([self.shifts, shifts]), self.deltas, self.stretch)


class PatchFit:
    """Least squares over answers in cells that have the same free units.

    Parameters
    ----------
    T : ndarray of shape (n, k)
        Pre-activations of the free units as known.
    cells : ndarray of int, shape (n,)
        Where the answers are from.
    Y : ndarray of shape (n, m_L)
    one_offset : bool, default=True
        For all cells, as is true; else one for each.
    before_a_step : callable, default=None
        What it raises ends the fit.

    Notes
    -----
    Output weights are eliminated, a small ridge on them included, whose size falls with the misfit; steps are damped in
    natural units, rows by 0.1 and shifts by 1, not by how much they matter. So what the answers do not tell yet, as of
    units that are all but saturated in both cells, stays where it is until the rest is known so well that they do;
    without both, such units run away to shifts and output weights that are large and cancel. What they add to the
    difference between cells ties their output weights, and so, exponentially, their shifts: with an offset for each
    cell the valley from one shift to another is straight, and only the last steps are taken with one for all.
    """

    def __init__(self, T, cells, Y, one_offset=True, before_a_step=None):
        self.T, self.cells = T, cells
        self.before_a_step = (lambda: None) if before_a_step is None else before_a_step
        self.hot = np.eye(cells.max() + 1)[cells]
        self.constants = np.ones((len(T), 1)) if one_offset else self.hot
        self.offset = Y.mean(axis=0)
        self.size = max(float(np.linalg.norm(Y - self.offset)), np.finfo(float).tiny)
        self.Y = (Y - self.offset) / self.size

    def apart(self):
        """The same answers with an offset for each cell.

        Returns
        -------
        PatchFit
        """
        return PatchFit(self.T, self.cells, self.Y, one_offset=False, before_a_step=self.before_a_step)

    def misfit(self, shallow, ridge=0.0):
        """Relative misfit with the best output weights.

        Parameters
        ----------
        shallow : Shallow
        ridge : float, default=0

        Returns
        -------
        float
        """
        return float(np.linalg.norm(self.eliminated(shallow, ridge)[-1]))

    def outputs(self, shallow):
        """Of both hidden layers.

        Parameters
        ----------
        shallow : Shallow

        Returns
        -------
        H : ndarray of shape (n, k)
        A : ndarray of shape (n, m_2)
        """
        H = np.tanh(self.T * shallow.stretch + shallow.deltas[self.cells])
        return H, np.tanh(H @ shallow.rows + shallow.shifts[self.cells])

    def readout(self, shallow):
        """The best output weights and offset.

        Parameters
        ----------
        shallow : Shallow

        Returns
        -------
        weights : ndarray of shape (m_2, m_L)
        offset : ndarray of shape (m_L,)
        """
        v = self.eliminated(shallow, 0.0)[3] * self.size
        return v[:-1], v[-1] + self.offset

    def eliminated(self, shallow, ridge):
        """The best output weights of the answers over their size, and what they leave.

        Parameters
        ----------
        shallow : Shallow
        ridge : float
            Rows ``ridge v = 0`` are put below.

        Returns
        -------
        H : ndarray of shape (n, k)
        A : ndarray of shape (n, m_2)
        Q : ndarray of shape (n + m_2, m_2 + 1)
            Orthonormal basis of the outputs and the constant, and of the ridge; with an offset for each cell wider.
        v : ndarray of shape (m_2 + 1, m_L)
            Offsets last.
        left : ndarray of shape (n + m_2, m_L)
        """
        H, A = self.outputs(shallow)
        m = A.shape[1]
        ones = np.vstack([self.constants, np.zeros((m, self.constants.shape[1]))])
        M = np.column_stack([np.vstack([A, ridge * np.eye(m)]), ones])
        Y = np.vstack([self.Y, np.zeros((m, self.Y.shape[1]))])
        Q, R = np.linalg.qr(M)
        v = scipy.linalg.lstsq(R, Q.T @ Y, cond=_INDEPENDENT, lapack_driver="gelsy")[0]
        return H, A, Q, v, Y - M @ v

    def jacobian(self, shallow, ridge):
        """How the answers change, output weights eliminated (Kaufman's form), and what is left of them.

        Parameters
        ----------
        shallow : Shallow
        ridge : float

        Returns
        -------
        J : ndarray of shape (m_L (n + m_2), P)
        left : ndarray of shape (m_L (n + m_2),)
        """
        H, A, Q, v, left = self.eliminated(shallow, ridge)
        n, V, slopes = len(H), v[: A.shape[1]], 1.0 - A**2

        def outside(changes):
            padded = np.concatenate([changes, np.zeros((len(Q) - n, changes.shape[1]))])
            return padded - Q @ (Q[:n].T @ changes)

        parts = [slopes[:, None] * part[:, :, None] for part in (H, self.hot)]
        of_units = outside(np.concatenate(parts, axis=1).reshape(n, -1))
        blocks = []
        for w in V.T:
            through = ((slopes * w) @ shallow.rows.T) * (1.0 - H**2)
            coordinates = np.concatenate([*(through * hot[:, None] for hot in self.hot.T), through * self.T], axis=1)
            blocks.append(np.hstack([of_units * np.tile(w, of_units.shape[1] // len(w)), outside(coordinates)]))
        return np.concatenate(blocks), left.T.ravel()

    def improved(self, shallow, max_iter, *, damping=None, free=False, slow=0.0, target=0.0):
        """Levenberg-Marquardt in natural units.

        Parameters
        ----------
        shallow : Shallow
        max_iter : int
        damping : float, default=None
            The first one; None: 0.01 times the squared misfit.
        free : bool, default=False
            Without the ridge, for the last steps.
        slow : float, default=0
            Relative decrease of the squared misfit; two steps in a row that give less are the last ones.
        target : float, default=0
            Misfit that is low enough.

        Returns
        -------
        Shallow
        """
        x, scales = shallow.vector, _scales(shallow)
        misfit = self.misfit(shallow)
        damping, quiet = _DAMPING * misfit**2 if damping is None else damping, 0
        for _ in range(max_iter):
            self.before_a_step()
            ridge = 0.0 if free else _RIDGE * misfit / (_TYPICAL_READOUT * np.sqrt(shallow.rows.shape[1]))
            at = shallow.like(x)
            before = self.misfit(at, ridge) ** 2
            step, after, damping = self._step(at, ridge, damping, scales)
            if step is None:
                break
            x = x + step
            misfit = self.misfit(shallow.like(x))
            quiet = quiet + 1 if after > (1.0 - slow) * before else 0
            if misfit <= target or quiet == _QUIET:
                break
        return shallow.like(x)

    def _step(self, at, ridge, damping, scales):
        """A step that lowers the cost, the cost then and the next damping; None where no damping gives one."""
        J, left = self.jacobian(at, ridge)
        J *= scales
        P, cost, growth = J.shape[1], float(left @ left), 2.0
        R = scipy.linalg.qr(np.column_stack([J, left]), mode="r", overwrite_a=True, check_finite=False)[0][: P + 1]
        factor, R, y, beyond = R[:P], R[:P, :P], R[:P, P], float(R[P, P] ** 2)
        for _ in range(_TRIES):
            damping = max(damping, _LEAST)
            s = damped_step(factor, damping)
            after = np.inf
            if s is not None and np.abs(s).max() < _FARTHEST:
                after = self.misfit(at.like(at.vector + s * scales), ridge) ** 2
            if after < cost:
                predicted = float(np.sum((R @ s - y) ** 2)) + beyond
                ratio = (cost - after) / max(cost - predicted, np.finfo(float).tiny)
                return s * scales, after, damping * max(1.0 / _EASED, 1.0 - (2.0 * ratio - 1.0) ** 3)
            damping, growth = damping * 2.0 * growth, 2.0 * growth
        return None, cost, damping


def _scales(shallow):
    """Natural units of all numbers, (P,)."""
    parts = (shallow.rows, shallow.shifts, shallow.deltas, shallow.stretch)
    return np.concatenate([np.full(part.size, scale) for part, scale in zip(parts, _SCALES, strict=True)])
