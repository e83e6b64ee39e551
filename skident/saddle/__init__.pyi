from .analyzer import SaddleEscapeAnalyzer as SaddleEscapeAnalyzer
from .module import BiasFreeMLP as BiasFreeMLP
from .planar import fastest_planar_escape as fastest_planar_escape
from .plateaus import detect_escapes as detect_escapes
from .training import (
    SaddleToSaddleClassifier as SaddleToSaddleClassifier,
)
from .training import (
    SaddleToSaddleRegressor as SaddleToSaddleRegressor,
)

__all__ = [
    "BiasFreeMLP",
    "SaddleEscapeAnalyzer",
    "SaddleToSaddleClassifier",
    "SaddleToSaddleRegressor",
    "detect_escapes",
    "fastest_planar_escape",
]
