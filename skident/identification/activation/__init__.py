"""Detection of activations from outputs: their behavior far out, the profile of one unit, their own activation."""

from .detection import ActivationEvidence, between_plateaus, detect_activation, detect_within_range

__all__ = ["ActivationEvidence", "between_plateaus", "detect_activation", "detect_within_range"]
