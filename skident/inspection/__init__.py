"""Plots of what was recovered, in scikit-learn's Display manner; matplotlib is imported when one is drawn."""

from ._backward_correction import BackwardCorrection, backward_feature_correction
from ._hierarchical import BackwardCorrectionDisplay, LayerFeatureDisplay
from ._landscape import LandscapeDisplay
from ._saddles import EscapeDisplay, SingularSpectrumDisplay
from ._spectrum import SpectrumDisplay
from ._weights import WeightRecoveryDisplay

__all__ = [
    "BackwardCorrection",
    "BackwardCorrectionDisplay",
    "EscapeDisplay",
    "LandscapeDisplay",
    "LayerFeatureDisplay",
    "SingularSpectrumDisplay",
    "SpectrumDisplay",
    "WeightRecoveryDisplay",
    "backward_feature_correction",
]
