"""Solvers that know arrays only, and certificates of where they end."""

from .certificate import LandscapeCertificate
from .curvature import lanczos
from .escape_programme import PlanarEscape, fastest_planar_escape
from .landscape import certify_quadratic, landscape_certificate
from .levenberg_marquardt import (
    DenseNormalEquations,
    KrylovNormalEquations,
    LeastSquaresResult,
    give_up_when_slow,
    levenberg_marquardt,
)
from .lower_bounds import dual_bound, lower_bound
from .quadratic_convex import ConvexSolution, factorise, least_squares_size, solve_convex
from .quadratic_descent import DescentResult, block_escape, descend, lines_loss
from .quadratic_problem import QuadraticProblem
from .quadratic_ridge import leave_one_out_ridge
from .shallow_batch import ShallowBatch, train_shallow_batch
from .sphere_ascent import SphereAscentResult, sphere_ascent, unit_norm

__all__ = [
    "ConvexSolution",
    "DenseNormalEquations",
    "DescentResult",
    "KrylovNormalEquations",
    "LandscapeCertificate",
    "LeastSquaresResult",
    "PlanarEscape",
    "QuadraticProblem",
    "ShallowBatch",
    "SphereAscentResult",
    "block_escape",
    "certify_quadratic",
    "descend",
    "dual_bound",
    "factorise",
    "fastest_planar_escape",
    "give_up_when_slow",
    "lanczos",
    "landscape_certificate",
    "least_squares_size",
    "leave_one_out_ridge",
    "levenberg_marquardt",
    "lines_loss",
    "lower_bound",
    "solve_convex",
    "sphere_ascent",
    "train_shallow_batch",
    "unit_norm",
]
