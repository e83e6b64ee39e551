"""Least squares over all hyperplanes and coefficients of two classes without the matrix, for large networks."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import LinearOperator, lsqr

from skident.budget import check_deadline
from skident.budget.constants import RIDGE_OF_PRODUCTS
from skident.linalg import lapack

from .points import sizes

__all__ = ["jumps_fitted"]

_MAX_STEPS = 600  # of the iteration (budget)
_TOL = 1e-8  # fall of the residual, and its gradient, relative, at which the iteration ends; further fits follow
_NEAR_BEND = 1e-5  # distance from a hyperplane within which the side of a point is uncertain
_WRONG = 1e-4  # distance from the predicted boundary, over 1 + |x|, of a point of another unit


def jumps_fitted(H, column, X, enough=0.0):
    """Hyperplanes (m, D + 1) and coefficients (m + D + 1,) of ``column @ (|z|, x, 1) = 0`` fitted to points X (n, D).

    With fixed signs of z the equation is linear in each unit's jump, coefficient times hyperplane, and in the affine
    part. Preconditioned by the Kronecker product of the moments of signs and of inputs. The iteration ends at residuals
    of `enough`, relative to 1 + |x|, in root mean square.
    """
    m, one = len(H), np.column_stack([X, np.ones(len(X))])
    z = one @ H.T
    B = np.column_stack([np.sign(z), np.ones(len(X))])
    U = np.vstack([column[:m, None] * H, column[m:]])
    slopes = np.linalg.norm(B @ U[:, :-1], axis=1)
    B, one = B / slopes[:, None], one / sizes(X)[:, None]
    r = -np.sum(B * (one @ U.T), axis=1)
    keep = (np.min(np.abs(z), axis=1, initial=np.inf) > _NEAR_BEND) & (np.abs(r) < _WRONG)
    B, one, r = B[keep], one[keep], r[keep]
    S, C = (_factor(A.T @ A / len(A)) for A in (B, one))

    def half(v, adjoint):
        V = v.reshape(U.shape)
        return _solved(S, _solved(C, V.T, adjoint).T, adjoint)

    def forward(v):
        check_deadline()
        return np.sum(B * (one @ half(v, False).T), axis=1)

    def backward(e):
        return half((B * e[:, None]).T @ one, True).ravel()

    A = LinearOperator((len(r), U.size), matvec=forward, rmatvec=backward, dtype=float)
    fall = max(_TOL, enough * np.sqrt(len(r)) / max(np.linalg.norm(r), np.finfo(float).tiny))
    U = U + half(lsqr(A, r, atol=_TOL, btol=fall, iter_lim=_MAX_STEPS)[0], False)
    size = np.linalg.norm(U[:m, :-1], axis=1)
    sign = np.sign(np.sum(U[:m] * H, axis=1))
    return sign[:, None] * U[:m] / size[:, None], np.append(sign * size, U[m])


def _factor(A):
    return lapack.cholesky(A + RIDGE_OF_PRODUCTS * np.mean(np.diag(A)) * np.eye(len(A)))


def _solved(L, V, adjoint):
    """``L^-T V`` or its adjoint ``L^-1 V``."""
    return solve_triangular(L, V, lower=True, trans=0 if adjoint else 1)
