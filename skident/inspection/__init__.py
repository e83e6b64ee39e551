"""Displays: plots of results in scikit-learn's manner; matplotlib is imported when one is drawn."""

from ._audit import AuditDisplay
from ._hierarchical import BackwardCorrectionDisplay, LayerFeatureDisplay
from ._identification import IdentificationDisplay
from ._landscape import LandscapeDisplay
from ._phase_transition import PhaseTransitionDisplay
from ._saddles import EscapeDisplay, SingularSpectrumDisplay
from ._spectrum import SpectrumDisplay
from ._weights import WeightRecoveryDisplay

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
