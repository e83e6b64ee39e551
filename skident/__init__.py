"""skident tells what a neural network is, from the outside."""

from skident.compression.compressor import NetworkCompressor
from skident.hierarchical.classifier import HierarchicalQuadraticNetClassifier
from skident.hierarchical.regressor import HierarchicalQuadraticNet
from skident.identification.completion import NetworkCompletion
from skident.identification.extractor import EntangledWeightExtractor
from skident.identification.identifier import NetworkIdentifier
from skident.landscape.regressor import QuadraticNetRegressor
from skident.saddle.analyzer import SaddleEscapeAnalyzer
from skident.saddle.training import SaddleToSaddleClassifier, SaddleToSaddleRegressor
from skident.samples.regressor import TensorReLURegressor

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
