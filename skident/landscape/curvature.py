"""Second derivatives of shallow networks' losses, their certificates, and the rate of gradient descent."""

import numpy as np

from skident.budget.constants import NO_EFFECT
from skident.linalg import svd
from skident.linalg.lanczos import lanczos
from skident.network import get_activation

from .certificate import Curvature, certificate_of
from .quadratic_form import OutputSigns, check_point, weight_gradient

# Singular values of a block of hidden weights, relative to the largest, below which a rank is missing: L-BFGS leaves
# units without effect at about the root of its tolerance.
_NULL_TOL = 1e-4
_NULL_TOL_OF_CERTIFICATES = 1e-6  # `_NULL_TOL` at a point to be certified, which should not be better than it is
# Relative to the scales at W = 0: about the root of the rounding of a loss, 1e-8, times ten to a hundred.
STATIONARY = 1e-6  # slopes that count as zero
FLAT = 1e-7  # curvatures that count as zero
_FEWEST_PRODUCTS = 20  # Hessian products at a proven optimum (budget)


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


def form_certificate(problem, point, network, G, loss, proof, max_products, missing):
    """The `LandscapeCertificate` of quadratic units, `network` (W, v), with the gradient G (d, d) by the form.

    `point` has the second derivative, `max_products` are the Hessian products for the curvature of a point that is not
    proven, and ``missing(wrong)`` says what an undecided one lacks, by the norm of what units can follow of G.
    """
    (W, v), values = network, np.linalg.eigvalsh(G)
    # If there is nothing to learn, the gradient is rounding, and no scale.
    null_norm = max(problem.null_gradient_norm, problem.gradient_rounding / FLAT)
    scale = 2.0 * float(np.abs(v).max()) * null_norm
    curvature = _quadratic_curvature(point, network, G, values, scale, 0 if proof.proven else max_products)
    size = np.linalg.norm(np.sqrt(np.abs(v))[:, None] * (W @ G))  # in coordinates with output weights 1 and -1
    slope, wrong = weight_gradient(W, v, G), float(np.abs(OutputSigns.of(v).descent_part(values)).max())
    return certificate_of(
        proof,
        curvature,
        slope,
        loss,
        size <= STATIONARY * float(np.sqrt(null_norm * problem.null_value)),
        FLAT * scale,
        missing(wrong),
        null_loss=problem.null_value,
        residual_norm=float(np.abs(values).max()),
        wrong_norm=wrong,
        radial_slope=float(np.sum(W * slope)),
        output_weights=v,
        terms=problem.terms,
    )


def _quadratic_curvature(point, network, G, values, scale, max_products):
    """The lowest curvature detected, from explicit directions or by Lanczos' method.

    The explicit directions attain the bound if a unit with the largest output weight is free (has no effect). Only
    otherwise products are used; at a proven optimum (``max_products=0``) few, and only if it may be a strict one.
    """
    W, v = network
    product, bound = quadratic_product(point, W, v, G), quadratic_curvature_bound(v, values)
    found = explicit_directions(W, v, G)[:1]
    value, direction = (rayleigh(product, found[0][1]), found[0][1]) if found else (np.inf, None)
    near = NO_EFFECT * abs(bound) + FLAT * 1e-3 * scale
    if value <= bound + near:
        return Curvature(value, bound, direction, len(found), True)
    if not max_products and value <= FLAT * scale:
        return Curvature(value, bound, direction, len(found), False)
    starts = [np.ones_like(W) + np.sin(np.arange(W.size, dtype=float)).reshape(W.shape)]
    starts += [np.sqrt(W.size) * direction] if direction is not None else []
    other, vector, n_products, converged = lanczos(product, W.shape, starts, max(max_products, _FEWEST_PRODUCTS))
    if other <= value:
        value, direction = rayleigh(product, vector), vector
    return Curvature(value, bound, direction, n_products + len(found) + 1, converged)


def descent_rate(W, v, X, *, activation):
    """Largest step size of gradient descent at a network, and the factor by which its loss falls per step there.

    Parameters
    ----------
    W : array-like of shape (k, d)
        Hidden weights of a network that fits the data, one unit per row.
    v : array-like of shape (k,)
        Output weights, trained too.
    X : array-like of shape (n, d)
    activation : str or Activation
        See :func:`skident.network.get_activation`.

    Returns
    -------
    step : float
        ``1 / beta = n / s_max^2``, with the singular values s of the Jacobian J (n, k d + k) of the outputs.
    factor : float
        ``(1 - s_min^2 / s_max^2)^2``: near this network the losses of gradient descent with this step fall by at least
        this factor per step. 1, no guarantee, with fewer weights than samples.

    Raises
    ------
    ValueError
        If shapes do not match, or values are not finite.

    Notes
    -----
    Theorem 2.5 of [1]_ states ``L_tau <= (1 - c alpha d / n)^tau L_0`` with a constant c that it does not give. The
    residual r of a network near this one changes by ``- alpha / n J J^T r`` per step, so that ``c = 2 s_min^2 / d`` to
    first order in alpha. Cost: ``O(n^2 k d)``.

    References
    ----------
    .. [1] M. Soltanolkotabi, A. Javanmard, J. D. Lee, "Theoretical insights into the optimization landscape of
       over-parameterized shallow neural networks", 2017 (revised 2022).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_planted_shallow
    >>> from skident.landscape import descent_rate
    >>> from skident.network import get_activation
    >>> X, y, W, v = make_planted_shallow(12, 8, 10, activation="tanh", coef=True, random_state=0)
    >>> step, factor = descent_rate(W, v, X, activation="tanh")
    >>> W, v, losses = W + 1e-4, v - 1e-4, []
    >>> for _ in range(800):
    ...     value, slope = get_activation("tanh").jet(X @ W.T, 1)
    ...     r = (value @ v - y) / len(y)
    ...     losses.append(len(y) * r @ r / 2)
    ...     W, v = W - step * v[:, None] * ((slope * r[:, None]).T @ X), v - step * value.T @ r
    >>> print(round(losses[-1] / losses[-2] / factor, 4))
    1.0
    """
    W, v, X, _ = check_point(W, v, X, np.zeros(len(X)))
    value, slope = get_activation(activation).jet(X @ W.T, 1)
    n = len(X)
    # J J^T is the sum of those of the output weights and, unit by unit, the hidden weights.
    values = np.linalg.eigvalsh(value @ value.T + (slope * v) @ (slope * v).T * (X @ X.T))
    least = max(float(values[0]), 0.0) if n <= W.size + len(v) else 0.0
    return n / float(values[-1]), (1.0 - least / float(values[-1])) ** 2
