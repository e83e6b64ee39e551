"""Lanczos: the smallest eigenvalue of a symmetric operator known by its products."""

import numpy as np


def lanczos(product, shape, starts, max_products=400, tol=1e-9):
    """Smallest eigenvalue of a symmetric operator on arrays of `shape`, by Lanczos with full reorthogonalization.

    The start is the sum of `starts`, with signs that agree with the first, which must not be zero. At most
    `max_products` products, fewer if as many vectors take more than 256 MB; it ends at a residual of `tol`, relative to
    the largest Ritz value. Returns the value, a Rayleigh quotient and so never below the smallest eigenvalue, its unit
    vector, the number of products and whether it converged.
    """
    size = int(np.prod(shape))
    steps = min(max_products, size, max(20, 2**25 // size))
    Q, alphas, betas = np.zeros((steps, size)), [], []
    directions = [np.ravel(s) / max(np.linalg.norm(s), 1e-300) for s in starts]
    q = np.sum([u if u @ directions[0] >= 0 else -u for u in directions], axis=0)  # opposite ones would cancel
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
