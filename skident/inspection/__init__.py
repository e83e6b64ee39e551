"""Plots of what was recovered, in scikit-learn's Display manner; matplotlib is imported when one is drawn."""

from ._landscape import LandscapeDisplay
from ._phase_transition import PhaseTransition, PhaseTransitionDisplay, phase_transition
from ._spectrum import SpectrumDisplay
from ._weights import WeightRecoveryDisplay

__all__ = [
    "LandscapeDisplay",
    "PhaseTransition",
    "PhaseTransitionDisplay",
    "SpectrumDisplay",
    "WeightRecoveryDisplay",
    "phase_transition",
]
