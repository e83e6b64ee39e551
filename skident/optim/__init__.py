"""Solvers that know arrays only, and how work is shared out."""

from .batched_levenberg_marquardt import BatchedNormalEquations, BatchedResult, Ending, batched_levenberg_marquardt
from .best_of import best_of
from .conjugate_gradients import LinearSolution, conjugate_gradients
from .jobs import Moment, in_order, one_blas_thread
from .kept_factor import FactoredNormalEquations, KeptFactor
from .levenberg_marquardt import (
    DenseNormalEquations,
    KrylovNormalEquations,
    LeastSquaresResult,
    give_up_when_slow,
    levenberg_marquardt,
)
from .sphere_ascent import SphereAscentResult, sphere_ascent, unit_norm
from .work_budget import WorkBudget

__all__ = [
    "BatchedNormalEquations",
    "BatchedResult",
    "DenseNormalEquations",
    "Ending",
    "FactoredNormalEquations",
    "KeptFactor",
    "KrylovNormalEquations",
    "LeastSquaresResult",
    "LinearSolution",
    "Moment",
    "SphereAscentResult",
    "WorkBudget",
    "batched_levenberg_marquardt",
    "best_of",
    "conjugate_gradients",
    "give_up_when_slow",
    "in_order",
    "levenberg_marquardt",
    "one_blas_thread",
    "sphere_ascent",
    "unit_norm",
]
