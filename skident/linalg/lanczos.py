"""The smallest eigenvalue of a symmetric operator known by its products."""

from __future__ import annotations

import numpy as np

__all__ = ["lanczos"]


def lanczos(product, shape, starts, max_products=400, tol=1e-9):
    """Smallest eigenvalue of a symmetric operator and its vector, by Lanczos with full reorthogonalisation.

    Parameters
    ----------
    product : callable
        Takes and returns arrays of `shape`.
    shape : tuple of int
    starts : sequence of arrays of `shape`
        Added up for the start, turned to agree with the first, which must not be zero.
    max_products : int, default=400
        Fewer where as many vectors would take more than 256 MB.
    tol : float, default=1e-9
        Residual relative to the largest Ritz value at which to stop.

    Returns
    -------
    value : float
        A Rayleigh quotient, so never below the smallest eigenvalue.
    vector : ndarray of `shape`
        Of unit norm.
    n_products : int
    converged : bool

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg.lanczos import lanczos
    >>> value, vector, n_products, converged = lanczos(lambda u: np.arange(5.0) * u - u, (5,), [np.ones(5)])
    >>> print(round(value, 10), converged)
    -1.0 True
    """
    size = int(np.prod(shape))
    steps = min(max_products, size, max(20, 2**25 // size))
    Q, alphas, betas = np.zeros((steps, size)), [], []
    units = [np.ravel(s) / max(np.linalg.norm(s), 1e-300) for s in starts]
    q = np.sum([u if u @ units[0] >= 0 else -u for u in units], axis=0)  # opposite ones would cancel
    q = q / np.linalg.norm(q)
    for j in range(steps):
        Q[j] = q
        w = np.ravel(product(q.reshape(shape)))
        alphas.append(float(q @ w))
        for _ in range(2):
            w = w - Q[: j + 1].T @ (Q[: j + 1] @ w)
        beta = float(np.linalg.norm(w))
        exhausted = not beta > 1e-14 * max(map(abs, alphas + betas))
        if j % 10 == 9 or j + 1 == steps or exhausted:
            values, vectors = np.linalg.eigh(np.diag(alphas) + np.diag(betas, 1) + np.diag(betas, -1))
            if exhausted or beta * abs(vectors[-1, 0]) <= tol * np.abs(values).max():
                break
        betas.append(beta)
        q = w / beta
    vector = Q[: j + 1].T @ vectors[:, 0]
    converged = bool(exhausted or j + 1 == size or beta * abs(vectors[-1, 0]) <= tol * np.abs(values).max())
    return float(values[0]), (vector / np.linalg.norm(vector)).reshape(shape), j + 1, converged
