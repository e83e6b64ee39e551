"""How a network is asked: black boxes, their derivatives, their noise, and the count of queries."""

from ._errors import BlackBoxError
from ._noise import NoiseLevel, above_rounding, measure_noise
from ._oracle import DERIVATIVES, Oracle
from ._responses import logits_from_probabilities, probabilities_from_logits, probability_error
from .clock import Clock, OutOfBudgetError

__all__ = [
    "DERIVATIVES",
    "BlackBoxError",
    "Clock",
    "NoiseLevel",
    "Oracle",
    "OutOfBudgetError",
    "above_rounding",
    "logits_from_probabilities",
    "measure_noise",
    "probabilities_from_logits",
    "probability_error",
]
