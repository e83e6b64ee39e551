"""Query a black box: adapters, derivatives, accuracy of the outputs, and the count of queries."""

from ._accuracy import MAX_NOISE, Accuracy, Precision, measure_accuracy, precision_of
from ._errors import BlackBoxError, NotIdentified
from ._logits import (
    are_probabilities,
    check_probabilities,
    logits_from_probabilities,
    probabilities_from_logits,
    probability_bounds,
    probability_error,
)
from ._noise import NoiseLevel, above_rounding, measure_noise
from ._oracle import DERIVATIVES, Oracle
from .budget import Budget, OutOfBudgetError
from .extremes import Extremes, Plateau

__all__ = [
    "Accuracy",
    "BlackBoxError",
    "Budget",
    "NotIdentified",
    "Oracle",
    "OutOfBudgetError",
    "logits_from_probabilities",
    "probabilities_from_logits",
]
