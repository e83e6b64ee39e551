"""Solvers that know arrays only."""

from .levenberg_marquardt import (
    DenseNormalEquations,
    KrylovNormalEquations,
    LeastSquaresResult,
    give_up_when_slow,
    levenberg_marquardt,
)

__all__ = [
    "DenseNormalEquations",
    "KrylovNormalEquations",
    "LeastSquaresResult",
    "give_up_when_slow",
    "levenberg_marquardt",
]
