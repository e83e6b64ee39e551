"""Many shallow networks trained at once by Levenberg-Marquardt in the space of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skident.optim import Ending, batched_levenberg_marquardt

__all__ = ["TRAINING", "ShallowBatch", "train_shallow_batch"]

TRAINING = Ending(max_iter=300, target=1e-8, damping=1e-2, max_damping=1e12)


@dataclass
class ShallowBatch:
    """Trained networks.

    Attributes
    ----------
    W : ndarray of shape (B, k, d)
    v : ndarray of shape (B, k)
    losses : ndarray of shape (B,)
        ``1/(2n) ||r||^2``.
    n_iter : ndarray of shape (B,)
        Steps tried.
    history : ndarray of shape (steps + 1, B)
        Losses after every step; a network that has ended keeps its last one.
    """

    W: np.ndarray
    v: np.ndarray
    losses: np.ndarray
    n_iter: np.ndarray
    history: np.ndarray


def train_shallow_batch(X, y, W, v, jet, *, data=None, train_output=True, ending=None):
    """Minimise ``1/(2n) sum_i (v . g(W x_i) - y_i)^2`` from many starts, on many data sets, as one batch.

    Parameters
    ----------
    X : ndarray of shape (E, n, d)
        Data sets.
    y : ndarray of shape (E, n)
    W : ndarray of shape (B, k, d)
        Starts.
    v : ndarray of shape (B, k)
    jet : callable
        ``jet(z, 1)`` returns g and g'.
    data : ndarray of int, shape (B,), default=None
        Which data set a start belongs to; None if there are as many starts as sets.
    train_output : bool, default=True
        Whether v is trained too.
    ending : Ending, default=None
        By default after 300 steps, or at a loss of 1e-8. The damping is in units of the mean eigenvalue of ``J J^T`` at
        the start.

    Returns
    -------
    ShallowBatch

    Notes
    -----
    With n rows and Jacobian J, the damped step is ``-J^T (J J^T + mu)^-1 r``, and ``J J^T`` is
    ``(A A^T) * (X X^T) + g g^T`` with ``A = v g'``: J itself is never formed. O(n^2 (k + d) + n^3) a step and network,
    batched products throughout; networks that have ended are taken out. Right for networks with about as many
    parameters as rows, which is where phase transitions are.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.batch_training import train_shallow_batch
    >>> rng = np.random.default_rng(0)
    >>> X, W = rng.standard_normal((1, 12, 5)), rng.standard_normal((3, 10, 5))
    >>> square = lambda z, order: (z * z, 2 * z)
    >>> signs = np.tile([1.0, -1.0], (3, 5))
    >>> batch = train_shallow_batch(X, rng.standard_normal((1, 12)), W, signs, square, data=np.zeros(3, dtype=int))
    >>> print(bool(np.all(batch.losses < 1e-8)))
    True
    """
    data = np.arange(len(W)) if data is None else np.asarray(data)
    ending = TRAINING if ending is None else ending
    x = np.concatenate([W, np.asarray(v)[..., None]], axis=2, dtype=np.float64)
    rows = _Rows(X, y, X @ X.transpose(0, 2, 1), jet, train_output)
    problems = _Networks(rows, data, np.ones(len(x)))
    problems.unit = problems.linearise(x).size
    result = batched_levenberg_marquardt(problems, x, ending)
    return ShallowBatch(result.x[..., :-1], result.x[..., -1], result.cost, result.n_iter, result.history)


@dataclass(frozen=True)
class _Rows:
    """Data sets, the Gram matrices of their inputs, and what is trained on them."""

    X: np.ndarray
    y: np.ndarray
    gram: np.ndarray
    jet: Callable
    train_output: bool


class _Networks:
    """Networks ``x = (W, v)`` (B, k, d + 1) as a batch of problems, in the space of their rows."""

    def __init__(self, rows, data, unit):
        self.rows, self.data, self.unit = rows, data, unit
        self.X, self.y, self.gram = rows.X[data], rows.y[data], rows.gram[data]

    def take(self, index):
        return _Networks(self.rows, self.data[index], self.unit[index])

    def units(self, x):
        """Residuals (B, n), values and slopes of the units (B, n, k)."""
        g, slope = self.rows.jet(self.X @ x[..., :-1].transpose(0, 2, 1), 1)
        return np.einsum("bnk,bk->bn", g, x[..., -1]) - self.y, g, slope

    def cost(self, x):
        with np.errstate(over="ignore", invalid="ignore"):
            return 0.5 * np.mean(self.units(x)[0] ** 2, axis=1)

    def linearise(self, x):
        residual, g, slope = self.units(x)
        return _RowModel(self, residual, g, slope * x[..., None, :, -1])

    def move(self, x, steps):
        return x + steps


class _RowModel:
    """``J J^T`` instead of ``J^T J``."""

    def __init__(self, problems, residual, g, A):
        self.problems, self.residual, self.g, self.A = problems, residual, g, A
        self.K = (A @ A.transpose(0, 2, 1)) * problems.gram
        if problems.rows.train_output:
            self.K += g @ g.transpose(0, 2, 1)
        self.size = np.maximum(np.einsum("bii->b", self.K) / self.K.shape[1], 1e-300)

    def solve(self, damping):
        # Never so small that rounding decides, which for a singular K would be a random step.
        damping = np.maximum(damping * self.problems.unit, 1e-13 * self.size)
        K = self.K.copy()
        np.einsum("bii->bi", K)[...] += damping[:, None]
        s = -np.linalg.solve(K, self.residual[..., None])[..., 0]
        step_W = (self.A * s[..., None]).transpose(0, 2, 1) @ self.problems.X
        trained = self.problems.rows.train_output
        step_v = np.einsum("bnk,bn->bk", self.g, s) if trained else np.zeros(step_W.shape[:2])
        # The linear model leaves r + J step = -damping s.
        predicted = 0.5 * np.mean(self.residual**2 - (damping[:, None] * s) ** 2, axis=1)
        return np.concatenate([step_W, step_v[..., None]], axis=2), predicted
