"""What one step recovered: its polish, and its error on held-out samples."""

from dataclasses import dataclass, field

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.errors_of_fit import FitSample
from skident.fitting.polish import polish_from_oracle
from skident.fitting.polish_with_directions import directions_are_free, polish_with_directions
from skident.network import FeedforwardNetwork
from skident.oracle import OutOfBudgetError

from .completion import NetworkCompletion
from .extractor import EntangledWeightExtractor

_CONVERGED = 1e-9  # relative residual of a polish that fits its own outputs: rounding of its steps, ten times
_CLASSIFIER_ERROR = 1e-12  # error from which a classifier is polished again: it is steep where few outputs are
_CONSTANT = 1e-6  # deviation of an output, relative to its largest value, below which it counts as rounding
_DESIGN_ROWS = 200  # rows of a design beside two per parameter and output


@dataclass(frozen=True)
class Attempt:
    """What one step recovered.

    Attributes
    ----------
    network : FeedforwardNetwork
        Of standardized inputs.
    error : float
        On held-out samples, see `max_error_over_deviation`.
    stage : str
        The stage that limits the error.
    residual : float
        Of that stage.
    method : str
        For the report, with its variant.
    extractor, completion : fitted stages, or None
    minimal : bool
        Whether no unit is redundant: each was detected by itself, or the outputs need all of them.
    caveat : str
        Why the network cannot be called exact although it explains the outputs; empty if nothing contradicts it.
    undetermined : str
        Which weights the outputs do not determine although the function is recovered; empty if they determine all.
    evidence : dict
        Further entries of the report.
    sample : FitSample or None
        What the network was fitted to last, in the oracle's units; it gives the standard errors.
    """

    network: FeedforwardNetwork
    error: float
    stage: str
    residual: float
    method: str
    extractor: EntangledWeightExtractor | None = None
    completion: NetworkCompletion | None = None
    minimal: bool = False
    caveat: str = ""
    undetermined: str = ""
    evidence: dict = field(default_factory=dict)
    sample: FitSample | None = None


def polished_attempt(problem, network, residual, stage, method, extractor=None, completion=None):
    """The attempt of a polished network of standardized inputs."""

    def polished(start, thorough):
        oracle, std = problem.oracle, problem.held_out.noise_std
        if directions_are_free(oracle, start, std):
            found = polish_with_directions(oracle, start, problem.rng, problem.log, thorough=thorough)
            if found is not None:
                return found
        return polish_from_oracle(oracle, start, problem.rng, problem.log, noise=std, thorough=thorough)

    error_of = problem.held_out.error_of
    sample = None
    try:
        if problem.options.polish:
            network, residual, sample = polished(network, False)
        enough = _CLASSIFIER_ERROR if problem.oracle.response == "predict_proba" else problem.accepted_error
        again = problem.options.polish and residual < _CONVERGED and problem.held_out.noise_std is None
        if again and error_of(network) >= enough:
            other, other_residual, other_sample = polished(network, True)
            if error_of(other) < error_of(network):
                network, residual, sample = other, other_residual, other_sample
    except OutOfBudgetError as error:  # what was recovered until then stays
        problem.oracle.exhausted = str(error)
    return Attempt(network, error_of(network), stage, residual, method, extractor, completion, sample=sample)


def design_where_units_vary(network):
    """Inputs (n, D) at which first-layer units vary, for deciding whether all units are needed."""
    n = _DESIGN_ROWS + 2 * network.n_parameters // network.n_outputs
    return design_points(network.weights[0], network.biases[0], n, 1.0, np.random.RandomState(0))


def max_error_over_deviation(outputs, recovered):
    """Largest error of any output over its largest deviation from its mean; infinite if `recovered` is not finite."""
    return relative_to_deviation(recovered - outputs, outputs) if np.isfinite(recovered).all() else np.inf


def relative_to_deviation(errors, outputs):
    """Largest of errors (k, m_L), each relative to the largest deviation of its output (n, m_L) from the mean."""
    largest = np.abs(outputs).max(axis=0)
    unit = np.maximum(np.abs(outputs - outputs.mean(axis=0)).max(axis=0), _CONSTANT * largest)
    return float(np.max(np.abs(errors) / np.maximum(unit, np.finfo(float).tiny)))
