"""Levenberg-Marquardt for many shallow networks at once, with linear systems of the order of the samples."""

import numpy as np

from skident.optim import Ending, batched_levenberg_marquardt

TRAINING = Ending(max_iter=300, target=1e-8, damping=1e-2, max_damping=1e12)


def train_shallow_batch(X, y, W, v, jet, *, data=None, train_output=True, ending=None):
    """Minimize ``1/(2n) sum_i (v . g(W x_i) - y_i)^2`` from many starts, on many data sets.

    Starts W (B, k, d), v (B, k); data sets X (E, n, d), y (E, n). ``jet(z, 1)`` returns g and g'; `data` (B,) is the
    data set of each start, None is one start per data set. v is fixed unless `train_output`. The damping of `ending` is
    relative to the mean eigenvalue of ``J J^T`` at the start. The `BatchedResult` has x (B, k, d + 1), W beside v, and
    as costs the losses.

    With n samples and Jacobian J, the damped step is ``-J^T (J J^T + mu)^-1 r``, and ``J J^T`` is ``(A A^T) * (X X^T) +
    g g^T`` with ``A = v g'``: J itself is never formed. O(n^2 (k + d) + n^3) per step and network, in batched products;
    networks that have ended are removed. Suited to networks with about as many parameters as samples, which is where
    phase transitions occur.
    """
    data = np.arange(len(W)) if data is None else np.asarray(data)
    ending = TRAINING if ending is None else ending
    x = np.concatenate([W, np.asarray(v)[..., None]], axis=2, dtype=np.float64)
    gram = X @ X.transpose(0, 2, 1)
    problems = _Networks((X[data], y[data], gram[data], np.ones(len(x))), jet, train_output)
    problems.unit[:] = problems.linearize(x).size
    return batched_levenberg_marquardt(problems, x, ending)


class _Networks:
    """Networks ``x = (W, v)`` (B, k, d + 1) as a batch of least squares problems.

    `arrays` are the inputs, targets and Gram matrix of the data set of each, and the unit of its damping.
    """

    def __init__(self, arrays, jet, train_output):
        self.arrays, self.jet, self.train_output = arrays, jet, train_output
        self.X, self.y, self.gram, self.unit = arrays

    def take(self, index):
        return _Networks(tuple(array[index] for array in self.arrays), self.jet, self.train_output)

    def units(self, x):
        """Residuals (B, n), values and slopes of the units (B, n, k)."""
        g, slope = self.jet(self.X @ x[..., :-1].transpose(0, 2, 1), 1)
        return np.einsum("bnk,bk->bn", g, x[..., -1]) - self.y, g, slope

    def cost(self, x):
        with np.errstate(over="ignore", invalid="ignore"):
            return 0.5 * np.mean(self.units(x)[0] ** 2, axis=1)

    def linearize(self, x):
        residual, g, slope = self.units(x)
        return _RowModel(self, residual, g, slope * x[..., None, :, -1])


class _RowModel:
    """Linear models solved with ``J J^T`` (order n) instead of ``J^T J``."""

    def __init__(self, problems, residual, g, A):
        self.problems, self.residual, self.g, self.A = problems, residual, g, A
        self.K = (A @ A.transpose(0, 2, 1)) * problems.gram
        if problems.train_output:
            self.K += g @ g.transpose(0, 2, 1)
        self.size = np.maximum(np.einsum("bii->b", self.K) / self.K.shape[1], 1e-300)

    def solve(self, damping):
        # Never so small that rounding decides, which for a singular K would be a random step.
        damping = np.maximum(damping * self.problems.unit, 1e-13 * self.size)
        K = self.K.copy()
        np.einsum("bii->bi", K)[...] += damping[:, None]
        s = -np.linalg.solve(K, self.residual[..., None])[..., 0]
        step_W = (self.A * s[..., None]).transpose(0, 2, 1) @ self.problems.X
        trained = self.problems.train_output
        step_v = np.einsum("bnk,bn->bk", self.g, s) if trained else np.zeros(step_W.shape[:2])
        # The linear model leaves r + J step = -damping s.
        predicted = 0.5 * np.mean(self.residual**2 - (damping[:, None] * s) ** 2, axis=1)
        return np.concatenate([step_W, step_v[..., None]], axis=2), predicted
