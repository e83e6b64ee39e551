"""Solvers that know arrays only, and certificates of where they end."""

from .levenberg_marquardt import (
    DenseNormalEquations,
    KrylovNormalEquations,
    LeastSquaresResult,
    give_up_when_slow,
    levenberg_marquardt,
)
from .sphere_ascent import SphereAscentResult, sphere_ascent, unit_norm

__all__ = [
    "DenseNormalEquations",
    "KrylovNormalEquations",
    "LeastSquaresResult",
    "SphereAscentResult",
    "give_up_when_slow",
    "levenberg_marquardt",
    "sphere_ascent",
    "unit_norm",
]
