"""Solving a problem: the steps of a plan, one after the other, until one of them explains the outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from skident.budget import MemoryLimitError
from skident.fitting.design import design_points
from skident.fitting.polish import polish_from_oracle
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from .completion import NetworkCompletion
from .extractor import EntangledWeightExtractor
from .methods.first_layer import FirstLayerCache

__all__ = [
    "Attempt",
    "Result",
    "State",
    "design_where_units_vary",
    "polished_attempt",
    "relative_max_error",
    "relative_to_deviation",
    "solve",
]

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
        On held-out samples, see `relative_max_error`.
    stage : str
        The stage that limits the error.
    residual : float
        Of that stage.
    method : str
        For the report, with its variant.
    extractor, completion : fitted stages, or None
    minimal : bool
        Whether every unit was detected by itself, so that none is redundant.
    caveat : str
        Why the network cannot be called exact although it explains the outputs; empty if nothing contradicts it.
    evidence : dict
        Further entries of the report.
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
    evidence: dict = field(default_factory=dict)


@dataclass
class State:
    """What the steps of one plan share: earlier attempts, and the first layer recovered so far."""

    attempts: list = field(default_factory=list)
    first_layer: FirstLayerCache = field(default_factory=FirstLayerCache)


@dataclass(frozen=True)
class Result:
    """What all steps recovered.

    Attributes
    ----------
    best : Attempt
    tried : list of (Step, str)
        Steps that were made, and how each ended.
    failures : list of NotIdentified
    """

    best: Attempt
    tried: list
    failures: list

    @property
    def n_attempts(self):
        """Number of steps that were made."""
        return len(self.tried)


def solve(problem, steps):
    """Make one step after the other until a network explains the outputs; `NotIdentified` if none recovers any."""
    state, tried, failures, end = State(), [], [], None
    for step in steps:
        if _explained(problem, state) or (problem.out_of_time and (state.attempts or step.fallback)):
            break
        if end is not None and not step.fallback:
            continue
        try:
            attempt = step.method.run(problem, step, state)
            tried.append((step, "does not apply" if attempt is None else f"error {attempt.error:.1e}"))
            state.attempts += [] if attempt is None else [attempt]
        except OutOfBudgetError as error:
            if not state.attempts:
                raise _out_of_budget(error, problem) from error
            tried.append((step, str(error)))
            break
        except NotIdentified as error:  # what earlier steps recovered stays
            tried.append((step, str(error)))
            failures.append(error)
            end = error
    if not state.attempts:
        raise end if end is not None else _no_first_layer(problem)
    return Result(min(state.attempts, key=lambda attempt: attempt.error), tried, failures)


def _explained(problem, state):
    return any(attempt.error < problem.accepted_error for attempt in state.attempts)


def _no_first_layer(problem):
    """The error if no step applies."""
    units = "any" if problem.widths is None else problem.widths[0]
    return NotIdentified(
        "first layer",
        "units",
        f"the first layer does not show {units} units where the model should saturate: layer_widths or "
        f"activation={problem.activations[0]!r} are probably wrong. Set layer_widths='auto', or "
        "options=IdentifierOptions(extractor=EntangledWeightExtractor(first_layer='hessian')).",
    )


def _out_of_budget(error, problem):
    """The error if the budget ends before any network was recovered."""
    done = ", ".join(f"{entry['name']} ({entry['seconds']:.2g} s)" for entry in problem.log.stages)
    last = problem.log.unfinished
    named = isinstance(error, MemoryLimitError)  # the error itself says what to do
    remedy = "" if named else " Raise max_seconds or max_queries, or give layer_widths."
    return NotIdentified(
        last or "search",
        "budget",
        f"{error}, and no network was found until then, with {problem.oracle.n_queries} queries; "
        f"finished: {done or 'nothing'}"
        f"{'' if last is None else f'; then in: {last}'}.{remedy}",
        final=True,
    )


def polished_attempt(problem, network, residual, stage, method, extractor=None, completion=None, *, near=False):
    """The attempt of a polished network of standardized inputs; `near`: polish thoroughly at once."""

    def polished(start, thorough):
        oracle, std = problem.oracle, problem.held_out.noise_std
        return polish_from_oracle(oracle, start, problem.rng, problem.log, noise=std, thorough=thorough)

    def error_of(network):
        return relative_max_error(problem.held_out.outputs, network(problem.held_out.inputs))

    if problem.options.polish:
        network, residual = polished(network, near)
        enough = _CLASSIFIER_ERROR if problem.oracle.response == "predict_proba" else problem.accepted_error
        if residual < _CONVERGED and problem.held_out.noise_std is None and error_of(network) >= enough:
            other, other_residual = polished(network, True)
            if error_of(other) < error_of(network):
                network, residual = other, other_residual
    return Attempt(network, error_of(network), stage, residual, method, extractor, completion)


def design_where_units_vary(network):
    """Inputs (n, D) at which first-layer units vary, for deciding whether all units are needed."""
    n = _DESIGN_ROWS + 2 * network.n_parameters // network.n_outputs
    return design_points(network.weights[0], network.biases[0], n, 1.0, np.random.RandomState(0))


def relative_max_error(outputs, recovered):
    """Largest error of any output over its largest deviation from its mean; infinite if `recovered` is not finite."""
    return relative_to_deviation(recovered - outputs, outputs) if np.isfinite(recovered).all() else np.inf


def relative_to_deviation(errors, outputs):
    """Largest of errors (k, m_L), each relative to the largest deviation of its output (n, m_L) from the mean."""
    largest = np.abs(outputs).max(axis=0)
    unit = np.maximum(np.abs(outputs - outputs.mean(axis=0)).max(axis=0), _CONSTANT * largest)
    return float(np.max(np.abs(errors) / np.maximum(unit, np.finfo(float).tiny)))
