from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skident.network import FeedforwardNetwork

Floats: TypeAlias = NDArray[np.float64]

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

class UnitMatchingError(NamedTuple):
    weights: float
    biases: float
    output_weights: float
    permutation: NDArray[np.intp]
    signs: Floats

def assignment_error(true_weights: ArrayLike, assigned: ArrayLike) -> float: ...
def false_positive_rate(true_weights: ArrayLike, found: ArrayLike, radius: float = 0.05) -> float: ...
def feature_recovery_error(true_features: ArrayLike, features: ArrayLike) -> float: ...
def neuron_correlation(before: ArrayLike, after: ArrayLike, *, match: bool = False) -> float: ...
def parameter_error(true_network: FeedforwardNetwork, network: FeedforwardNetwork) -> float: ...
def recovery_rate(true_weights: ArrayLike, found: ArrayLike, radius: float = 0.05) -> float: ...
def relative_max_error(y_true: ArrayLike, y_pred: ArrayLike) -> float: ...
def relative_mse(y_true: ArrayLike, y_pred: ArrayLike) -> float: ...
def bias_error(true_network: FeedforwardNetwork, network: FeedforwardNetwork) -> float: ...
def subspace_distance(A: ArrayLike, B: ArrayLike) -> float: ...
def unit_matching_error(
    true_network: FeedforwardNetwork | tuple[ArrayLike, ArrayLike, ArrayLike],
    network: FeedforwardNetwork | tuple[ArrayLike, ArrayLike, ArrayLike],
) -> UnitMatchingError: ...
