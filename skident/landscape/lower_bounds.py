"""Lower bounds of the loss over all quadratic networks, each proven for the exact numbers in the arrays."""

from dataclasses import dataclass, replace

import numpy as np

from .bounded_sums import collinearity, precisions
from .convex_solver import ConvexSolution, least_squares_size, solve_convex
from .descent import polished_form
from .dual_bounds import dual_bound, least_squares_bound, one_sign_bound
from .exact_arithmetic import exact_least_loss, exact_order, repeated_inputs_bound

_LEAST_SQUARES = "least squares over all quadratic forms"
# Where the rounding of a bound in floating point is below this share of the gap that counts as none, balls add nothing.
_TIGHT = 1e-2
# Inputs that are more nearly dependent than this are named as the reason where one sign has no tight bound.
_COLLINEAR = 1e-5


@dataclass(frozen=True)
class LowerBound:
    """A proven lower bound of the loss over networks with output weights of given signs."""

    value: float
    how: str  # the source of the bound
    missing: str = ""  # the obstacle that prevented a better bound, if known


def lower_bound(problem, M, signs, *, loss, tol=1e-10, max_dense=6000, solution=None):
    """The best proven lower bound of the loss over all networks with output weights of these signs.

    The residual at M (loss `loss`, rounded up) is tried first, and the search ends at a bound within `tol` of it,
    relative to the loss of a constant. Bounds in floating point come first (`skident.landscape.dual_bounds`), and
    suffice for well conditioned inputs; then exact integer and ball arithmetic (`skident.landscape.exact_arithmetic`),
    up to order 250.
    """
    enough, best, missing = tol * problem.target_value + problem.rounding, None, ""
    if signs.plus or signs.minus:
        bounds = _bounds(problem, M, signs, _Effort(enough, max_dense, solution))
    else:
        bounds = _bounds_of_terms(problem, signs)
    for bound in bounds:
        best = bound if best is None or bound.value > best.value else best
        missing = bound.missing or missing
        if loss - best.value <= enough:
            return best
    return replace(best, missing=missing)


@dataclass(frozen=True)
class _Effort:
    """The gap that counts as zero, the largest order of a factorization, and a `ConvexSolution` or None."""

    enough: float
    max_dense: int
    solution: ConvexSolution | None


def _bounds(problem, M, signs, means):
    """Yield bounds in increasing order of cost."""
    yield LowerBound(0.0, "losses are not negative")
    if problem.alpha > 0:
        u, how = problem.residual(M), "weak duality at the point's own residual"
        yield from (LowerBound(dual_bound(problem, u, signs, dtype), how) for dtype in precisions(problem))
    elif signs.plus != signs.minus:
        yield from _one_sign(problem, M, signs)
    bound, n_distinct = repeated_inputs_bound(problem)
    if n_distinct < problem.n:
        yield LowerBound(bound, "rows that are the same with targets that are not")
    yield from (_least_squares_with_ridge if problem.alpha > 0 else _least_squares)(problem, means)
    # Ridges too small for weak duality in double precision are left out: that lowers the loss by what they cost.
    if problem.alpha > 0 and 0.5 * problem.alpha * float(np.sum(M * M)) <= 1e-13 * problem.target_value:
        bare = problem.changed(terms=problem.terms.without_ridge())
        yield from _bounds(bare, M, signs, replace(means, solution=None))
    if signs.plus != signs.minus and collinearity(problem) < _COLLINEAR:
        what = f"the inputs are collinear to {collinearity(problem):.0e}"
        yield LowerBound(0.0, "", f"{what}, beyond what double precision can decide for output weights of one sign")


def _one_sign(problem, M, signs):
    """Bounds for output weights of one sign without ridge, at M and at a nearby minimizer to the last digits."""
    if problem.weights is not None:
        yield LowerBound(0.0, "", "for weighted samples, bounds for output weights of one sign need a ridge, alpha > 0")
        return
    how = "weak duality at the point's residual, shifted until R is definite"
    yield from (LowerBound(one_sign_bound(problem, M, signs, dtype), how) for dtype in precisions(problem))
    M, how = polished_form(problem, M, 1.0 if signs.plus else -1.0), how.replace("the point's", "a nearby minimizer's")
    yield from (LowerBound(one_sign_bound(problem, M, signs, dtype), how) for dtype in precisions(problem))


def _bounds_of_terms(problem, signs):
    """Bounds if no unit has an output weight, so that M = 0."""
    how = "no unit has an output weight"
    yield LowerBound(dual_bound(problem, problem.residual(np.zeros((problem.d, problem.d))), signs), how)
    yield _in_balls(problem, how, forms=False)


def _least_squares(problem, means):
    """Least squares over all symmetric M, for any signs: in floating point, then in balls if necessary."""
    solution = means.solution
    if solution is not None and solution.value <= 1e-12 * problem.null_value:
        return  # nothing above that can be proven
    if problem.n_unknowns <= means.max_dense:
        found = least_squares_bound(problem, _TIGHT * means.enough)
        yield LowerBound(found.bound, _LEAST_SQUARES)
        if found.near - found.bound <= _TIGHT * means.enough:
            return
    if exact_order(problem)[0] <= means.max_dense:
        yield _in_balls(problem, _LEAST_SQUARES)


def _least_squares_with_ridge(problem, means):
    """The same with a ridge: weak duality at the residual of a solution, then balls."""
    solution = means.solution
    if solution is None and least_squares_size(problem) <= means.max_dense:
        solution = solve_convex(problem)
    if solution is not None:
        for dtype in precisions(problem):
            bound = dual_bound(problem, problem.residual(solution.M), dtype=dtype)
            yield LowerBound(bound, _LEAST_SQUARES)
            if solution.value - bound <= _TIGHT * means.enough:
                return
    if exact_order(problem)[0] <= means.max_dense:
        yield _in_balls(problem, _LEAST_SQUARES)


def _in_balls(problem, how, forms=True):
    """The bound in ball arithmetic, or the reason why there is none."""
    order, within_reach = exact_order(problem, forms)
    bound = exact_least_loss(problem, forms) if within_reach else None
    if bound is not None:
        return LowerBound(bound, how)
    why = "nor 4096 bits" if within_reach else f"and order {order} is too large for integers and balls"
    return LowerBound(0.0, how, f"{_obstacle(problem)}, beyond what double precision can decide, {why}")


def _obstacle(problem):
    """What prevents double precision from a least squares bound, in words."""
    if problem.n < problem.n_unknowns + problem.fit_intercept:
        return f"the {problem.n} rows are fewer than the unknowns"
    return f"the inputs are collinear to {collinearity(problem):.0e}"
