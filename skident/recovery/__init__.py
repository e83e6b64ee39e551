"""The stages of identification, each a function of an oracle and arrays."""

from .assignment import (
    cluster_directions,
    detect_first_layer,
    detect_last_layer,
    last_layer_from_jacobian,
    match_directions,
)
from .clipping import find_clipping
from .completion import CompletionProblem, fit_ridge_units, mixing_matrices, solve_completion
from .least_squares import NetworkLeastSquares
from .minimality import redundant_units
from .polish import change_inputs, design_points, polish_from_oracle, polish_network
from .saturation import FirstLayer, NotSaturatingError, find_first_layer, refine_lengths
from .stages import StageLog
from .subspace import entangled_subspace, random_sphere, sample_hessians
from .vertices import ask_vertices, fit_from_random_starts, network_from_vertices

__all__ = [
    "CompletionProblem",
    "FirstLayer",
    "NetworkLeastSquares",
    "NotSaturatingError",
    "StageLog",
    "ask_vertices",
    "change_inputs",
    "cluster_directions",
    "design_points",
    "detect_first_layer",
    "detect_last_layer",
    "entangled_subspace",
    "find_clipping",
    "find_first_layer",
    "fit_from_random_starts",
    "fit_ridge_units",
    "last_layer_from_jacobian",
    "match_directions",
    "mixing_matrices",
    "network_from_vertices",
    "polish_from_oracle",
    "polish_network",
    "random_sphere",
    "redundant_units",
    "refine_lengths",
    "sample_hessians",
    "solve_completion",
]
