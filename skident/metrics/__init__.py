"""Errors of a recovered subspace, set of weights, function or network; the true one comes first."""

from ._features import feature_recovery_error, neuron_correlation
from ._network import bias_error, parameter_error
from ._prediction import relative_max_error, relative_mse
from ._relu import UnitMatchingError, unit_matching_error
from ._subspace import subspace_distance
from ._weights import assignment_error, false_positive_rate, recovery_rate

__all__ = [
    "UnitMatchingError",
    "assignment_error",
    "bias_error",
    "false_positive_rate",
    "feature_recovery_error",
    "neuron_correlation",
    "parameter_error",
    "recovery_rate",
    "relative_max_error",
    "relative_mse",
    "subspace_distance",
    "unit_matching_error",
]
