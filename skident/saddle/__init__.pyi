from .analyzer import SaddleEscapeAnalyzer as SaddleEscapeAnalyzer
from .estimators import (
    SaddleToSaddleClassifier as SaddleToSaddleClassifier,
)
from .estimators import (
    SaddleToSaddleRegressor as SaddleToSaddleRegressor,
)
from .module import BiasFreeMLP as BiasFreeMLP
from .planar_escape import fastest_planar_escape as fastest_planar_escape
from .plateaus import detect_escapes as detect_escapes

__all__ = [
    "BiasFreeMLP",
    "SaddleEscapeAnalyzer",
    "SaddleToSaddleClassifier",
    "SaddleToSaddleRegressor",
    "detect_escapes",
    "fastest_planar_escape",
]
