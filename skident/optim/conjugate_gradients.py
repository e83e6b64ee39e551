"""Conjugate gradients for symmetric systems known by their products."""

from dataclasses import dataclass
from typing import Any

from skident.budget import check_deadline


@dataclass(frozen=True)
class LinearSolution:
    """Where conjugate gradients ended.

    Attributes
    ----------
    x : array of shape (P,)
    residual : array of shape (P,)
        ``b - A x``.
    n_products : int
    """

    x: Any
    residual: Any
    n_products: int


def conjugate_gradients(product, right, *, precondition=None, tol=1e-6, own_norm=False, max_iter=400):
    """Solve ``A x = b`` from x = 0, until a direction of curvature that is not positive.

    Parameters
    ----------
    product : callable
        ``v -> A v``.
    right : array of shape (P,)
        b, of NumPy or torch.
    precondition : callable, default=None
        ``v -> M^-1 v`` with M close to A and positive definite.
    tol : float, default=1e-6
        Residual, relative to b, at which the iteration ends.
    own_norm : bool, default=False
        Measure residuals in the preconditioner's norm, ``r^T M^-1 r``, instead of the Euclidean one.
    max_iter : int, default=400
        Products at most.

    Returns
    -------
    LinearSolution

    Notes
    -----
    One product and one call of the preconditioner per iteration, in ``O(P)`` memory. `scipy.sparse.linalg.cg` is the
    same recurrence without the check of the curvature, this norm, and torch.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import conjugate_gradients
    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> print(conjugate_gradients(lambda v: A @ v, np.array([3.0, 4.0]), tol=1e-12).x.round(10))
    [1. 1.]
    """
    x, r, n_products = 0.0 * right, right, 0
    z = r if precondition is None else precondition(r)
    p, rz = z, float(r @ z)
    stop = tol**2 * (rz if own_norm else float(r @ r))
    while n_products < max_iter and rz > 0.0:
        check_deadline()
        Ap = product(p)
        n_products += 1
        curvature = float(p @ Ap)
        if not curvature > 0.0:
            break
        x, r = x + (rz / curvature) * p, r - (rz / curvature) * Ap
        left = float(r @ r)
        if left <= (0.0 if own_norm else stop):
            break
        z = r if precondition is None else precondition(r)
        rz, previous = float(r @ z), rz
        if own_norm and not rz > stop:
            break
        p = z + (rz / previous) * p
    return LinearSolution(x, r, n_products)
