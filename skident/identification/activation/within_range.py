"""Detection of the hidden activation from outputs within an input range, where no unit can be isolated far out."""

from __future__ import annotations

from .detection import ActivationEvidence
from .growth import classify_near_center
from .outputs import PreActivationOracle
from .windows import shape_in_windows

__all__ = ["detect_within_range"]

_WHERE = "within input_range"
_BY_SHAPE = {"linear": "identity", "piecewise": "relu", "curved": "tanh"}  # of smooth units, tanh is the most common


def detect_within_range(oracle, rng):
    """`ActivationEvidence` of an oracle with an input range, from lines that end at its border.

    Linear and piecewise linear outputs are determined; curved ones are taken to come from tanh units, which is tested
    by the fit that follows. 644 to 1,288 queries.
    """
    began = oracle.n_queries
    if oracle.accuracy.exact:
        shape = classify_near_center(PreActivationOracle(oracle, "identity"), rng)
    else:
        shape = shape_in_windows(oracle, oracle.accuracy.std, rng) or "curved"
    return ActivationEvidence(_BY_SHAPE[shape], "", _WHERE, [f"{shape} {_WHERE}"], oracle.n_queries - began)
