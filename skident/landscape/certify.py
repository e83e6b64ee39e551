"""Where a shallow network's training stands: global optimum with a proof, saddle with a way out, or undecided."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np

from skident.linalg.lanczos import lanczos

from .certificate import REASONS, LandscapeCertificate, status_of
from .convex import least_squares_size
from .curvature import (
    explicit_directions,
    loss_derivatives,
    quadratic_curvature_bound,
    quadratic_product,
    rayleigh,
    shallow_hessian_product,
)
from .lower_bounds import lower_bound
from .problem import QuadraticProblem, wrong_part

__all__ = ["certify_quadratic", "landscape_certificate"]

# In the loss's own units: slopes and curvatures below these shares of what they are at W = 0 count as none.
_STATIONARY = 1e-6
_FLAT = 1e-7
_DENSE_CURVATURE = 200


def landscape_certificate(
    W,
    v,
    X,
    y,
    *,
    activation="quadratic",
    alpha=0.0,
    fit_intercept=False,
    fit_linear=False,
    linear_weight=1.0,
    tol=1e-10,
    max_products=400,
    max_dense=6000,
):
    """Certify a point of the landscape of ``1/(2n) sum_i (v . g(W x_i) - y_i)^2`` over the hidden weights W.

    For quadratic units the loss is convex in ``M = W^T D_v W``, so lower bounds of the convex problem prove global
    optimality; where there is none, eigenvectors of ``R = 1/n sum_i r_i x_i x_i^T`` give directions of negative
    curvature. Optimality is among all networks whose output weights have the signs that occur in v, of any width: with
    too few units for the theorems a good point can still be certified, and a bad one is "undecided".

    Parameters
    ----------
    W : array-like of shape (k, d)
        Hidden weights, one unit a row; a torch parameter is taken as it is. A bias is the weight of an input that is 1.
    v : array-like of shape (k,)
        Output weights, held fixed; units with 0 do nothing.
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
    activation : "quadratic" or object with ``jet(z, 2) -> (g, g', g'')``, default="quadratic"
        `skident.network.get_activation` gives such objects. For other activations than the quadratic one only slope and
        curvature are reported, and no point is called global.
    alpha : float, default=0
        Ridge ``alpha / 2 ||M||_F^2``, quadratic units only.
    fit_intercept, fit_linear : bool, default=False
        Whether a constant and linear terms belong to the model, at their best for every W; quadratic units only.
    linear_weight : float, default=1
        How much less the linear terms are penalised than M.
    tol : float, default=1e-10
        Gap, relative to the loss of the best constant (of 0 without intercept), that counts as none.
    max_products : int, default=400
        Hessian products spent on the curvature at most. Near a degenerate optimum more do not help.
    max_dense : int, default=6000
        Largest order of a matrix factorised for the lower bound; beyond, points whose loss is neither zero nor bounded
        by duality at the point itself stay undecided.

    Returns
    -------
    LandscapeCertificate

    Raises
    ------
    ValueError
        If shapes do not fit together, values are not finite, or an option is for quadratic units only.
    TypeError
        If `activation` is neither "quadratic" nor has a ``jet``.

    Notes
    -----
    O(n d^2) plus ``O(d^3)`` for slope and explicit directions, as much again a Hessian product, and where the loss is
    not zero one least squares problem (`solve_convex`). Bounds are exact up to rounding, relative errors of the order
    1e-13.

    References
    ----------
    Soltanolkotabi, Javanmard, Lee (2017), "Theoretical insights into the optimization landscape of over-parameterized
    shallow neural networks", Theorems 2.1, 2.2 and Lemma 6.1.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape import landscape_certificate
    >>> X = np.random.default_rng(0).standard_normal((30, 2))
    >>> certificate = landscape_certificate(np.zeros((2, 2)), [1.0, -1.0], X, X[:, 0] ** 2)
    >>> print(certificate.status, round(certificate.loss, 3), certificate.curvature < 0)
    saddle 1.062 True
    """
    W, v, X, y = _checked(W, v, X, y)
    _check_options(alpha, linear_weight, tol, max_products, max_dense)
    if isinstance(activation, str) and activation != "quadratic":
        raise TypeError(
            f"activation must be 'quadratic' or an object with jet(z, 2) -> (g, g', g''), got {activation!r}; try "
            f"skident.network.get_activation({activation!r})."
        )
    if not isinstance(activation, str) and getattr(activation, "name", None) != "quadratic":
        if alpha or fit_intercept or fit_linear:
            raise ValueError("alpha, fit_intercept and fit_linear are for quadratic units; for others leave them out.")
        return _certify_general(W, v, X, y, activation, max_products)
    problem = QuadraticProblem(
        X, y, alpha=alpha, fit_intercept=fit_intercept, fit_linear=fit_linear, linear_weight=linear_weight
    )
    return certify_quadratic(problem, W, v, tol=tol, max_products=max_products, max_dense=max_dense)


def _checked(W, v, X, y):
    """Finite float64 arrays of shapes (k, d), (k,), (n, d), (n,)."""
    arrays = []
    for name, array, ndim in (("W", W, 2), ("v", v, 1), ("X", X, 2), ("y", y, 1)):
        array = array.detach().cpu() if hasattr(array, "detach") else array
        if np.iscomplexobj(array):
            raise ValueError(f"{name} is complex; a certificate is about real networks and data.")
        array = np.asarray(array, dtype=np.float64)
        if array.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}.")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are not finite; a certificate needs finite numbers.")
        arrays.append(array)
    (k, d), n = arrays[0].shape, len(arrays[2])
    if arrays[1].shape != (k,) or arrays[2].shape[1] != d or len(arrays[3]) != n:
        hint = " W has one unit a row; it looks transposed." if arrays[1].shape == (d,) else ""
        raise ValueError(
            f"shapes must be W (k, d), v (k,), X (n, d), y (n,); got {', '.join(str(a.shape) for a in arrays)}.{hint}"
        )
    if 0 in (k, d, n):
        raise ValueError(f"W, X and y must not be empty, got k = {k} units, d = {d} inputs, n = {n} rows.")
    return arrays


def _check_options(alpha, linear_weight, tol, max_products, max_dense):
    wanted = {
        "alpha": (alpha, ">= 0", Real, lambda a: a >= 0),
        "linear_weight": (linear_weight, "> 0", Real, lambda a: a > 0),
        "tol": (tol, "> 0", Real, lambda a: a > 0),
        "max_products": (max_products, "an integer >= 1", Integral, lambda a: a >= 1),
        "max_dense": (max_dense, "an integer >= 0", Integral, lambda a: a >= 0),
    }
    for name, (value, expected, kind, fits) in wanted.items():
        if not (isinstance(value, kind) and np.isfinite(value) and fits(value)):
            raise ValueError(f"{name} must be {expected}, got {value!r}.")


def certify_quadratic(problem, W, v, *, tol=1e-10, max_products=400, max_dense=6000, solution=None):
    """`landscape_certificate` of quadratic units, for a `QuadraticProblem`.

    Parameters
    ----------
    problem : QuadraticProblem
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    tol, max_products, max_dense
        As in `landscape_certificate`.
    solution : ConvexSolution, default=None
        Of the same problem, if it is at hand: saves its computation.

    Returns
    -------
    LandscapeCertificate
    """
    plus, minus = bool((v > 0).any()), bool((v < 0).any())
    with np.errstate(over="ignore", invalid="ignore"):
        M = W.T @ (v[:, None] * W)
        loss, G = problem.value_and_gradient(M)
        square = float(np.sum(G * G))
    if not (np.isfinite(loss) and np.isfinite(square)):
        raise ValueError("the loss or its gradient overflows at this point; scale X, y and W to ordinary magnitudes.")
    slope = 2.0 * v[:, None] * (W @ G)
    values = np.linalg.eigvalsh(G)
    bound, how = lower_bound(problem, M, plus, minus, tol=tol, max_dense=max_dense, solution=solution)
    gap = max(loss - bound, 0.0)
    proven = bool(gap <= tol * problem.target_value + problem.rounding)
    unit = _Units(problem, v)
    curvature = _quadratic_curvature(problem, W, v, G, values, unit, 0 if proven else max_products)
    stationary = np.linalg.norm(np.sqrt(np.abs(v))[:, None] * (W @ G)) <= _STATIONARY * unit.slope
    status = status_of(proven, stationary, curvature[0] < -_FLAT * unit.curvature)
    wrong = float(np.abs(wrong_part(values, plus, minus)).max())
    numbers = {"loss": loss, "lower_bound": bound, "gap": gap, "null_loss": problem.null_value}
    numbers |= {"gradient_norm": float(np.linalg.norm(slope)), "residual_norm": float(np.abs(values).max())}
    numbers |= {"wrong_norm": wrong, "radial_slope": float(np.sum(W * slope)), "output_weights": v}
    reason = REASONS[status].format(how=how, d=problem.d, **numbers, curvature=curvature[0])
    if status == "undecided":
        reason += _missing(problem, v, wrong, max_dense)
    return LandscapeCertificate(status, proven, reason, **numbers, **_curvature_fields(curvature, status))


class _Units:
    """Slope (in coordinates with output weights 1 and -1) and curvature of the loss in its own units."""

    def __init__(self, problem, v):
        # Where there is nothing to learn the gradient is rounding, and no unit.
        steepest = max(problem.steepest, problem.gradient_rounding / _FLAT)
        self.slope = float(np.sqrt(steepest * problem.null_value))
        self.curvature = 2.0 * float(np.abs(v).max()) * steepest


def _missing(problem, v, wrong, max_dense):
    """Why an undecided point may or may not be a global optimum."""
    d, n_plus, n_minus = problem.d, int(np.sum(v > 0)), int(np.sum(v < 0))
    if n_plus and n_minus and min(n_plus, n_minus) < d:
        return (
            f". Theorem 2.1 needs d = {d} output weights of each sign; there are {n_plus} positive and {n_minus} "
            "negative ones, so local minima that are not global may exist"
        )
    if max(n_plus, n_minus) < d:
        return (
            f". Theorem 2.2 needs d = {d} nonzero output weights of one sign; there are {max(n_plus, n_minus)}, so "
            "local minima that are not global may exist"
        )
    size = least_squares_size(problem)
    way = "A ridge, or a larger one (alpha), makes the bound tight"
    way = f"Least squares of order {size} may settle it (max_dense)" if size > max_dense else way
    return (
        ". There are units enough for the theorems, but slope and curvature are zero to rounding only: a network whose "
        f"M has nuclear norm m may be lower by up to about {wrong:.1e} m (deterministic_bound). " + way
    )


def _curvature_fields(curvature, status):
    value, bound, direction, n_products, converged = curvature
    leads_down = value < 0 and status in ("saddle", "not stationary")
    names = ("curvature", "curvature_bound", "escape_direction", "n_products", "curvature_converged")
    return dict(zip(names, (value, bound, direction if leads_down else None, n_products, converged)))


def _quadratic_curvature(problem, W, v, G, values, unit, max_products):
    """Lowest curvature found, its proven bound, direction, products spent, and whether it is the smallest eigenvalue.

    The explicit directions attain the bound wherever a unit with the largest output weight is free; only otherwise
    products are spent, of a proven optimum (``max_products=0``) only a few and only where it may be a strict one.
    """
    product, bound = quadratic_product(problem, W, v, G), quadratic_curvature_bound(v, values)
    found = explicit_directions(W, v, G)[:1]
    value, direction = (rayleigh(product, found[0][1]), found[0][1]) if found else (np.inf, None)
    near = 1e-9 * abs(bound) + _FLAT * 1e-3 * unit.curvature
    if value <= bound + near:
        return value, bound, direction, len(found), True
    if not max_products and value <= _FLAT * unit.curvature:
        return value, bound, direction, len(found), False
    starts = [np.ones_like(W) + np.sin(np.arange(W.size, dtype=float)).reshape(W.shape)]
    starts += [np.sqrt(W.size) * direction] if direction is not None else []
    other, vector, n_products, converged = lanczos(product, W.shape, starts, max(max_products, 20))
    if other <= value:
        value, direction = rayleigh(product, vector), vector
    return value, bound, direction, n_products + len(found) + 1, converged


def _certify_general(W, v, X, y, activation, max_products):
    """Slope and curvature for a smooth activation; no claim of globality."""
    jet = getattr(activation, "jet", None)
    if jet is None:
        raise TypeError(
            f"activation must be 'quadratic' or an object with jet(z, 2) -> (g, g', g''), got {activation!r}."
        )
    name = getattr(activation, "name", "custom")
    if not getattr(activation, "smooth", True):
        raise ValueError(f"{name} has no second derivative everywhere; curvature means nothing there. Try softplus.")
    loss, slope, slopes, bends = loss_derivatives(W, v, X, y, jet)
    null_loss = loss_derivatives(np.zeros_like(W), v, X, y, jet)[0]
    blocks = np.einsum("il,ij,im->ljm", bends / len(X), X, X, optimize=True)
    bound = min(0.0, float(np.linalg.eigvalsh(blocks)[:, 0].min()))
    value, direction, n_products, converged = lanczos(
        lambda U: shallow_hessian_product(X, slopes, bends, U),
        W.shape,
        [np.cos(np.arange(W.size, dtype=float)).reshape(W.shape), slope],
        max_products,
    )
    # Units: the loss of W = 0 or y, over the size of the inputs and of W.
    size = max(null_loss, loss, 0.5 * float(np.mean(y**2)))
    reach = float(np.sqrt(np.mean(np.sum(X**2, axis=1))))
    weights = max(1.0 / max(reach, 1e-300), float(np.linalg.norm(W)))
    stationary = np.linalg.norm(slope) * weights <= _STATIONARY * size
    status = status_of(False, stationary, value < -_FLAT * size * max(reach**2, weights**-2))
    gradient_norm = float(np.linalg.norm(slope))
    reason = REASONS[status].format(
        loss=loss, gap=loss, how="losses are not negative", gradient_norm=gradient_norm, curvature=value
    )
    if status == "undecided":
        reason += f". For {name} units nothing is claimed beyond slope and curvature"
    numbers = {"loss": loss, "lower_bound": 0.0, "gap": loss, "null_loss": null_loss, "gradient_norm": gradient_norm}
    numbers |= {"residual_norm": np.nan, "wrong_norm": np.nan, "radial_slope": float(np.sum(W * slope))}
    fields = _curvature_fields((value, bound, direction, n_products, converged), status)
    return LandscapeCertificate(status, False, reason, **numbers, output_weights=v, activation=name, **fields)
