"""The certificate of a quadratic network with its lowest curvature, and the scales of slopes and curvatures."""

import numpy as np

from skident.budget.constants import NO_EFFECT
from skident.linalg.lanczos import lanczos

from .certificate import Curvature, certificate_of
from .curvature import explicit_directions, quadratic_curvature_bound, quadratic_product, rayleigh
from .quadratic_form import OutputSigns, weight_gradient

# Relative to the scales at W = 0: about the root of the rounding of a loss, 1e-8, times ten to a hundred.
STATIONARY = 1e-6  # slopes that count as zero
FLAT = 1e-7  # curvatures that count as zero
_FEWEST_PRODUCTS = 20  # Hessian products at a proven optimum (budget)


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
