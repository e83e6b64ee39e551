"""Certify a point of the landscape of a convex loss other than the squared one: logistic, Huber or Poisson."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .certificate import CertificateOptions, LandscapeCertificate, certificate_reason, certificate_status
from .fenchel_bounds import DualBound, dual_candidates, dual_lower_bound, loss_upper_bound
from .point_curvature import FLAT, STATIONARY, Scales, curvature_fields, quadratic_curvature
from .quadratic_form import OutputSigns, quadratic_form, weight_gradient

__all__ = ["certify_convex_loss"]

_SLACK = 0.5  # share of the gap that counts as zero that a finite radius may cost
_RADII = 1000.0  # times the norm of the parameters: the least radius of a proof without ridge
_USUAL = CertificateOptions()


@dataclass(frozen=True)
class _Proof:
    """The best dual bound, its source, and whether it proves a point optimal."""

    bound: DualBound
    how: str
    gap: float
    proven: bool


def certify_convex_loss(problem, W, v, options=_USUAL, solution=None):
    """`landscape_certificate` for a `ConvexLossProblem`; `solution` is a form (d, d) near the minimizer, if known."""
    point = problem.at(quadratic_form(W, v))
    above = loss_upper_bound(problem, W, v, point)
    if not np.isfinite(above) or not np.isfinite(point.gradient).all():
        raise ValueError("the loss or its gradient overflows at this point; scale X, y and W to ordinary magnitudes.")
    G, signs, scales = point.gradient, OutputSigns.of(v), Scales(problem, v)
    proof = _proof(problem, point, signs, above, (options, solution))
    values = np.linalg.eigvalsh(G)
    max_products = 0 if proof.proven else options.max_products
    curvature = quadratic_curvature(point, W, v, G, values, scales, max_products)
    stationary = np.linalg.norm(np.sqrt(np.abs(v))[:, None] * (W @ G)) <= STATIONARY * scales.slope
    status = certificate_status(proof.proven, stationary, curvature.value < -FLAT * scales.curvature)
    slope, norm = weight_gradient(W, v, G), float(np.linalg.norm(weight_gradient(W, v, G)))
    numbers = {"loss": point.value, "gap": proof.gap, "gradient_norm": norm, "curvature": curvature.value}
    fields = curvature_fields(curvature, status)
    if status == "not stationary":
        fields["escape_direction"] = -slope / norm
    return LandscapeCertificate(
        status,
        proof.proven,
        certificate_reason(status, proof.how, **numbers) + (_missing(problem, v) if status == "undecided" else ""),
        loss=point.value,
        lower_bound=max(proof.bound.value, 0.0),
        gap=proof.gap,
        null_loss=problem.null_value,
        gradient_norm=norm,
        residual_norm=float(np.abs(values).max()),
        wrong_norm=float(np.abs(signs.descent_part(values)).max()),
        radial_slope=float(np.sum(W * slope)),
        output_weights=v,
        terms=problem.terms,
        loss_name=problem.loss.name,
        radius=proof.bound.radius,
        **fields,
    )


def _proof(problem, point, signs, above, means):
    """The best bound: at the point's own slopes, then at those of the minimizer over all forms."""
    options, solution = means
    zero_gap = options.tol * problem.target_value
    best = _Proof(DualBound(0.0), "losses are not negative", above, above <= zero_gap)
    for how, other in _sources(problem, point, options, solution):
        for u in dual_candidates(problem, other):
            bound = dual_lower_bound(problem, u, signs, _SLACK * zero_gap)
            reach = _RADII * max(1.0, _norm(point), _norm(other))
            if bound.radius < reach or not bound.value > best.bound.value:
                continue
            gap = max(above - bound.value, 0.0)
            best = _Proof(bound, how, gap, bool(gap <= zero_gap))
        if best.proven:
            break
    return best


def _sources(problem, point, options, solution):
    """Yield points whose slopes may give a bound, with a name, in increasing order of cost."""
    yield "Fenchel duality at the point's own slopes", point
    if min(problem.n, problem.n_unknowns) <= options.max_dense:
        form = problem.minimize()[0] if solution is None else solution
        yield "Fenchel duality at the minimizer over all quadratic forms", problem.at(form)


def _norm(point):
    """Norm of all parameters of a point."""
    return float(np.hypot(np.linalg.norm(point.M), np.linalg.norm(point.side)))


def _missing(problem, v):
    """Why an undecided point may or may not be a global optimum."""
    d, counts = problem.d, (int(np.sum(v > 0)), int(np.sum(v < 0)))
    if (min(counts) or max(counts)) < d:
        return (
            f". Local minima that are not global are excluded for d = {d} output weights of each sign that occurs; "
            f"there are {counts[0]} positive and {counts[1]} negative ones"
        )
    return ". A ridge, or a larger one (alpha), makes the bound tight" + (
        "; without one, classes that a quadratic form separates have no optimum" if not problem.alpha else ""
    )
