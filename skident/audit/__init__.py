"""Is it the network that I know? A black box compared with a network whose weights are known.

- `rounding`: by how much answers of the same network may differ.
- `parameters`: what every weight and shift does to the answers.
- `inputs`: where to ask, so that every unit shows.
- `asked_rows`: what was asked, and how exact the answers are.
- `batches`: whether outputs depend on the other rows of a batch.
- `explanations`: which weights or units are changed, if answers differ.
- `verify`, `report`: the comparison and what it found; `verifier` is its estimator.
"""

from .report import AuditReport, Difference
from .verifier import NetworkVerifier
from .verify import verify_same

__all__ = ["AuditReport", "Difference", "NetworkVerifier", "verify_same"]
