from .backward_correction import (
    BackwardCorrection as BackwardCorrection,
)
from .backward_correction import (
    backward_feature_correction as backward_feature_correction,
)
from .classifier import HierarchicalQuadraticNetClassifier as HierarchicalQuadraticNetClassifier
from .regressor import HierarchicalQuadraticNet as HierarchicalQuadraticNet

__all__ = [
    "BackwardCorrection",
    "HierarchicalQuadraticNet",
    "HierarchicalQuadraticNetClassifier",
    "backward_feature_correction",
]
