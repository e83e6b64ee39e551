"""skident tells what a neural network is, from the outside."""

from skident.completion import NetworkCompletion
from skident.compression import NetworkCompressor
from skident.extraction import EntangledWeightExtractor
from skident.hierarchical import HierarchicalQuadraticNet, HierarchicalQuadraticNetClassifier
from skident.identification import NetworkIdentifier
from skident.quadratic import QuadraticNetRegressor
from skident.relu import TensorReLURegressor
from skident.saddle import SaddleEscapeAnalyzer, SaddleToSaddleClassifier, SaddleToSaddleRegressor

__all__ = [
    "EntangledWeightExtractor",
    "HierarchicalQuadraticNet",
    "HierarchicalQuadraticNetClassifier",
    "NetworkCompletion",
    "NetworkCompressor",
    "NetworkIdentifier",
    "QuadraticNetRegressor",
    "SaddleEscapeAnalyzer",
    "SaddleToSaddleClassifier",
    "SaddleToSaddleRegressor",
    "TensorReLURegressor",
]
