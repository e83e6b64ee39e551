"""Second derivatives of shallow networks' losses by their products: the most negative curvature and its direction."""

from __future__ import annotations

import numpy as np

from .descent import form_hessian_product, null_vectors

__all__ = [
    "explicit_directions",
    "loss_derivatives",
    "quadratic_curvature_bound",
    "quadratic_product",
    "rayleigh",
    "shallow_hessian_product",
]


def loss_derivatives(W, v, X, y, jet):
    """Loss, gradient and what Hessian products need, of ``1/(2n) sum_i (v . g(W x_i) - y_i)^2``, eqs. (5.2) and (5.7).

    Parameters
    ----------
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    jet : callable
        ``jet(z, 2)`` returns g, g', g''.

    Returns
    -------
    loss : float
    gradient : ndarray of shape (k, d)
    slopes, bends : ndarray of shape (n, k)
        ``v_l g'(z_il)`` and ``r_i v_l g''(z_il)``.
    """
    g, g1, g2 = jet(X @ W.T, 2)
    r = g @ v - y
    slopes = g1 * v
    return 0.5 * float(r @ r) / len(y), (slopes * (r / len(y))[:, None]).T @ X, slopes, g2 * v * r[:, None]


def shallow_hessian_product(X, slopes, bends, U):
    """The Hessian of `loss_derivatives` applied to U (k, d): O(n k d).

    Parameters
    ----------
    X : ndarray of shape (n, d)
    slopes, bends : ndarray of shape (n, k)
        From `loss_derivatives`.
    U : ndarray of shape (k, d)

    Returns
    -------
    ndarray of shape (k, d)
    """
    moved = X @ U.T
    along = np.einsum("il,il->i", slopes, moved)
    return ((slopes * along[:, None] + bends * moved) / len(X)).T @ X


def quadratic_curvature_bound(v, gradient_values):
    """``2 min_l v_l lambda`` over output weights v and the eigenvalues of the gradient with respect to M.

    The Hessian of a quadratic network is ``2 D_v (x) G`` plus a positive part, so no curvature is below this.

    Parameters
    ----------
    v : ndarray of shape (k,)
    gradient_values : ndarray of shape (d,)
        Ascending.

    Returns
    -------
    float
        Not positive.
    """
    extremes = np.outer([v.max(initial=0.0), v.min(initial=0.0)], [gradient_values[0], gradient_values[-1]])
    return 2.0 * float(min(extremes.min(), 0.0))


def explicit_directions(W, v, gradient):
    """Directions ``a b^T`` of unit norm with no slope: a null vector of ``W^T D_v`` and an eigenvector of the gradient.

    Their curvature is ``2 (a^T D_v a) (b^T G b)`` (eq. 6.12); the null vectors with the largest and the smallest
    ``a^T D_v a`` are paired with the lowest and the highest eigenvalue.

    Parameters
    ----------
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    gradient : ndarray of shape (d, d)
        G, of the loss with respect to M.

    Returns
    -------
    list of (float, ndarray of shape (k, d))
        Curvature and direction, the most negative first; empty where there are no null vectors.
    """
    # Of many units those with the largest and the smallest output weights are enough: d + 1 have a null vector.
    some = np.argsort(v, kind="stable")
    few = 2 * (W.shape[1] + 1)
    some = np.concatenate([some[:few], some[-few:]]) if len(v) > 2 * few else some
    free = null_vectors(W[some], v[some], tol=1e-6)
    if not free.shape[1]:
        return []
    weights, mix = np.linalg.eigh(free.T @ (v[some, None] * free))
    values, vectors = np.linalg.eigh(gradient)
    found = []
    for i in (-1, 0):
        for j in (0, -1):
            direction = np.zeros_like(W)
            direction[some] = np.outer(free @ mix[:, i], vectors[:, j])
            found.append((2.0 * float(weights[i] * values[j]), direction))
    return sorted(found, key=lambda pair: pair[0])


def rayleigh(product, U):
    """``<U, H U> / <U, U>``.

    Parameters
    ----------
    product : callable
        ``U -> H U``.
    U : ndarray of shape (k, d)

    Returns
    -------
    float
    """
    return float(np.sum(U * product(U)) / np.sum(U * U))


def quadratic_product(problem, W, v, gradient):
    """The Hessian of a quadratic network's loss, constant and linear terms at their best, as a function of U (k, d).

    Parameters
    ----------
    problem : QuadraticProblem
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    gradient : ndarray of shape (d, d)
        Of the loss with respect to M.

    Returns
    -------
    callable
    """
    return lambda U: form_hessian_product(problem, W, v, gradient, U)
