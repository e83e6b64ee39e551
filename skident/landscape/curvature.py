"""Second derivatives of shallow networks' losses: Hessian products, null vectors, the most negative curvature."""

import numpy as np

from skident.linalg import svd

# Singular values of a block of hidden weights, relative to the largest, below which a rank is missing: L-BFGS leaves
# units without effect at about the root of its tolerance.
_NULL_TOL = 1e-4
_NULL_TOL_OF_CERTIFICATES = 1e-6  # `_NULL_TOL` at a point to be certified, which should not be better than it is


def loss_derivatives(W, v, X, y, jet):
    """Loss and gradient of ``1/(2n) sum_i (v . g(W x_i) - y_i)^2``, and the data of its Hessian products.

    These are ``v_l g'(z_il)`` and ``r_i v_l g''(z_il)``, each (n, k); ``jet(z, 2)`` returns g, g', g''. Eqs. (5.2),
    (5.7).
    """
    g, g1, g2 = jet(X @ W.T, 2)
    r = g @ v - y
    slopes = g1 * v
    return 0.5 * float(r @ r) / len(y), (slopes * (r / len(y))[:, None]).T @ X, slopes, g2 * v * r[:, None]


def shallow_hessian_product(X, slopes, curvatures, U):
    """The Hessian of `loss_derivatives` applied to U (k, d): O(n k d)."""
    moved = X @ U.T
    along = np.einsum("il,il->i", slopes, moved)
    return ((slopes * along[:, None] + curvatures * moved) / len(X)).T @ X


def quadratic_curvature_bound(v, gradient_values):
    """``2 min_l v_l lambda`` over output weights v and ascending eigenvalues lambda of the gradient with respect to M.

    The Hessian of a quadratic network is ``2 D_v (x) G`` plus a positive part, so no curvature is below this.
    """
    extremes = np.outer([v.max(initial=0.0), v.min(initial=0.0)], [gradient_values[0], gradient_values[-1]])
    return 2.0 * float(min(extremes.min(), 0.0))


def explicit_directions(W, v, gradient):
    """Directions ``a b^T`` of unit norm and zero slope with their curvature, the most negative first.

    a is a null vector of ``W^T D_v`` and b an eigenvector of the gradient G with respect to M; the curvature is ``2
    (a^T D_v a) (b^T G b)`` (eq. 6.12). The null vectors with the largest and the smallest ``a^T D_v a`` are paired with
    the lowest and the highest eigenvalue. Empty without null vectors.
    """
    # Of many units those with the largest and the smallest output weights are enough: d + 1 have a null vector.
    subset = np.argsort(v, kind="stable")
    few = 2 * (W.shape[1] + 1)
    subset = np.concatenate([subset[:few], subset[-few:]]) if len(v) > 2 * few else subset
    free = null_vectors(W[subset], v[subset], tol=_NULL_TOL_OF_CERTIFICATES)
    if not free.shape[1]:
        return []
    weights, mix = np.linalg.eigh(free.T @ (v[subset, None] * free))
    values, vectors = np.linalg.eigh(gradient)
    directions = []
    for i in (-1, 0):
        for j in (0, -1):
            direction = np.zeros_like(W)
            direction[subset] = np.outer(free @ mix[:, i], vectors[:, j])
            directions.append((2.0 * float(weights[i] * values[j]), direction))
    return sorted(directions, key=lambda pair: pair[0])


def rayleigh(product, U):
    """``<U, H U> / <U, U>`` for the product ``U -> H U``."""
    return float(np.sum(U * product(U)) / np.sum(U * U))


def quadratic_product(problem, W, v, gradient):
    """The Hessian product ``U -> H U`` of a quadratic network's loss, constant and linear terms optimal."""
    return lambda U: form_hessian_product(problem, W, v, gradient, U)


def form_hessian_product(problem, W, v, gradient, U):
    """Hessian of a quadratic network's loss in W, applied to a direction U (k, d).

    ``2 D_v U G + 2 D_v W H[W^T D_v U + U^T D_v W]`` with the gradient G (d, d) at M and the constant second derivative
    H of the loss with respect to M. Its quadratic form is eq. (6.4) of the paper with 4/n instead of the second 2/n, as
    finite differences confirm.
    """
    D = v[:, None]
    cross = W.T @ (D * U)
    return 2.0 * D * (U @ gradient + W @ problem.hessian_product(cross + cross.T))


def null_vectors(W, v, tol=_NULL_TOL):
    """Orthonormal columns a with ``W^T D_v a = 0``, (k, k - rank); `tol` is relative to the largest singular value."""
    weighted = v[:, None] * W
    U, S, _ = svd(weighted, full_matrices=True)
    rank = int(np.sum(S > tol * S[0])) if len(S) and S[0] > 0 else 0
    return U[:, rank:]
