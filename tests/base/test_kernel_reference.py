"""Kernel ridge regression as a reference: its leave-one-out errors are those of leaving one out."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF

from skident.base import kernel_reference
from skident.base.kernel_reference import kernel_squared_errors


def test_errors_are_those_of_leaving_one_out(monkeypatch):
    monkeypatch.setattr(kernel_reference, "_WIDTHS", (1.0,))
    monkeypatch.setattr(kernel_reference, "_RIDGES", np.array([0.1]))
    rng = np.random.RandomState(0)
    X = rng.standard_normal((20, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(20)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    distances = ((Z[:, None] - Z) ** 2).sum(axis=2).mean()
    K = RBF(np.sqrt(distances / 2))(Z)
    errors = []
    for i in range(20):
        rest = np.arange(20) != i
        # Ridge with a constant that is not penalised: the bordered system.
        A = np.block(
            [[K[np.ix_(rest, rest)] + 0.1 * np.eye(19), np.ones((19, 1))], [np.ones((1, 19)), np.zeros((1, 1))]]
        )
        solution = np.linalg.solve(A, np.append(y[rest], 0.0))
        errors.append((K[i, rest] @ solution[:-1] + solution[-1] - y[i]) ** 2)
    np.testing.assert_allclose(kernel_squared_errors(X, y), errors, rtol=1e-8)
