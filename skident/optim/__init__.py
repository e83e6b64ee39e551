"""Solvers on arrays: least squares, variable projection, linear systems, bisection, parallel work."""

from .batched_levenberg_marquardt import BatchedNormalEquations, BatchedResult, Ending, batched_levenberg_marquardt
from .best_of import best_of
from .bisection import bisect
from .conjugate_gradients import LinearSolution, conjugate_gradients
from .factored_normal_equations import FactoredNormalEquations as FactoredNormalEquations
from .factored_normal_equations import KeptFactor as KeptFactor
from .jobs import in_order
from .levenberg_marquardt import DenseJacobian as DenseJacobian
from .levenberg_marquardt import (
    DenseNormalEquations,
    KrylovNormalEquations,
    LeastSquaresResult,
    give_up_when_slow,
    levenberg_marquardt,
)
from .sphere_ascent import SphereAscentResult, sphere_ascent, unit_norm
from .threads import all_threads, gram_work, one_blas_thread, one_thread
from .variable_projection import BatchedSeparableProblem as BatchedSeparableProblem
from .variable_projection import LinearFit as LinearFit
from .variable_projection import SeparableProblem as SeparableProblem
from .variable_projection import fit_coefficients
from .work_budget import WorkBudget

__all__ = [
    "DenseNormalEquations",
    "LeastSquaresResult",
    "levenberg_marquardt",
]
