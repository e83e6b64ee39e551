"""Certify a point of the landscape of a convex loss other than the squared one: logistic, Huber or Poisson."""

from dataclasses import replace

import numpy as np

from .certificate import CertificateOptions, Proof
from .curvature import form_certificate
from .fenchel_bounds import dual_candidates, dual_lower_bound, loss_upper_bound
from .quadratic_form import OutputSigns, quadratic_form, weight_gradient

_SLACK = 0.5  # share of the gap that counts as zero that a finite radius may cost
_RADII = 1000.0  # times the norm of the parameters: the least radius of a proof without ridge
_USUAL = CertificateOptions()


def certify_convex_loss(problem, W, v, options=_USUAL, solution=None):
    """`landscape_certificate` for a `ConvexLossProblem`; `solution` is a form (d, d) near the minimizer, if known."""
    point = problem.at(quadratic_form(W, v))
    above = loss_upper_bound(problem, W, v, point)
    if not np.isfinite(above) or not np.isfinite(point.gradient).all():
        raise ValueError("the loss or its gradient overflows at this point; scale X, y and W to ordinary magnitudes.")
    proof = _proof(problem, point, OutputSigns.of(v), above, (options, solution))
    proof, G = replace(proof, value=max(proof.value, 0.0)), point.gradient
    missing = _missing(problem, v)
    found = form_certificate(problem, point, (W, v), G, point.value, proof, options.max_products, lambda _: missing)
    found = replace(found, loss_name=problem.loss.name)
    if found.status != "not stationary":
        return found
    return replace(found, escape_direction=-weight_gradient(W, v, G) / found.gradient_norm)


def _proof(problem, point, signs, above, means):
    """The best bound: at the point's own slopes, then at those of the minimizer over all forms."""
    options, solution = means
    zero_gap = options.tol * problem.target_value
    best = Proof(0.0, "losses are not negative", above, bool(above <= zero_gap))
    for how, other in _sources(problem, point, options, solution):
        for u in dual_candidates(problem, other):
            bound = dual_lower_bound(problem, u, signs, _SLACK * zero_gap)
            reach = _RADII * max(1.0, _norm(point), _norm(other))
            if bound.radius < reach or not bound.value > best.value:
                continue
            gap = max(above - bound.value, 0.0)
            best = Proof(bound.value, how, gap, bool(gap <= zero_gap), bound.radius)
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
