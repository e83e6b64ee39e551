"""Polish of a network whose first layer saturates: directions of its weights first, then all other parameters."""

import numpy as np

from skident.budget.constants import DENSE_PARAMETERS, MAX_CONDITION, OUTPUTS_PER_PARAMETER
from skident.linalg import lapack
from skident.network import get_activation
from skident.oracle import NotIdentified, OutOfBudgetError

from .design import design_points
from .directions_at_saturation import EXPONENTIAL_RATES, correct_directions
from .errors_of_fit import FitSample
from .polish import polish_network

_THOROUGH_OUTPUTS = 6.0  # `OUTPUTS_PER_PARAMETER` of a thorough polish


def directions_are_free(oracle, network, noise):
    """Whether `polish_with_directions` applies: many parameters, ``m_1 <= D`` saturating units, exact outputs."""
    W = network.weights[0]
    if noise is not None or oracle.restricted or oracle.response != "predict" or W.shape[1] > len(W):
        return False
    saturates = (
        get_activation(network.activations[0]).name in EXPONENTIAL_RATES and network.output_activation == "identity"
    )
    return saturates and network.n_parameters > DENSE_PARAMETERS and lapack.cond(W) < MAX_CONDITION


def polish_with_directions(oracle, network, rng, log, *, thorough=False):
    """As `polish_from_oracle`: `correct_directions`, then a fit of scales, biases and all further layers.

    The fit has ``(D - 1) m_1`` parameters less, and inputs at which the pre-activations are independent. None if the
    outputs change where the network's first layer is saturated.
    """
    W, b, m = network.weights[0], network.biases[0], network.layer_widths[0]
    behind = network.with_parameters([np.eye(m), *network.weights[1:]], [np.zeros(m), *network.biases[1:]])
    name, sample, residual = get_activation(network.activations[0]).name, None, np.inf
    try:
        with log.stage("polish (directions)", oracle) as entry:
            try:
                W = correct_directions(oracle, W, b, name, rng, behind=behind)
            except NotIdentified as error:
                entry["failed"] = str(error)
                return None
        network = network.with_parameters([W, *network.weights[1:]], network.biases)
        with log.stage("polish", oracle) as entry:

            def progress(done, show=entry["progress"]):
                show(done)
                return oracle.budget.out_of_time

            n_fitted = network.n_parameters - (network.n_inputs - 1) * network.layer_widths[0]  # without directions
            n = int((_THOROUGH_OUTPUTS if thorough else OUTPUTS_PER_PARAMETER) * n_fitted / network.n_outputs)
            network, sample, residual = _fitted(oracle, network, n, rng, progress)
            entry["residual"] = residual
    except OutOfBudgetError as error:
        oracle.exhausted = str(error)
    return network, residual, sample


def _fitted(oracle, network, n, rng, callback):
    """The network with all but the directions of its first weights fitted to n queries, their `FitSample`, residual."""
    norms = np.linalg.norm(network.weights[0], axis=0)
    directions = network.weights[0] / norms
    inner = network.with_parameters([np.diag(norms), *network.weights[1:]], network.biases)
    X = design_points(inner.weights[0], inner.biases[0], n, 1.0, rng) @ lapack.pinv(directions)
    Y = oracle(X)
    inner, residual, _ = polish_network(inner, X @ directions, Y, callback=callback, scaled_first=True)
    weights = [directions * np.diag(inner.weights[0]), *inner.weights[1:]]
    return network.with_parameters(weights, inner.biases), FitSample(X, Y, np.ones(1)), residual
