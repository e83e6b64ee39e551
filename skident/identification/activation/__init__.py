"""Which activation a black box has, from its answers alone.

- `growth`: what answers do far out: settle, grow like a power, swing.
- `intervals`: a interval of a far line on which one unit changes, and all else is constant or linear.
- `profiles`: whose shape that interval has.
- `look`: all of it, and how sure it is.
"""

from .detection import ActivationEvidence, detect_activation
from .near_kinks import classify_near_center

__all__ = ["ActivationEvidence", "classify_near_center", "detect_activation"]
