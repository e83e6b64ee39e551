"""Where a shallow network's training stands: global optimum with a proof, saddle with a way out, or undecided."""

from __future__ import annotations

import numpy as np

from skident.linalg.lanczos import lanczos

from .certificate import CertificateOptions, Curvature, LandscapeCertificate, reason_of, status_of
from .checks import check_point
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
from .point_loss import point_loss
from .problem import NO_TERMS, QuadraticProblem
from .units import UnitSigns, form_of, weight_gradient

__all__ = ["certify_quadratic", "certify_smooth", "landscape_certificate"]

# In the loss's own units: slopes and curvatures below these shares of what they are at W = 0 count as none.
_STATIONARY = 1e-6
_FLAT = 1e-7
# Share of the gap that counts as none, to which the loss is to be known.
_ACCURATE = 0.02
_USUAL = CertificateOptions()


def landscape_certificate(W, v, X, y, *, activation="quadratic", terms=NO_TERMS, options=_USUAL):
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
    terms : LossTerms, default=LossTerms()
        A ridge ``alpha / 2 ||M||_F^2``, a constant and linear terms, at their best for every W; quadratic units only.
    options : CertificateOptions, default=CertificateOptions()
        The gap that counts as none, and how much may be spent.

    Returns
    -------
    LandscapeCertificate

    Raises
    ------
    ValueError
        If shapes do not fit together, values are complex or not finite, the loss overflows, terms are given for other
        units than quadratic ones, or the activation has no second derivative.
    TypeError
        If `activation` is neither "quadratic" nor has a ``jet``.

    Notes
    -----
    O(n d^2) plus ``O(d^3)`` for slope and explicit directions, as much again a Hessian product, and where the loss is
    not zero one least squares problem of order ``q = d (d + 1) / 2`` and terms, O(n q^2).

    "global" is a theorem about the real numbers that X, y, W and v hold: the loss is bounded from above
    (`skident.landscape.point_loss`) and all losses from below (`skident.landscape.lower_bounds`) with every rounding
    accounted for. Where inputs are so collinear or units so large that double precision cannot tell, the same is done
    in integers and balls of up to 4096 bits: up to order 250 and some seconds, for least squares over all forms. For
    output weights of one sign proofs are in floating point only, so such a point may stay "undecided", with that
    reason.

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
    W, v, X, y = check_point(W, v, X, y)
    if isinstance(activation, str) and activation != "quadratic":
        raise TypeError(
            f"activation must be 'quadratic' or an object with jet(z, 2) -> (g, g', g''), got {activation!r}; try "
            f"skident.network.get_activation({activation!r})."
        )
    if isinstance(activation, str) or getattr(activation, "name", None) == "quadratic":
        return certify_quadratic(QuadraticProblem(X, y, terms), W, v, options)
    if terms.alpha or terms.fit_intercept or terms.fit_linear:
        raise ValueError("a ridge, a constant and linear terms are for quadratic units; for others leave `terms` out.")
    return certify_smooth(W, v, X, y, activation, max_products=options.max_products)


def certify_quadratic(problem, W, v, options=_USUAL, solution=None):
    """`landscape_certificate` of quadratic units, for a `QuadraticProblem`.

    Parameters
    ----------
    problem : QuadraticProblem
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    options : CertificateOptions, default=CertificateOptions()
    solution : ConvexSolution, default=None
        Of the same problem, if it is at hand: saves its computation.

    Returns
    -------
    LandscapeCertificate

    Raises
    ------
    ValueError
        If the loss or its gradient overflows.
    """
    M, G = _form_and_gradient(problem, W, v)
    values, signs, unit = np.linalg.eigvalsh(G), UnitSigns.of(v), _Units(problem, v)
    none = options.tol * problem.target_value + problem.rounding
    loss = point_loss(problem, W, v, accuracy=_ACCURATE * none)
    means = {"tol": options.tol, "max_dense": options.max_dense, "solution": solution}
    bound = lower_bound(problem, M, signs, loss=loss.above, **means)
    gap = float(np.nextafter(loss.above - bound.value, np.inf)) if loss.above > bound.value else 0.0
    proven = bool(gap <= none)
    curvature = _quadratic_curvature(problem, W, v, G, values, unit, 0 if proven else options.max_products)
    stationary = np.linalg.norm(np.sqrt(np.abs(v))[:, None] * (W @ G)) <= _STATIONARY * unit.slope
    status = status_of(proven, stationary, curvature.value < -_FLAT * unit.curvature)
    slope, wrong = weight_gradient(W, v, G), float(np.abs(signs.wrong_part(values)).max())
    gradient_norm = float(np.linalg.norm(slope))
    numbers = {"loss": loss.value, "gap": gap, "gradient_norm": gradient_norm, "curvature": curvature.value}
    reason = reason_of(status, bound.how, **numbers)
    return LandscapeCertificate(
        status,
        proven,
        reason + (_missing(problem, v, wrong, options.max_dense, bound.missing) if status == "undecided" else ""),
        loss=loss.value,
        lower_bound=bound.value,
        gap=gap,
        null_loss=problem.null_value,
        gradient_norm=gradient_norm,
        residual_norm=float(np.abs(values).max()),
        wrong_norm=wrong,
        radial_slope=float(np.sum(W * slope)),
        output_weights=v,
        terms=problem.terms,
        **_curvature_fields(curvature, status),
    )


def _form_and_gradient(problem, W, v):
    """M and the loss's gradient with respect to M, where they are numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        M = form_of(W, v)
        loss, G = problem.value_and_gradient(M)
        square = float(np.sum(G * G))
    if not (np.isfinite(loss) and np.isfinite(square)):
        raise ValueError("the loss or its gradient overflows at this point; scale X, y and W to ordinary magnitudes.")
    return M, G


class _Units:
    """Slope (in coordinates with output weights 1 and -1) and curvature of the loss in its own units."""

    def __init__(self, problem, v):
        # Where there is nothing to learn the gradient is rounding, and no unit.
        steepest = max(problem.steepest, problem.gradient_rounding / _FLAT)
        self.slope = float(np.sqrt(steepest * problem.null_value))
        self.curvature = 2.0 * float(np.abs(v).max()) * steepest


def _missing(problem, v, wrong, max_dense, arithmetic):
    """Why an undecided point may or may not be a global optimum; `arithmetic` is what kept rounding from a proof."""
    if arithmetic:
        return f". For a better bound: {arithmetic}"
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
    """The fields of a certificate that say what is known about the curvature."""
    leads_down = curvature.value < 0 and status in ("saddle", "not stationary")
    return {
        "curvature": curvature.value,
        "curvature_bound": curvature.bound,
        "curvature_converged": curvature.converged,
        "escape_direction": curvature.direction if leads_down else None,
        "n_products": curvature.n_products,
    }


def _quadratic_curvature(problem, W, v, G, values, unit, max_products):
    """The lowest curvature found: of explicit directions, or by Lanczos' method where they do not attain the bound.

    The explicit directions attain the bound wherever a unit with the largest output weight is free; only otherwise
    products are spent, of a proven optimum (``max_products=0``) only a few and only where it may be a strict one.
    """
    product, bound = quadratic_product(problem, W, v, G), quadratic_curvature_bound(v, values)
    found = explicit_directions(W, v, G)[:1]
    value, direction = (rayleigh(product, found[0][1]), found[0][1]) if found else (np.inf, None)
    near = 1e-9 * abs(bound) + _FLAT * 1e-3 * unit.curvature
    if value <= bound + near:
        return Curvature(value, bound, direction, len(found), True)
    if not max_products and value <= _FLAT * unit.curvature:
        return Curvature(value, bound, direction, len(found), False)
    starts = [np.ones_like(W) + np.sin(np.arange(W.size, dtype=float)).reshape(W.shape)]
    starts += [np.sqrt(W.size) * direction] if direction is not None else []
    other, vector, n_products, converged = lanczos(product, W.shape, starts, max(max_products, 20))
    if other <= value:
        value, direction = rayleigh(product, vector), vector
    return Curvature(value, bound, direction, n_products + len(found) + 1, converged)


def certify_smooth(W, v, X, y, activation, *, max_products=400):
    """`landscape_certificate` of units with a smooth activation: slope and curvature, no claim of globality.

    Parameters
    ----------
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    activation : object with ``jet(z, 2) -> (g, g', g'')``
    max_products : int, default=400
        Hessian products spent at most.

    Returns
    -------
    LandscapeCertificate

    Raises
    ------
    TypeError
        If the activation has no ``jet``.
    ValueError
        If it has kinks.
    """
    jet, name = getattr(activation, "jet", None), getattr(activation, "name", "custom")
    if jet is None:
        raise TypeError(
            f"activation must be 'quadratic' or an object with jet(z, 2) -> (g, g', g''), got {activation!r}."
        )
    if not getattr(activation, "smooth", True):
        raise ValueError(f"{name} has no second derivative everywhere; curvature means nothing there. Try softplus.")
    loss, slope, slopes, bends = loss_derivatives(W, v, X, y, jet)
    null_loss = loss_derivatives(np.zeros_like(W), v, X, y, jet)[0]
    curvature = _smooth_curvature(W, X, slope, slopes, bends, max_products)
    # Units: the loss of W = 0 or y, over the size of the inputs and of W.
    size = max(null_loss, loss, 0.5 * float(np.mean(y**2)))
    reach = float(np.sqrt(np.mean(np.sum(X**2, axis=1))))
    weights = max(1.0 / max(reach, 1e-300), float(np.linalg.norm(W)))
    gradient_norm = float(np.linalg.norm(slope))
    stationary = gradient_norm * weights <= _STATIONARY * size
    status = status_of(False, stationary, curvature.value < -_FLAT * size * max(reach**2, weights**-2))
    how, unsaid = "losses are not negative", f". For {name} units nothing is claimed beyond slope and curvature"
    reason = reason_of(status, how, loss=loss, gap=loss, gradient_norm=gradient_norm, curvature=curvature.value)
    return LandscapeCertificate(
        status,
        False,
        reason + (unsaid if status == "undecided" else ""),
        loss=loss,
        lower_bound=0.0,
        gap=loss,
        null_loss=null_loss,
        gradient_norm=gradient_norm,
        residual_norm=np.nan,
        wrong_norm=np.nan,
        radial_slope=float(np.sum(W * slope)),
        output_weights=v,
        activation=name,
        **_curvature_fields(curvature, status),
    )


def _smooth_curvature(W, X, slope, slopes, bends, max_products):
    """The lowest curvature that Lanczos' method finds; the bound is that of the units one by one."""
    blocks = np.einsum("il,ij,im->ljm", bends / len(X), X, X, optimize=True)
    bound = min(0.0, float(np.linalg.eigvalsh(blocks)[:, 0].min()))
    value, direction, n_products, converged = lanczos(
        lambda U: shallow_hessian_product(X, slopes, bends, U),
        W.shape,
        [np.cos(np.arange(W.size, dtype=float)).reshape(W.shape), slope],
        max_products,
    )
    return Curvature(value, bound, direction, n_products, converged)
