"""A polish on the outputs that determine every parameter of a network best, those of nearly equal units included."""

from __future__ import annotations

import numpy as np

from skident.fitting.design import rows_by_leverage, rows_near_and_far
from skident.fitting.polish import polish_network
from skident.fitting.robust_polish import robust_polish
from skident.fitting.rounding import rounding_std
from skident.network import change_inputs
from skident.oracle import OutOfBudgetError

__all__ = ["polished_by_leverage"]

_EPS = np.finfo(float).eps
_MAX_PARAMETERS = 3000  # of a polished network (budget): 40 s
_OUTPUTS_PER_PARAMETER = 4.0  # standard errors are half those of as many outputs as parameters


def polished_by_leverage(problem, network):
    """A network of the model's own inputs that explains outputs of double precision, with smaller errors of parameters.

    Random inputs rarely separate two units whose hyperplanes are nearly the same: errors of both cancel at all others.
    Inputs of large leverage lie between them. Returns the given network where no query is left, its parameters are too
    many, or its outputs are probabilities.
    """
    oracle = problem.oracle
    linear = network.output_activation == "identity" and not problem.identifies_logits
    if not linear or network.n_parameters > _MAX_PARAMETERS:
        return network
    own = change_inputs(network, oracle.center, oracle.scale)

    def std_of(U):
        return np.maximum(rounding_std(own, U, center=oracle.center, scale=oracle.scale, eps=_EPS), _EPS)

    n = int(_OUTPUTS_PER_PARAMETER * network.n_parameters / network.n_outputs) + oracle.n_inputs
    try:
        with problem.log.stage("polish of the weights by leverage", oracle):
            draw = lambda k: oracle.clip_to_range(rows_near_and_far(own, k, problem.rng))  # noqa: E731
            U = rows_by_leverage(own, n, std_of, draw, problem.rng)
            Y = oracle.output_center + oracle.output_scale * oracle(U)
            # A robust fit alone would take the outputs between nearly equal units for outliers.
            own = polish_network(own, U, Y)[0]
            own = robust_polish(own, U, Y, std_of(U)).network
    except OutOfBudgetError:
        return network
    return change_inputs(own, -oracle.center / oracle.scale, 1.0 / oracle.scale)
