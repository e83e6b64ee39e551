"""Which activation a black box has, from its answers alone.

- `growth`: what answers do far out: settle, grow like a power, swing.
- `stretches`: a stretch of a far line on which one unit changes, and all else is constant or linear.
- `profiles`: whose shape that stretch has.
- `look`: all of it, and how sure it is.
"""

from .detection import ActivationEvidence, look_at_activation
from .near_kinks import kinks_or_curves

__all__ = ["ActivationEvidence", "kinks_or_curves", "look_at_activation"]
