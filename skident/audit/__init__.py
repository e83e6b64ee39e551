"""Auditing a black box against a network with known weights.

- `rounding`: tolerance of outputs of the same network.
- `parameters`: effects of every weight and bias on the outputs.
- `inputs`: where to query, so that every unit has an effect.
- `queries`: queries, outputs, and their precision.
- `batches`: whether outputs depend on the other rows of a batch.
- `explanations`: which weights or units changed, if outputs differ.
- `causes`: ordinary causes: `changes` without numbers to fit, `fitted_maps` of inputs and outputs, `randomness`.
- `verify`, `report`: the comparison and its result; `verifier` is its estimator.
"""

from .report import AuditReport, Difference
from .verifier import NetworkVerifier
from .verify import verify_same

__all__ = ["AuditReport", "Difference", "NetworkVerifier", "verify_same"]
