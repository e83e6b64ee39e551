"""Solvers that know arrays only."""

from .levenberg_marquardt import (
    DenseNormalEquations,
    KrylovNormalEquations,
    LeastSquaresResult,
    levenberg_marquardt,
)

__all__ = ["DenseNormalEquations", "KrylovNormalEquations", "LeastSquaresResult", "levenberg_marquardt"]
