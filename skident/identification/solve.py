"""Attempts at one black box: made one after the other until one of them explains the answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from skident.budget import MemoryLimitError
from skident.fitting.design import design_points
from skident.fitting.polish import polish_from_oracle
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from .completion import NetworkCompletion
from .extractor import EntangledWeightExtractor

__all__ = [
    "Attempt",
    "Outcome",
    "make_attempts",
    "polished_attempt",
    "relative_to_deviation",
    "where_units_move",
    "worst_error",
]

_AGREES = 1e-9  # misfit of a polish that agreed with its own answers, if not with others
_AS_GOOD = 1e-12  # error on these of a classifier, which is steep at places that few answers show


@dataclass(frozen=True)
class Attempt:
    """What one attempt gave.

    Attributes
    ----------
    network : FeedforwardNetwork
        Of standardised inputs.
    error : float
        On fresh inputs, see `worst_error`.
    stage : str
        The stage to blame if the error is large.
    misfit : float
        What that stage left unexplained.
    route : str
    extractor, completion : fitted stages, or None
    minimal : bool
        Whether every unit was seen by itself, so that none can be left out.
    caveat : str
        Why the network cannot be called exact though it explains the answers; empty where nothing speaks against it.
    evidence : dict
        What else the route saw, for the report.
    """

    network: FeedforwardNetwork
    error: float
    stage: str
    misfit: float
    route: str
    extractor: EntangledWeightExtractor | None = None
    completion: NetworkCompletion | None = None
    minimal: bool = False
    caveat: str = ""
    evidence: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What all attempts gave.

    Attributes
    ----------
    best : Attempt or None
        `make_attempts` gives none without.
    n_attempts : int
    refusal : NotIdentified or None
        What ended the last attempt.
    """

    best: Attempt | None
    n_attempts: int
    refusal: NotIdentified | None


def make_attempts(inquiry, routes, last_resort=None):
    """Take one route after the other until a network explains the answers, or time is over.

    Parameters
    ----------
    inquiry : Inquiry
    routes : sequence of callable
        ``route(inquiry, earlier)`` gives an `Attempt`, or None where it cannot work; `earlier` are those before it.
    last_resort : callable, default=None
        A route that is taken where these explain nothing, also where they are refused.

    Returns
    -------
    Outcome

    Raises
    ------
    BlackBoxError
        If the black box cannot be asked.
    NotIdentified
        If the first attempt fails, none can work, or time or questions are used up before any gave a network. Any
        other exception of a route is a programming error, and surfaces.
    """
    outcome = _in_turn(inquiry, routes)
    explained = outcome.best is not None and outcome.best.error < inquiry.accepted_error
    if last_resort is not None and not explained and not inquiry.out_of_time:
        try:
            attempt = last_resort(inquiry, [])
        except OutOfBudgetError as error:
            if outcome.best is None:
                raise _nothing_until(error, inquiry) from error
            attempt = None
        if attempt is not None:
            tried = [attempt] if outcome.best is None else [outcome.best, attempt]
            outcome = replace(outcome, best=min(tried, key=_error_of), n_attempts=outcome.n_attempts + 1)
    if outcome.best is None and outcome.refusal is not None:
        raise outcome.refusal
    if outcome.best is None:
        units = "any" if inquiry.widths is None else inquiry.widths[0]
        raise NotIdentified(
            "first layer",
            "units",
            f"the first layer does not show {units} units where the black box should saturate; check "
            f"layer_widths and activation={inquiry.activations[0]!r}, or use "
            "extractor=EntangledWeightExtractor(first_layer='hessian').",
        )
    return outcome


def _in_turn(inquiry, routes):
    """The best attempt of the routes up to the first one that explains the answers or is refused."""
    made, n_attempts, refusal = [], 0, None
    for route in routes:
        if inquiry.out_of_time and made:
            break
        n_attempts += 1
        try:
            attempt = route(inquiry, made)
        except OutOfBudgetError as error:
            if not made:
                raise _nothing_until(error, inquiry) from error
            break
        except NotIdentified as error:
            # A later attempt that cannot work does not take back what an earlier one found.
            refusal = error
            break
        made += [] if attempt is None else [attempt]
        if attempt is not None and attempt.error < inquiry.accepted_error:
            break
    return Outcome(min(made, key=_error_of, default=None), n_attempts, refusal)


def _error_of(attempt):
    return attempt.error


def _nothing_until(error, inquiry):
    """The error that says what was done when the budget ran out, and what to try."""
    done = ", ".join(f"{entry['name']} ({entry['seconds']:.2g} s)" for entry in inquiry.log.stages)
    last = inquiry.log.unfinished
    named = isinstance(error, MemoryLimitError)  # the error itself says what to do
    remedy = "" if named else " Raise max_seconds or max_queries, or give layer_widths."
    return NotIdentified(
        last or "search",
        "budget",
        f"{error}, and no network was found until then: {inquiry.oracle.n_queries} rows asked; "
        f"finished: {done or 'nothing'}"
        f"{'' if last is None else f'; then in: {last}'}.{remedy}",
        final=True,
    )


def polished_attempt(inquiry, network, misfit, stage, route, extractor=None, completion=None, *, near=False):
    """Polish a network, and compare it with the black box on fresh inputs.

    Parameters
    ----------
    inquiry : Inquiry
    network : FeedforwardNetwork
        Of standardised inputs.
    misfit : float
        Where nothing is polished.
    stage, route : str
    extractor, completion : fitted stages, default=None
    near : bool, default=False
        Whether the network is so near that few answers could only lead away: it is polished thoroughly at once.

    Returns
    -------
    Attempt
    """

    def polished(start, thorough):
        oracle, sigma = inquiry.oracle, inquiry.fresh.sigma
        return polish_from_oracle(oracle, start, inquiry.rng, inquiry.log, noise=sigma, thorough=thorough)

    def error_of(found):
        return worst_error(inquiry.fresh.answers, found(inquiry.fresh.inputs))

    if inquiry.limits.polish:
        network, misfit = polished(network, near)
        enough = _AS_GOOD if inquiry.oracle.response == "predict_proba" else inquiry.accepted_error
        if misfit < _AGREES and inquiry.fresh.sigma is None and error_of(network) >= enough:
            more, misfit_of_more = polished(network, True)
            network, misfit = (more, misfit_of_more) if error_of(more) < error_of(network) else (network, misfit)
    error = error_of(network)
    return Attempt(network, error, stage, misfit, route, extractor, completion)


def where_units_move(network):
    """Inputs at which first-layer units are on the move, for judging whether all units are needed.

    Parameters
    ----------
    network : FeedforwardNetwork

    Returns
    -------
    ndarray of shape (n, D)
    """
    n = 200 + 2 * network.n_parameters // network.n_outputs
    return design_points(network.weights[0], network.biases[0], n, 1.0, np.random.RandomState(0))


def worst_error(answers, found):
    """Largest error of any output over its largest deviation from its mean: offsets and other outputs hide nothing.

    Parameters
    ----------
    answers, found : ndarray of shape (n, m_L)

    Returns
    -------
    float
        Infinite where `found` is not finite.
    """
    return relative_to_deviation(found - answers, answers) if np.isfinite(found).all() else np.inf


def relative_to_deviation(errors, answers):
    """Largest error of any output over the largest deviation of that output's answers from their mean.

    Below a millionth of the largest answer, a deviation is taken as rounding and that millionth is the unit.

    Parameters
    ----------
    errors : ndarray of shape (k, m_L)
    answers : ndarray of shape (n, m_L)

    Returns
    -------
    float
    """
    largest = np.abs(answers).max(axis=0)
    unit = np.maximum(np.abs(answers - answers.mean(axis=0)).max(axis=0), 1e-6 * largest)
    return float(np.max(np.abs(errors) / np.maximum(unit, np.finfo(float).tiny)))
