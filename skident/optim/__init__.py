"""Solvers that know arrays only, and how work is shared out."""

from .batched_levenberg_marquardt import BatchedNormalEquations, BatchedResult, Ending, batched_levenberg_marquardt
from .best_of import best_of
from .bisection import bisect
from .conjugate_gradients import LinearSolution, conjugate_gradients
from .factored_normal_equations import FactoredNormalEquations, KeptFactor
from .jobs import in_order
from .levenberg_marquardt import (
    DenseJacobian,
    DenseNormalEquations,
    KrylovNormalEquations,
    LeastSquaresResult,
    give_up_when_slow,
    levenberg_marquardt,
)
from .sphere_ascent import SphereAscentResult, sphere_ascent, unit_norm
from .threads import all_threads, gram_work, one_blas_thread, one_thread
from .variable_projection import BatchedSeparableProblem, LinearFit, SeparableProblem, fit_coefficients
from .work_budget import WorkBudget

__all__ = [
    "BatchedNormalEquations",
    "BatchedResult",
    "BatchedSeparableProblem",
    "DenseJacobian",
    "DenseNormalEquations",
    "Ending",
    "FactoredNormalEquations",
    "KeptFactor",
    "KrylovNormalEquations",
    "LeastSquaresResult",
    "LinearFit",
    "LinearSolution",
    "SeparableProblem",
    "SphereAscentResult",
    "WorkBudget",
    "all_threads",
    "batched_levenberg_marquardt",
    "best_of",
    "bisect",
    "conjugate_gradients",
    "fit_coefficients",
    "give_up_when_slow",
    "gram_work",
    "in_order",
    "levenberg_marquardt",
    "one_blas_thread",
    "one_thread",
    "sphere_ascent",
    "unit_norm",
]
