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
from .compression import compress_network
from .fitting import (
    Budget,
    fit_network,
    network_through,
    prune_to,
    prune_to_smallest,
    random_network,
    smallest_network_through,
)
from .hermite_regression import hermite_gram, n_hermite_features, regress_on_hermite, tensors_from_gram
from .hermite_stage import TensorStage, estimate_tensors, tensor_stage
from .least_squares import NetworkLeastSquares
from .line_kinks import LineKinks, NotShallowReLUError, find_kinks
from .minimality import redundant_units
from .moment_fit import fit_candidates, moment_candidates, units_tensors
from .polish import change_inputs, design_points, polish_from_oracle, polish_network, standard_errors
from .pruning import removal_costs, remove_unit
from .relu_literal import learn_literally, raw_tensors
from .relu_moments import moment_loss, refine_by_moments, units_from_moments
from .relu_network import find_relu_network
from .relu_samples import LearnedReLU, learn_relu_network
from .relu_scalars import fix_signs, population_tensors, recover_scalars, relu_coefficients, term_coefficients
from .relu_signs import solve_signs
from .relu_tensors import RecoveredUnits, recover_full_rank, recover_up_to_signs
from .ridge_fit import RidgeFit, RidgeModel, fit_ridges, regress_on_ridges
from .ridge_signs import SignedFit, as_relu, resolve_signs
from .ridge_units import RidgeRegression, consolidate, regress_on_features, ridge_features
from .sample import Sample
from .saturation import FirstLayer, NotSaturatingError, find_first_layer, refine_lengths
from .shifts import ShiftsFromGradients, find_first_shifts, shifts_from_gradients
from .stages import StageLog
from .subspace import entangled_subspace, random_sphere, sample_hessians
from .tails import lengths_from_tails
from .vertices import (
    ask_interior,
    ask_vertices,
    growing,
    network_from_interior,
    network_from_stem,
    network_from_vertices,
    smallest_behind,
)

__all__ = [
    "Budget",
    "CompletionProblem",
    "FirstLayer",
    "LearnedReLU",
    "LineKinks",
    "NetworkLeastSquares",
    "NotSaturatingError",
    "NotShallowReLUError",
    "RecoveredUnits",
    "RidgeFit",
    "RidgeModel",
    "RidgeRegression",
    "Sample",
    "ShiftsFromGradients",
    "SignedFit",
    "StageLog",
    "TensorStage",
    "as_relu",
    "ask_interior",
    "ask_vertices",
    "change_inputs",
    "cluster_directions",
    "compress_network",
    "consolidate",
    "design_points",
    "detect_first_layer",
    "detect_last_layer",
    "entangled_subspace",
    "estimate_tensors",
    "find_clipping",
    "find_first_layer",
    "find_first_shifts",
    "find_kinks",
    "find_relu_network",
    "fit_candidates",
    "fit_network",
    "fit_ridge_units",
    "fit_ridges",
    "fix_signs",
    "growing",
    "hermite_gram",
    "last_layer_from_jacobian",
    "learn_literally",
    "learn_relu_network",
    "lengths_from_tails",
    "match_directions",
    "mixing_matrices",
    "moment_candidates",
    "moment_loss",
    "n_hermite_features",
    "network_from_interior",
    "network_from_stem",
    "network_from_vertices",
    "network_through",
    "polish_from_oracle",
    "polish_network",
    "population_tensors",
    "prune_to",
    "prune_to_smallest",
    "random_network",
    "random_sphere",
    "raw_tensors",
    "recover_full_rank",
    "recover_scalars",
    "recover_up_to_signs",
    "redundant_units",
    "refine_by_moments",
    "refine_lengths",
    "regress_on_features",
    "regress_on_hermite",
    "regress_on_ridges",
    "relu_coefficients",
    "removal_costs",
    "remove_unit",
    "resolve_signs",
    "ridge_features",
    "sample_hessians",
    "shifts_from_gradients",
    "smallest_behind",
    "smallest_network_through",
    "solve_completion",
    "solve_signs",
    "standard_errors",
    "tensor_stage",
    "tensors_from_gram",
    "term_coefficients",
    "units_from_moments",
    "units_tensors",
]
