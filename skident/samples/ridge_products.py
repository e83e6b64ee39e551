"""Gauss-Newton matrices of many ridges, known by their products: no matrix of parameters squared is formed."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from skident.budget.constants import ROWS_PER_PARAMETER
from skident.optim import KrylovNormalEquations

__all__ = ["MATRIX_PARAMETERS", "PRODUCT_PARAMETERS", "RidgeProducts"]

PRODUCT_PARAMETERS = 300  # from which on products are cheaper than the matrix
MATRIX_PARAMETERS = 1200  # from which on the matrix is not formed at all (memory)
_SIGN_NUMBERS = 2**25  # of signs that are kept: 128 MB
_TOL = 5e-2  # relative residual of the conjugate gradients of a step (inexact Gauss-Newton)
_MOST_PRODUCTS = 30  # conjugate gradient iterations of a step at most (budget)
_LEAST_EIGENVALUE = 1e-7  # of an eigenvalue of the preconditioner, relative to the largest


class RidgeProducts:
    """``J^T W J`` of a ridge model over rows, by its products, and a preconditioner of Kronecker form.

    Column (i, e) of J is ``sigma_i(z) x_e`` with ``x = (z, 1)`` and sigma the slopes of the ridges, 1 for the skip. As
    z is white, ``E[sigma_i sigma_j x x^T]`` is close to ``E[sigma_i sigma_j] I``: the matrix of the slopes, (m + 1)
    squared, is the preconditioner.
    """

    def __init__(self, sample, rng, model):
        most = min(_SIGN_NUMBERS // (model.n_units + 1), ROWS_PER_PARAMETER * model.n_parameters)
        part = sample.draw(max(1024, most), rng)
        Z, _, self.w = part.arrays(np.float32)
        self.X = np.column_stack([Z, np.ones(len(Z), np.float32)])
        self.total = part.total

    def normal_equations(self, model, gradient, scale):
        """The linearization at a model.

        gradient (P,).
        """
        X, w, m = self.X, self.w[:, None], model.n_units
        slopes = np.ones((len(X), m + 1), np.float32)
        t = X @ np.vstack([model.V, model.beta]).astype(np.float32)
        slopes[:, :m] = model.slopes(t)
        last = slice(None) if model.skip else slice(-1, None)  # coordinates of x in which the last slope is fitted
        buffer = np.empty_like(slopes)

        def product(v):
            D = _columns(v, m, X.shape[1], last)
            np.matmul(X, D.astype(np.float32), out=buffer)
            np.multiply(buffer, slopes, out=buffer)
            along = w * buffer.sum(axis=1, keepdims=True)
            np.multiply(slopes, along, out=buffer)
            return scale * _packed((X.T @ buffer).astype(np.float64), m, last)

        gram = scale * (slopes.T @ (w * slopes)).astype(np.float64)
        diagonal = np.concatenate([np.repeat(np.diag(gram)[:m], X.shape[1]), np.repeat(gram[m, m], _size(last, X))])
        values, vectors = scipy.linalg.eigh(gram)

        def preconditioner(damping):
            inverse = 1.0 / (np.maximum(values, _LEAST_EIGENVALUE * values[-1]) + damping * gram[m, m])
            matrix = (vectors * inverse) @ vectors.T
            return lambda v: _packed(_columns(v, m, X.shape[1], last) @ matrix, m, last)

        return KrylovNormalEquations(product, gradient, diagonal, preconditioner, tol=_TOL, max_iter=_MOST_PRODUCTS)


def _size(last, X):
    return len(range(X.shape[1])[last])


def _columns(v, m, k1, last):
    """A vector of parameters as a matrix, a column of (z, 1) for every slope."""
    D = np.zeros((k1, m + 1))
    D[:, :m] = v[: m * k1].reshape(m, k1).T
    D[last, m] = v[m * k1 :]
    return D


def _packed(D, m, last):
    return np.concatenate([D[:, :m].T.ravel(), D[last, m]])
