"""Standard errors of the recovered weights and biases, in the model's own inputs and outputs."""

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.errors_of_fit import FitSample, standard_errors_of_fit
from skident.fitting.polish import NOISY_OUTPUTS
from skident.fitting.standard_errors import standard_errors
from skident.network import change_inputs
from skident.oracle import NotIdentified, OutOfBudgetError

_MAX_PARAMETERS = 6000  # parameters up to which standard errors are computed (budget): 10 s for 3200, 50 s for 5700
_MIN_NOISE = 0.5  # share of the measured noise that standard errors assume at least: short lines determine it to 15 %
_NOT_WHITE = 1.35  # factor of the errors of saturating units from rounded outputs (tuned on networks 10-32-1)
_ROUNDED = ("float16", "bfloat16", "decimals", "digits")  # kinds of outputs that this concerns


def standard_errors_of(validation):
    """Standard errors of weights and biases; None if outputs are exact or clipped, or the network does not agree."""
    problem, network = validation.problem, validation.network
    if (
        problem.held_out.noise_std is None
        or network.output_range is not None
        or network.n_parameters > _MAX_PARAMETERS
        or validation.error >= problem.accepted_error
    ):
        return None
    try:
        if validation.best.sample is None:
            return _from_design(validation)
        kind, sample = problem.held_out.accuracy.kind, _own_units(validation.best.sample, problem.oracle)
        errors = standard_errors_of_fit(network, sample, rounded=kind == "float32")
    except (NotIdentified, OutOfBudgetError):
        return None
    factor = _NOT_WHITE if kind in _ROUNDED and network.activations[0].saturating else 1.0
    return tuple([factor * part for part in parts] for parts in errors)


def _own_units(sample, oracle):
    """A sample of standardized inputs and outputs in those of the model."""
    outputs = oracle.output_center + oracle.output_scale * sample.outputs
    return FitSample(oracle.to_inputs(sample.inputs), outputs, sample.std * oracle.output_scale)


def _from_design(validation):
    """Standard errors of a fit to as many outputs as the last polish uses, at inputs where all units vary."""
    problem, network = validation.problem, validation.network
    oracle = problem.oracle
    n = int(NOISY_OUTPUTS * network.n_parameters) // network.n_outputs + 4 * network.n_inputs
    inner = change_inputs(network, oracle.center, oracle.scale)
    U = oracle.clip_to_range(design_points(inner.weights[0], inner.biases[0], n, 1.0, np.random.RandomState(0)))
    return standard_errors(network, oracle.to_inputs(U), _noise_std(validation) * oracle.output_scale)


def _noise_std(validation):
    """Standard deviation of every output's noise (m_L,), from held-out residuals less the network's own error."""
    held_out, network = validation.problem.held_out, validation.best.network
    residuals = network(held_out.inputs) - held_out.outputs
    std = np.sqrt(np.mean(residuals**2, axis=0) / (1.0 + 1.0 / NOISY_OUTPUTS))
    return np.maximum(std, _MIN_NOISE * held_out.noise_std)
