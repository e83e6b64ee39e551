"""A polish of a network on the outputs that determine its parameters best, those of nearly equal units included."""

import numpy as np

from skident.budget.constants import EPS
from skident.fitting.design import design_points, rows_by_leverage, rows_near_and_far
from skident.fitting.polish import polish_network
from skident.fitting.robust_polish import robust_polish
from skident.fitting.rounding import rounding_std
from skident.network import change_inputs
from skident.oracle import OutOfBudgetError

_LEVERAGE_PARAMETERS = 3000  # up to which rows are chosen by leverage (budget): 40 s
_MAX_PARAMETERS = 10_000  # of a polished network (budget): a matrix of 0.8 GB, 20 s
_OUTPUTS_PER_PARAMETER = 4.0  # standard errors are half those of as many outputs as parameters


def polished_for_bits(problem, network):
    """A network of the model's own inputs that explains outputs of double precision, with smaller errors of parameters.

    Random inputs rarely separate two units whose hyperplanes are nearly the same: errors of both cancel at all others.
    Inputs of large leverage lie between them; larger networks are fitted on other inputs near their hyperplanes.
    Returns the given network where no query is left, its parameters are too many, or its outputs are probabilities.
    """
    oracle = problem.oracle
    linear = network.output_activation == "identity" and not problem.identifies_logits
    if not linear or network.n_parameters > _MAX_PARAMETERS:
        return network
    own = change_inputs(network, oracle.center, oracle.scale)
    n = int(_OUTPUTS_PER_PARAMETER * network.n_parameters / network.n_outputs) + oracle.n_inputs
    try:
        with problem.log.stage("polish of the weights", oracle) as entry:
            if network.n_parameters <= _LEVERAGE_PARAMETERS:
                own, entry["residual"] = _on_rows_by_leverage(problem, own, n)
            else:
                W, b = own.weights[0], own.biases[0]
                near = design_points(W, b, n // 2, 1.0, problem.rng)
                U = np.concatenate([rows_near_and_far(own, n // 2, problem.rng), near])
                U, Y = _queried(oracle, U)
                own, entry["residual"], _ = polish_network(own, U, Y, factor_limit=_MAX_PARAMETERS)
    except OutOfBudgetError:
        return network
    return change_inputs(own, -oracle.center / oracle.scale, 1.0 / oracle.scale)


def _on_rows_by_leverage(problem, own, n):
    """A network of standardized inputs polished on about n rows, and its relative residual."""
    oracle, rng = problem.oracle, problem.rng

    def std_of(U):
        return np.maximum(rounding_std(own, U, center=oracle.center, scale=oracle.scale, eps=EPS), EPS)

    def draw(k):
        return oracle.clip_to_range(rows_near_and_far(own, k, rng))

    U, Y = _queried(oracle, rows_by_leverage(own, n, std_of, draw, rng))
    # A robust fit alone would take the outputs between nearly equal units for outliers.
    polished, residual, _ = polish_network(own, U, Y)
    return robust_polish(polished, U, Y, std_of(U)).network, residual


def _queried(oracle, U):
    """Points within the input range, and the model's own outputs."""
    U = oracle.clip_to_range(U)
    return U, oracle.output_center + oracle.output_scale * oracle(U)
