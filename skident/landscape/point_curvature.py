"""The lowest curvature of a quadratic network's loss at a point, and the scales of its slopes and curvatures."""

from __future__ import annotations

import numpy as np

from skident.linalg.lanczos import lanczos

from .certificate import Curvature
from .curvature import explicit_directions, quadratic_curvature_bound, quadratic_product, rayleigh

__all__ = ["FLAT", "STATIONARY", "Scales", "curvature_fields", "quadratic_curvature"]

# Relative to the scales at W = 0: about the root of the rounding of a loss, 1e-8, times ten to a hundred.
STATIONARY = 1e-6  # slopes that count as zero
FLAT = 1e-7  # curvatures that count as zero
_AT_BOUND = 1e-9  # relative distance of a curvature to its lower bound that counts as attained
_FEWEST_PRODUCTS = 20  # Hessian products at a proven optimum (budget)


class Scales:
    """Scales of the loss's slope (in coordinates with output weights 1 and -1) and curvature."""

    def __init__(self, problem, v):
        # If there is nothing to learn, the gradient is rounding, and no scale.
        null_gradient_norm = max(problem.null_gradient_norm, problem.gradient_rounding / FLAT)
        self.slope = float(np.sqrt(null_gradient_norm * problem.null_value))
        self.curvature = 2.0 * float(np.abs(v).max()) * null_gradient_norm


def curvature_fields(curvature, status):
    """The fields of a certificate about the curvature."""
    leads_down = curvature.value < 0 and status in ("saddle", "not stationary")
    return {
        "curvature": curvature.value,
        "curvature_bound": curvature.bound,
        "curvature_converged": curvature.converged,
        "escape_direction": curvature.direction if leads_down else None,
        "n_products": curvature.n_products,
    }


def quadratic_curvature(problem, W, v, G, values, scales, max_products):
    """The lowest curvature detected, from explicit directions or by Lanczos' method.

    The explicit directions attain the bound if a unit with the largest output weight is free (has no effect). Only
    otherwise products are used; at a proven optimum (``max_products=0``) few, and only if it may be a strict one.
    """
    product, bound = quadratic_product(problem, W, v, G), quadratic_curvature_bound(v, values)
    found = explicit_directions(W, v, G)[:1]
    value, direction = (rayleigh(product, found[0][1]), found[0][1]) if found else (np.inf, None)
    near = _AT_BOUND * abs(bound) + FLAT * 1e-3 * scales.curvature
    if value <= bound + near:
        return Curvature(value, bound, direction, len(found), True)
    if not max_products and value <= FLAT * scales.curvature:
        return Curvature(value, bound, direction, len(found), False)
    starts = [np.ones_like(W) + np.sin(np.arange(W.size, dtype=float)).reshape(W.shape)]
    starts += [np.sqrt(W.size) * direction] if direction is not None else []
    other, vector, n_products, converged = lanczos(product, W.shape, starts, max(max_products, _FEWEST_PRODUCTS))
    if other <= value:
        value, direction = rayleigh(product, vector), vector
    return Curvature(value, bound, direction, n_products + len(found) + 1, converged)
