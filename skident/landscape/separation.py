"""Separability of two classes by a quadratic form, which leaves the logistic loss without a minimum."""

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse
from scipy.optimize import linprog

_ROUNDINGS = 4.0  # times eps and the number of terms: the rounding of an output, relative to its terms' magnitudes
_LARGEST_PROGRAM = 2e6  # entries of the linear program (budget): seconds
_PROGRAM_TOL = 1e-7  # tolerance of the linear program, for margins of at most 1


@dataclass(frozen=True)
class Separation:
    """A quadratic function that separates two classes: the logistic loss without ridge has no minimum.

    Attributes
    ----------
    quadratic_form : ndarray of shape (d, d)
    coef : ndarray of shape (d,)
    intercept : float
        ``g(z) = z^T M z + coef . z + intercept``, for the inputs of the certificate, divided by the largest ``|g|``.
    margin : float
        Smallest ``y g(z)`` over the samples.
    is_complete : bool
        Whether all samples are strictly on their side, proven with the rounding of g. Otherwise some lie on the
        boundary to the tolerance of a linear program.
    """

    quadratic_form: np.ndarray = field(repr=False)
    coef: np.ndarray = field(repr=False)
    intercept: float = field(repr=False)
    margin: float
    is_complete: bool


def find_separation(problem, form, side):
    """A `Separation` of the classes of a `ConvexLossProblem`, or None; the function (`form`, `side`) is tried first."""
    found = _separation(problem, form, side)
    if found.is_complete:
        return found
    system = problem.system()
    if system.features.size > _LARGEST_PROGRAM:
        return None
    # Margins t_i in [0, 1] with the largest sum; it is 0 if no function separates, and the loss has a minimum.
    n, p = system.features.shape
    sizes = np.abs(system.features).max(axis=0)
    rows = -problem.y[:, None] * system.features / np.where(sizes > 0, sizes, 1.0)
    matrix = scipy.sparse.hstack([scipy.sparse.csr_array(rows), scipy.sparse.eye_array(n)]).tocsr()
    bounds = [(None, None)] * p + [(0.0, 1.0)] * n
    result = linprog(np.r_[np.zeros(p), -np.ones(n)], A_ub=matrix, b_ub=np.zeros(n), bounds=bounds, method="highs")
    if result.status != 0 or -result.fun <= _PROGRAM_TOL * n:
        return None
    form, side = problem.unpack(result.x[:p] / np.where(sizes > 0, sizes, 1.0))
    return _separation(problem, form, side)


def _separation(problem, form, side):
    """The function as a `Separation`, its margin measured and its rounding bounded."""
    outputs = problem.forms(form) + problem.side_features @ side
    terms = np.einsum("ij,ij->i", np.abs(problem.X) @ np.abs(form), np.abs(problem.X))
    terms = terms + np.abs(problem.side_features) @ np.abs(side)
    error = _ROUNDINGS * (2 * problem.d + len(side)) * np.finfo(float).eps * terms
    size = float(np.abs(outputs).max()) or 1.0
    margins = problem.y * outputs
    coef, intercept = problem.split(side / size)
    return Separation(form / size, coef, intercept, float(margins.min()) / size, bool((margins > error).all()))
