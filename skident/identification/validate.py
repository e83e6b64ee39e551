"""Validation of the best attempt: held-out samples, redundant units, contradictions; exact, agreeing, or neither."""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from skident.fitting.pruning import redundant_units
from skident.network import FeedforwardNetwork, center_outputs, change_inputs, change_outputs
from skident.oracle import OutOfBudgetError, probability_error

from .attempt import Attempt, design_where_units_vary, relative_to_deviation
from .contradictions import ROUNDING_STDS, contradiction, undetermined_signs, undetermined_weights
from .diagnosis import clipping_hint, probability_hint
from .further_samples import PROBABILITY_TOL, FurtherSamples, compare_further
from .problem import Problem
from .query_points import evenly_spaced_rows
from .solve import Result

_GRACE = 1.0  # seconds beyond max_seconds for the validation (budget)
_PROBABILITY_SAMPLES = 100  # samples of X on which probabilities are compared (budget)
_ROUNDING_SAMPLES = 200  # held-out samples at which the effect of rounded inputs is computed (budget)
_USUAL_RESIDUAL = 4.0  # size of the residuals of right networks, in errors: up to 2.4 in 24, whose errors are rough
_LARGEST_RESIDUAL = 15.0  # largest of them: up to 8 in 24
_LARGEST_ROUNDING = 1.25 * 3.0**0.5  # `_LARGEST_RESIDUAL` of half precision: uniform over a spacing, and a quarter more
_LARGEST_EXCESS = 0.7  # beyond half a spacing, in errors: up to 0.28 in 7 networks rounded once, else from 1.6 on (5)
_NEARLY_EXACT = 1e-6  # relative error up to which no clip is suspected: its search takes 500 queries per input


@dataclass(frozen=True)
class Validation:
    """The recovered network, and how it compares with the model.

    Attributes
    ----------
    problem : Problem
        Without noise, if the network refutes it.
    result : Result
    network : FeedforwardNetwork
        Of the model's own inputs, in canonical form.
    own_error : float
        Relative maximum error of `network` on held-out samples in the model's own inputs, which lose digits far from 0.
    input_rounding : float
        Error that the rounding of these inputs may cause.
    redundant : list of int
        Redundant units per hidden layer.
    probability_error, lost : float or None
        For classifiers: largest error of a probability on samples of X, and the share of samples whose logits are lost.
    hint : str
        What the model seems to do, if the network is not exact.
    finished : bool
        Whether the budget sufficed for the whole validation.
    contradicted : bool
        Whether far outputs, plateaus or further samples contradict the network; the attempt's `caveat` says how.
    further : FurtherSamples
        Held-out samples that were compared last, if the network explained the others.
    reductions : list of str
        The reductions that led to the network.
    rejected : str
        The reduction that was accepted first, and that this network does without.
    """

    problem: Problem
    result: Result
    network: FeedforwardNetwork
    own_error: float
    input_rounding: float
    redundant: list
    probability_error: float | None
    lost: float | None
    hint: str
    finished: bool
    contradicted: bool
    further: FurtherSamples = field(default_factory=FurtherSamples)
    reductions: list = field(default_factory=list)
    rejected: str = ""

    @property
    def best(self):
        """The validated attempt."""
        return self.result.best

    @property
    def explained(self):
        """Whether no output contradicts the network."""
        return self.best.error < self.problem.accepted_error and not self.contradicted

    @property
    def rank(self):
        """Sort key of validations of several readings, the best first."""
        return self.contradicted, self.error

    @property
    def error(self):
        """Relative maximum error on held-out samples, in standardized or own inputs."""
        further = 0.0 if self.problem.oracle.response == "predict_proba" else self.further.error
        return max(self.best.error, self.own_error, further)

    @property
    def noisy(self):
        """Whether outputs are float32, rounded, not repeatable, or have errors above `tol`."""
        held_out, accuracy = self.problem.held_out, self.problem.held_out.accuracy
        rounded = accuracy.kind not in ("float64", "noise")
        large = held_out.relative_noise >= self.problem.options.tol
        return held_out.noise_std is not None and (rounded or large or not accuracy.repeatable)

    @property
    def exact(self):
        """Whether outputs, probabilities and widths agree to `tol`, and neither noise nor rounding hides more."""
        tol = self.problem.options.tol
        agrees = self.error < tol and self.input_rounding < tol and not self.noisy and not any(self.redundant)
        close = self.probability_error is None or self.probability_error < PROBABILITY_TOL * tol
        return bool(self.finished and agrees and close and not self.best.caveat)

    @property
    def determined(self):
        """Whether the outputs determine all weights up to symmetries: no unit is redundant or makes a linear part."""
        return bool(self.finished and not any(self.redundant) and not self.best.undetermined and not self.best.caveat)

    @property
    def within_rounding(self):
        """Whether the rounding of inputs explains the error."""
        return self.error < ROUNDING_STDS * self.input_rounding

    @property
    def agrees(self):
        """Whether the network is exact, or as close as noise and rounding of outputs and inputs allow."""
        if self.exact or not self.finished or any(self.redundant) or self.best.caveat:
            return self.exact
        within_noise = self.noisy and self.error < self.problem.accepted_error and self.residuals_are_errors
        return bool(within_noise or self.within_rounding)

    @property
    def residuals_are_errors(self):
        """Whether the residuals on held-out samples look like the outputs' errors: their size, and none far outside.

        Outputs in half precision are rounded once, by at most half a spacing. Larger residuals are the rounding of
        intermediate results, which is part of the function: further units may then stand for it.
        """
        held_out = self.problem.held_out
        if self.problem.oracle.response == "predict_proba":  # the errors of logits differ from sample to sample
            return True
        std = np.maximum(held_out.accuracy.std_of(held_out.inputs, held_out.outputs), np.finfo(float).tiny)
        ratio = np.abs(self.best.network(held_out.inputs) - held_out.outputs) / std
        size = np.sqrt(np.mean(ratio**2, axis=0)).max()
        if held_out.accuracy.kind not in ("float16", "bfloat16"):
            return bool(size < _USUAL_RESIDUAL and ratio.max() < _LARGEST_RESIDUAL)
        return bool(size < _USUAL_RESIDUAL and ratio.max() < _LARGEST_ROUNDING and self.excess < _LARGEST_EXCESS)

    @property
    def excess(self):
        """Largest residual on held-out samples beyond half the spacing of the output's own binade, in typical errors.

        Small outputs distinguish rounding inside of the model from that of its outputs: only the latter is finer there.
        """
        oracle, held_out = self.problem.oracle, self.problem.held_out
        outputs = oracle.output_center + oracle.output_scale * held_out.outputs
        spacing = np.ldexp(held_out.accuracy.eps, np.frexp(outputs)[1] - 1) / np.abs(oracle.output_scale)
        residual = np.abs(self.best.network(held_out.inputs) - held_out.outputs)
        return float(np.max((residual - spacing / 2.0) / np.maximum(held_out.accuracy.std, np.finfo(float).tiny)))


def validate(problem, result, reductions=(), rejected=""):
    """Validate the best attempt of a result, which `reductions` led to, without one that was `rejected`."""
    with problem.oracle.budget.limit(_GRACE):
        validation = replace(_validation(problem, result), reductions=list(reductions), rejected=rejected)
        if validation.agrees:
            validation = _compared_further(validation)
    return validation


def _compared_further(validation):
    """The validation after further held-out samples, last of all: they take only what is left of a budget."""
    problem, result, gap = validation.problem, validation.result, validation.probability_error
    further = compare_further(problem, result.best, validation.network, validation.input_rounding)
    if gap is not None:
        validation = replace(validation, probability_error=max(gap, further.error))
    if further.caveat:
        result = replace(result, best=replace(result.best, caveat=further.caveat))
    return replace(validation, result=result, further=further, contradicted=bool(further.caveat))


def _validation(problem, result):
    best, oracle = result.best, problem.oracle
    explained = best.error < problem.accepted_error
    redundant, counted = _count_redundant(problem, best)
    hint = ""
    if best.error > max(_NEARLY_EXACT, problem.accepted_error):
        outputs = oracle.output_center + oracle.output_scale * problem.held_out.outputs
        hint = clipping_hint(oracle) + probability_hint(oracle, outputs)
    network = change_inputs(best.network, -oracle.center / oracle.scale, 1.0 / oracle.scale)
    own_error, rounding = _at_own_inputs(network, problem)
    network = change_outputs(network, oracle.output_center, oracle.output_scale)
    contradicted, complete = "", True
    if explained:
        network, contradicted, complete = contradiction(problem, network)
        best, in_time = _with_doubts(problem, best, redundant, contradicted)
        complete = complete and in_time
    if oracle.response == "predict_proba" and problem.activations[1] == "identity":
        network = center_outputs(network)
    network = network.canonical()
    try:
        gap, lost = _compare_probabilities(oracle, problem.X, network)
    except OutOfBudgetError:
        gap, lost, counted = None, None, False
    if lost:
        hint += f" The logits of {lost:.0%} of the samples X are lost: probabilities are 0 or 1 to 1e-7."
    return Validation(
        problem=problem.without_refuted_noise(best.error),
        result=replace(result, best=best),
        network=network,
        own_error=own_error,
        input_rounding=rounding,
        redundant=redundant,
        probability_error=gap,
        lost=lost,
        hint=hint,
        finished=counted and complete,
        contradicted=bool(contradicted),
    )


def _with_doubts(problem, best, redundant, contradicted):
    """The attempt with what contradicts it, and what the outputs do not determine; and whether that is known."""
    undetermined, in_time = _undetermined(problem, best, redundant)
    signs = best.undetermined or undetermined_signs(best.network, best.error)
    return replace(best, caveat=contradicted or best.caveat or undetermined, undetermined=signs), in_time


def _undetermined(problem, best, redundant):
    """Why the weights may be wrong, empty if they are determined or units are redundant; and whether it is known."""
    exact = best.error < problem.options.tol and problem.held_out.noise_std is None and not any(redundant)
    try:
        network = best.network
        if problem.one is not None:  # which determines the hidden layers by its values before the activation
            network = FeedforwardNetwork(network.weights, network.biases, network.activations[0])
        return undetermined_weights(network, best.error) if exact else "", True
    except OutOfBudgetError:
        return "", False


def _count_redundant(problem, best: Attempt):
    """Redundant units per hidden layer, and whether there was time to count them."""
    none = [0] * (len(best.network.weights) - 1)
    if best.minimal:
        return none, True
    if problem.out_of_time and best.error >= problem.accepted_error:  # irrelevant for a network that is wrong
        return none, False
    deadline = problem.oracle.budget.deadline + _GRACE
    try:
        redundant = redundant_units(best.network, design_where_units_vary(best.network), deadline=deadline)
    except OutOfBudgetError:
        return none, False
    return redundant, time.perf_counter() <= deadline


def _at_own_inputs(network, problem):
    """Relative errors of a network of the model's own inputs: the largest on held-out samples, and that of rounding."""
    held_out = problem.held_out
    X = problem.oracle.to_inputs(held_out.inputs)
    some = evenly_spaced_rows(X, _ROUNDING_SAMPLES)
    # Every input may be off by a unit in its last place, and w^T x + b loses about as much again.
    rounding = 2.0 * np.finfo(float).eps * np.einsum("nki,ni->nk", np.abs(network.jacobian(some)), np.abs(some))
    own_error = held_out.error_of(lambda U: network(problem.oracle.to_inputs(U)))
    return own_error, relative_to_deviation(rounding, held_out.outputs)


def _compare_probabilities(oracle, X, network):
    """Largest error of a probability on samples of X, and the share of samples whose logits are lost."""
    if oracle.response == "predict":
        return None, None
    U = oracle.from_inputs(evenly_spaced_rows(X, _PROBABILITY_SAMPLES))
    return probability_error(*oracle.query(U), network(oracle.to_inputs(U)), oracle.precision)
