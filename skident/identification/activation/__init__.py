"""Detection of activations from outputs: their behavior far out, the profile of one unit, their own activation."""

from .detection import ActivationEvidence, detect_activation, detect_within_range
from .growth import classify_near_center

__all__ = ["ActivationEvidence", "classify_near_center", "detect_activation", "detect_within_range"]
