"""Plots of what was recovered, in scikit-learn's Display manner; matplotlib is imported when one is drawn."""

from ._spectrum import SpectrumDisplay
from ._weights import WeightRecoveryDisplay

__all__ = ["SpectrumDisplay", "WeightRecoveryDisplay"]
