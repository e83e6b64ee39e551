"""Certify a point of a shallow network's training: global optimum with a proof, saddle with an escape, or undecided."""

import numpy as np

from skident.linalg.lanczos import lanczos

from .certificate import CertificateOptions, Curvature, Proof, certificate_of
from .certify_losses import certify_convex_loss
from .convex_loss_problem import ConvexLossProblem
from .convex_solver import least_squares_size
from .curvature import FLAT, STATIONARY, form_certificate, loss_derivatives, shallow_hessian_product
from .losses import checked_loss
from .lower_bounds import lower_bound
from .point_loss import point_loss
from .problem import NO_TERMS, QuadraticProblem
from .quadratic_form import OutputSigns, check_point, quadratic_form

_ACCURACY = 0.02  # of the loss, relative to the gap that counts as zero
_USUAL = CertificateOptions()


def landscape_certificate(W, v, X, y, *, activation="quadratic", terms=NO_TERMS, options=_USUAL, loss="squared"):
    """Certify a point of the landscape of ``1/(2n) sum_i (v . g(W x_i) - y_i)^2`` over the hidden weights W.

    For quadratic units the loss is convex in ``M = W^T D_v W``, so lower bounds of the convex problem prove global
    optimality; at other points eigenvectors of ``R = 1/n sum_i r_i x_i x_i^T`` give directions of negative curvature.
    Optimality is among all networks whose output weights have the signs that occur in v, of any width: with too few
    units for the theorems a good point can still be certified, and a bad one is "undecided".

    Parameters
    ----------
    W : array-like of shape (k, d)
        Hidden weights, one unit per row; torch parameters are accepted. A bias is the weight of a constant input 1.
    v : array-like of shape (k,)
        Output weights, held fixed; units with 0 have no effect.
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
    activation : "quadratic" or object with ``jet(z, 2) -> (g, g', g'')``, default="quadratic"
        `skident.network.get_activation` returns such objects. For other activations than the quadratic one only
        gradient and curvature are reported, and no point is certified as global.
    terms : LossTerms, default=LossTerms()
        A ridge ``alpha / 2 ||M||_F^2``, a constant and linear terms, optimal for each W; quadratic units only.
    options : CertificateOptions, default=CertificateOptions()
        Tolerance and budget.
    loss : {"squared", "logistic", "poisson"} or HuberLoss, default="squared"
        Others than the squared loss are for quadratic units: ``1/n sum_i loss(f(x_i), y_i)``, convex in M too. Logistic
        losses take labels y of -1 and 1, Poisson losses counts with mean ``exp(f(x))``.

    Returns
    -------
    LandscapeCertificate

    Raises
    ------
    ValueError
        If shapes do not match, values are complex or not finite, the loss overflows, terms or other losses are given
        for other than quadratic units, y does not fit the loss, or the activation has no second derivative.
    TypeError
        If `activation` is neither "quadratic" nor has a ``jet``.

    Notes
    -----
    O(n d^2) plus ``O(d^3)`` for gradient and explicit directions, the same per Hessian product, and, unless the loss is
    zero, one least squares problem of order ``q = d (d + 1) / 2`` and terms, O(n q^2).

    "global" is a theorem about the real numbers in X, y, W and v: the loss is bounded from above
    (`skident.landscape.point_loss`) and all losses from below (`skident.landscape.lower_bounds`) with every rounding
    bounded. If inputs are too collinear or units too large for double precision, both are done in integer and ball
    arithmetic of up to 4096 bits: up to order 250 and some seconds, for least squares over all forms. For output
    weights of one sign proofs are in floating point only, so such a point may stay "undecided", with this reason.

    Logistic, Huber and Poisson losses are bounded by Fenchel duality (`skident.landscape.fenchel_bounds`), in floating
    point with all roundings bounded. Without ridge the proof covers networks up to a norm, ``radius``.

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
    quadratic = isinstance(activation, str) or getattr(activation, "name", None) == "quadratic"
    if loss != "squared":
        if not quadratic:
            raise ValueError(f"losses other than 'squared' are for quadratic units, got activation={activation!r}.")
        return certify_convex_loss(ConvexLossProblem(X, y, checked_loss(loss, y), terms), W, v, options)
    if quadratic:
        return certify_quadratic(QuadraticProblem(X, y, terms), W, v, options)
    if terms.alpha or terms.fit_intercept or terms.fit_linear:
        raise ValueError("a ridge, a constant and linear terms are for quadratic units; for others leave `terms` out.")
    return certify_smooth(W, v, X, y, activation, max_products=options.max_products)


def certify_quadratic(problem, W, v, options=_USUAL, solution=None):
    """`landscape_certificate` for quadratic units; a known `ConvexSolution` of the problem saves its computation."""
    M, G = _form_and_gradient(problem, W, v)
    zero_gap = options.tol * problem.target_value + problem.rounding
    loss = point_loss(problem, W, v, accuracy=_ACCURACY * zero_gap)
    effort = {"tol": options.tol, "max_dense": options.max_dense, "solution": solution}
    bound = lower_bound(problem, M, OutputSigns.of(v), loss=loss.above, **effort)
    gap = float(np.nextafter(loss.above - bound.value, np.inf)) if loss.above > bound.value else 0.0
    proof = Proof(bound.value, bound.how, gap, bool(gap <= zero_gap))

    def missing(wrong):
        return _missing(problem, v, wrong, options.max_dense, bound.missing)

    return form_certificate(problem, problem, (W, v), G, loss.value, proof, options.max_products, missing)


def _form_and_gradient(problem, W, v):
    """M and the loss's gradient with respect to M; ValueError on overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        M = quadratic_form(W, v)
        loss, G = problem.value_and_gradient(M)
        square = float(np.sum(G * G))
    if not (np.isfinite(loss) and np.isfinite(square)):
        raise ValueError("the loss or its gradient overflows at this point; scale X, y and W to ordinary magnitudes.")
    return M, G


def _missing(problem, v, wrong, max_dense, arithmetic):
    """Why an undecided point may or may not be a global optimum; `arithmetic` is the obstacle of rounding, if any."""
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


def certify_smooth(W, v, X, y, activation, *, max_products=400):
    """`landscape_certificate` for smooth activations: gradient and curvature, without a claim of global optimality."""
    jet, name = _checked_jet(activation)
    loss, slope, slopes, curvatures = loss_derivatives(W, v, X, y, jet)
    null_loss = loss_derivatives(np.zeros_like(W), v, X, y, jet)[0]
    curvature = _smooth_curvature(W, X, slope, slopes, curvatures, max_products)
    # Scales: the loss of W = 0 or of y, over the norms of the inputs and of W.
    loss_scale = max(null_loss, loss, 0.5 * float(np.mean(y**2)))
    input_norm = float(np.sqrt(np.mean(np.sum(X**2, axis=1))))
    weight_norm = max(1.0 / max(input_norm, 1e-300), float(np.linalg.norm(W)))
    stationary = float(np.linalg.norm(slope)) * weight_norm <= STATIONARY * loss_scale
    flat = FLAT * loss_scale * max(input_norm**2, weight_norm**-2)
    return certificate_of(
        Proof(0.0, "losses are not negative", loss, False),
        curvature,
        slope,
        loss,
        stationary,
        flat,
        f". For {name} units nothing is claimed beyond slope and curvature",
        null_loss=null_loss,
        residual_norm=np.nan,
        wrong_norm=np.nan,
        radial_slope=float(np.sum(W * slope)),
        output_weights=v,
        activation=name,
    )


def _checked_jet(activation):
    """The jet and the name of a smooth activation; TypeError or ValueError for others."""
    jet, name = getattr(activation, "jet", None), getattr(activation, "name", "custom")
    if jet is None:
        raise TypeError(
            f"activation must be 'quadratic' or an object with jet(z, 2) -> (g, g', g''), got {activation!r}."
        )
    if not getattr(activation, "smooth", True):
        raise ValueError(f"{name} has no second derivative everywhere, so no curvature. Try softplus.")
    return jet, name


def _smooth_curvature(W, X, slope, slopes, curvatures, max_products):
    """The lowest curvature by Lanczos' method; the bound is that of the units one by one."""
    blocks = np.einsum("il,ij,im->ljm", curvatures / len(X), X, X, optimize=True)
    bound = min(0.0, float(np.linalg.eigvalsh(blocks)[:, 0].min()))
    value, direction, n_products, converged = lanczos(
        lambda U: shallow_hessian_product(X, slopes, curvatures, U),
        W.shape,
        [np.cos(np.arange(W.size, dtype=float)).reshape(W.shape), slope],
        max_products,
    )
    return Curvature(value, bound, direction, n_products, converged)
