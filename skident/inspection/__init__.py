"""Displays: plots of results in scikit-learn's manner; matplotlib is imported when one is drawn."""

from ._audit import AuditDisplay
from ._hierarchical import BackwardCorrectionDisplay, LayerFeatureDisplay
from ._identification import IdentificationDisplay, SpectrumDisplay, WeightRecoveryDisplay
from ._landscape import LandscapeDisplay, PhaseTransitionDisplay
from ._saddles import EscapeDisplay, SingularSpectrumDisplay

__all__ = [
    "AuditDisplay",
    "BackwardCorrectionDisplay",
    "EscapeDisplay",
    "IdentificationDisplay",
    "LandscapeDisplay",
    "LayerFeatureDisplay",
    "PhaseTransitionDisplay",
    "SingularSpectrumDisplay",
    "SpectrumDisplay",
    "WeightRecoveryDisplay",
]
