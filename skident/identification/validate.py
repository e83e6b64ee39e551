"""The last look: what the best attempt is worth, and what to say of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.polish import NOISY_OUTPUTS
from skident.fitting.pruning import redundant_units
from skident.fitting.standard_errors import standard_errors
from skident.linalg import column_units
from skident.network import FeedforwardNetwork, center_outputs, change_inputs, change_outputs
from skident.oracle import NotIdentified, OutOfBudgetError, probability_error

from .contradictions import contradiction, with_clip_attached
from .determined import weights_left_open
from .hints import clipping_hint, probability_hint
from .input_range import spaced
from .problem import Inquiry
from .report import IdentificationReport
from .solve import Outcome, relative_to_deviation, where_units_move, worst_error

__all__ = ["Verdict", "judge", "report_of", "stderr_of", "warning_of"]

_GRACE = 1.0  # seconds beyond the limit that the look for superfluous units may take
_COMPARED = 100  # rows of X on which a classifier's probabilities are compared
_ROUNDED = 200  # rows at which the effect of rounded inputs is looked at
_ROUNDING_LEFT = 20.0  # largest error, in units of the inputs' rounding, that this explains
_MOST_PARAMETERS = 3000  # of which standard errors are given


@dataclass(frozen=True)
class Verdict:
    """The network found and how it compares with the black box.

    Attributes
    ----------
    inquiry : Inquiry
        Without noise, where the network refutes it.
    outcome : Outcome
    network : FeedforwardNetwork
        Of the black box's own inputs, in canonical form.
    own_error : float
        Relative maximum error of `network` on fresh inputs as the black box gets them: far from 0 these lose digits.
    input_rounding : float
        Error that the rounding of these inputs may make.
    redundant : list of int
        Units that the answers do not need, one number a hidden layer.
    probability_error, lost : float or None
        Of a classifier: the largest error of a probability on rows of X, and the share of these whose logits are lost.
    hint : str
        What the black box seems to do, where the network is not exact.
    finished : bool
        Whether time and questions sufficed for the whole of this look.
    contradicted : bool
        Whether outputs far from the data, or plateaus, contradict the network: the attempt's `caveat` says how.
    """

    inquiry: Inquiry
    outcome: Outcome
    network: FeedforwardNetwork
    own_error: float
    input_rounding: float
    redundant: list
    probability_error: float | None
    lost: float | None
    hint: str
    finished: bool
    contradicted: bool

    @property
    def explained(self):
        """Whether nothing that was asked speaks against the network."""
        return self.outcome.best.error < self.inquiry.accepted_error and not self.contradicted

    @property
    def rank(self):
        """By which the verdicts on several readings are compared, the least first."""
        return self.contradicted, self.error

    @property
    def error(self):
        """Relative maximum error on fresh inputs, standardised or as they are."""
        return max(self.outcome.best.error, self.own_error)

    @property
    def noisy(self):
        """Whether answers are in single precision or rounded, carry errors of `tol`, or come differently every time."""
        fresh, told = self.inquiry.fresh, self.inquiry.fresh.accuracy
        rounded = told.kind in ("float32", "decimals")
        return fresh.sigma is not None and (rounded or fresh.noise >= self.inquiry.limits.tol or not told.repeatable)

    @property
    def exact(self):
        """Whether fresh answers, probabilities and widths agree to `tol`, none of it hidden in noise or rounding."""
        tol = self.inquiry.limits.tol
        agrees = self.error < tol and self.input_rounding < tol and not self.noisy and not any(self.redundant)
        alike = self.probability_error is None or self.probability_error < 100.0 * tol
        return bool(self.finished and agrees and alike and not self.outcome.best.caveat)

    @property
    def agrees(self):
        """Whether it is exact, or as close as the noise and rounding of answers and inputs let one see."""
        if self.exact or not self.finished or any(self.redundant) or self.outcome.best.caveat:
            return self.exact
        within_noise = self.noisy and self.error < self.inquiry.accepted_error
        return bool(within_noise or self.error < _ROUNDING_LEFT * self.input_rounding)


def judge(inquiry, outcome):
    """Look once more at the best attempt.

    Parameters
    ----------
    inquiry : Inquiry
    outcome : Outcome

    Returns
    -------
    Verdict
    """
    with inquiry.oracle.clock.limit(_GRACE):
        return _judged(inquiry, outcome)


def _judged(inquiry, outcome):
    best, oracle = outcome.best, inquiry.oracle
    redundant, finished = _superfluous(inquiry, best)
    hint = ""
    if best.error >= inquiry.accepted_error:
        hint = clipping_hint(oracle) + probability_hint(
            oracle, oracle.output_center + oracle.output_scale * inquiry.fresh.answers
        )
    network = change_inputs(best.network, -oracle.center / oracle.scale, 1.0 / oracle.scale)
    own_error, rounding = _at_inputs(network, inquiry)
    network = change_outputs(network, oracle.output_center, oracle.output_scale)
    contradicted, complete = "", True
    if best.error < inquiry.accepted_error:
        network = with_clip_attached(inquiry, network)
        contradicted, complete = contradiction(inquiry, network)
        caveat = contradicted or best.caveat
        if not caveat and best.error < inquiry.limits.tol and inquiry.fresh.sigma is None:
            caveat = weights_left_open(best.network, best.error)
        outcome = replace(outcome, best=replace(best, caveat=caveat))
    if oracle.response == "predict_proba" and inquiry.activations[1] == "identity":
        network = center_outputs(network)
    network = network.canonical()
    try:
        gap, lost = _compare_probabilities(oracle, inquiry.X, network)
    except OutOfBudgetError:
        gap, lost, finished = None, None, False
    if lost:
        hint += f" Of {lost:.0%} of the rows of X the logits are lost: probabilities 0 or 1 to 1e-7."
    inquiry = inquiry.noise_refuted_by(best.error)
    finished = finished and complete
    return Verdict(
        inquiry, outcome, network, own_error, rounding, redundant, gap, lost, hint, finished, bool(contradicted)
    )


def _superfluous(inquiry, best):
    """Units that are not needed, layer by layer, and whether there was time to count them."""
    if best.minimal:
        return [0] * (len(best.network.weights) - 1), True
    if inquiry.out_of_time and best.error >= inquiry.accepted_error:  # no matter for a network that is wrong
        return [0] * (len(best.network.weights) - 1), False
    deadline = inquiry.oracle.clock.deadline + _GRACE
    try:
        redundant = redundant_units(best.network, where_units_move(best.network), deadline=deadline)
    except OutOfBudgetError:
        return [0] * (len(best.network.weights) - 1), False
    return redundant, time.perf_counter() <= deadline


def _at_inputs(network, inquiry):
    """Relative errors of a network of the black box's own inputs: the largest on fresh rows, and that of rounding."""
    fresh = inquiry.fresh
    X = inquiry.oracle.to_inputs(fresh.inputs)
    some = spaced(X, _ROUNDED)
    # Every input may be off by a unit in its last place, and w . x + tau loses about as much again.
    shifted = 2.0 * np.finfo(float).eps * np.einsum("nki,ni->nk", np.abs(network.jacobian(some)), np.abs(some))
    return worst_error(fresh.answers, network(X)), relative_to_deviation(shifted, fresh.answers)


def _compare_probabilities(oracle, X, network):
    """A classifier's last look also at rows of X whose logits are lost: largest error, and how many there are."""
    if oracle.response == "predict":
        return None, None
    U = oracle.from_inputs(spaced(X, _COMPARED))
    return probability_error(*oracle.query(U), network(oracle.to_inputs(U)), oracle.precision)


def report_of(verdict, reason):
    """The public report.

    Parameters
    ----------
    verdict : Verdict
    reason : str
        Why the routes were those that they were.

    Returns
    -------
    IdentificationReport
        See `NetworkIdentifier`.
    """
    inquiry, outcome = verdict.inquiry, verdict.outcome
    X = inquiry.oracle.to_inputs(inquiry.fresh.inputs)
    report = IdentificationReport(
        relative_max_error=verdict.error,
        exact=verdict.exact,
        agrees=verdict.agrees,
        checked=len(X),
        checked_spread=column_units(X, constant=0.0)[1],
        checked_range=(X.min(axis=0), X.max(axis=0)),
        input_rounding=verdict.input_rounding,
        redundant_units=verdict.redundant,
        stages=inquiry.log.stages,
        n_queries=inquiry.oracle.n_queries,
        attempts=outcome.n_attempts,
        route=outcome.best.route,
        reason=reason,
        noise=inquiry.fresh.noise,
        repeatable=inquiry.fresh.accuracy.repeatable,
        activation=inquiry.seen,
        **outcome.best.evidence,
    )
    if verdict.probability_error is not None:
        report.update(probability_error=verdict.probability_error, lost=verdict.lost)
    return report


def stderr_of(verdict):
    """Standard errors of the network's weights and shifts, on inputs like those of the polish.

    Parameters
    ----------
    verdict : Verdict

    Returns
    -------
    tuple of (list of ndarray, list of ndarray), or None
        None where the answers are exact or clipped, the network does not explain them, or the time is over.
    """
    inquiry, network = verdict.inquiry, verdict.network
    oracle = inquiry.oracle
    if (
        inquiry.fresh.sigma is None
        or network.output_range is not None
        or network.n_parameters > _MOST_PARAMETERS
        or verdict.error >= inquiry.accepted_error
    ):
        return None
    n = int(NOISY_OUTPUTS) * network.n_parameters // network.n_outputs + 4 * network.n_inputs
    inner = change_inputs(network, oracle.center, oracle.scale)
    U = design_points(inner.weights[0], inner.biases[0], n, 1.0, np.random.RandomState(0))
    try:
        return standard_errors(
            network, oracle.to_inputs(oracle.clip_to_range(U)), _noise_left(verdict) * oracle.output_scale
        )
    except (NotIdentified, OutOfBudgetError):
        return None


def _noise_left(verdict):
    """Errors of every output on fresh inputs, less what the network's own contribute: about a tenth of the variance.

    Short lines tell noise to some 15 % only; and rounding grows with the numbers inside the black box.
    """
    fresh, network = verdict.inquiry.fresh, verdict.outcome.best.network
    left = np.sqrt(np.mean((network(fresh.inputs) - fresh.answers) ** 2, axis=0) / (1.0 + 1.0 / NOISY_OUTPUTS))
    return np.maximum(left, 0.5 * fresh.sigma)


def warning_of(verdict):
    """What is not as it was asked for.

    Parameters
    ----------
    verdict : Verdict

    Returns
    -------
    str or None
    """
    inquiry, widths, redundant = verdict.inquiry, verdict.network.layer_widths, verdict.redundant
    inexact, rounding = verdict.error >= inquiry.limits.tol or verdict.noisy, verdict.input_rounding
    if verdict.contradicted:
        caveat = verdict.outcome.best.caveat
        return f"the network is not exact: it agrees with held-out outputs to {verdict.error:.1e}, but {caveat}."
    if max(verdict.error, rounding) >= inquiry.limits.tol and not any(redundant):
        if verdict.error < _ROUNDING_LEFT * rounding and rounding > inquiry.fresh.noise:
            return _rounded(verdict)
    if inexact and verdict.error < inquiry.accepted_error and not any(redundant):
        message = (
            f"the answers carry noise or rounding of {inquiry.fresh.noise:.1e} of their standard deviation: the "
            f"network agrees with them to {verdict.error:.1e}, and its weights are known to the standard errors in "
            "stderr_."
        )
        smallest = " Its widths are the smallest that the noise does not refute; the true ones may be larger."
        return message + (smallest if inquiry.discover or inquiry.widths is None else "")
    if inexact:
        refusal = verdict.outcome.refusal
        last = "" if refusal is None else f" A last attempt ended in: {refusal}"
        last += _spent(inquiry)
        return _failure(verdict) + verdict.hint + last
    if any(redundant) and not verdict.outcome.best.caveat:
        return _too_wide(verdict)
    if verdict.outcome.best.caveat:
        return f"the network agrees with the black box to {verdict.error:.1e}, but {verdict.outcome.best.caveat}."
    if not verdict.finished:
        return (
            f"the network agrees with the black box to {verdict.error:.1e}, but whether all its units are needed, or "
            f"its probabilities agree, was not looked at to the end.{_spent(inquiry)}"
        )
    if inquiry.widths is not None and widths != inquiry.widths:
        return (
            f"layer_widths={inquiry.widths} was asked for, but only {widths} show and explain all answers: "
            "the other units do nothing, or are parallel to these."
        )
    return None


def _too_wide(verdict):
    """What to say where fewer units would do."""
    widths, redundant = verdict.network.layer_widths, verdict.redundant
    fewer = tuple(m - r for m, r in zip(widths, (*redundant, 0), strict=True))
    return (
        f"the answers do not determine all weights: with layer_widths={widths} the network "
        f"answers as the black box does (error {verdict.error:.1e}), but {redundant} units of its hidden layers "
        f"are not needed. Stage 'widths' failed; try layer_widths={fewer}."
    )


def _spent(inquiry):
    """Which budget is used up, if one is."""
    spent = inquiry.oracle.refusal or ("the time for random starts is over" if inquiry.search_is_over else None)
    return f" The search was ended: {spent}." if spent else ""


def _rounded(verdict):
    """What to say where inputs far from 0 leave no better."""
    oracle = verdict.inquiry.oracle
    far = np.abs(oracle.center / oracle.scale)
    i = int(np.argmax(far))
    return (
        f"the inputs are rounded too coarsely to call the network exact: input {i} is around {oracle.center[i]:.4g} "
        f"with a standard deviation of {oracle.scale[i]:.2g}, and its last digit alone makes errors of about "
        f"{verdict.input_rounding:.1e}. The network agrees with the answers to {verdict.error:.1e} "
        f"(tol={verdict.inquiry.limits.tol:.0e}). Let the black box take inputs less their mean, or loosen tol."
    )


_ADVICE = {
    "extraction": "weights are missing: check layer_widths, or set extractor=EntangledWeightExtractor(n_hessians=1000)",
    "completion": "scales and biases were not found: check layer_widths and the activations, or set "
    "completion=NetworkCompletion(n_init=20)",
    "vertices": "no random start fits the layers behind the first one: check layer_widths and the activations, "
    "or set n_starts=100",
    "kinks": "units or layers are missing, or the model is no network of ReLU units: raise max_seconds or "
    "max_queries, or give samples X on which rarely active units are active",
    "range": "outputs within input_range determine the function there, but not the weights: raise max_seconds, or "
    "widen input_range",
    "between": "no network fits the outputs between the plateaus: give activation, layer_widths, or raise max_seconds",
    "polish": "the fit ended in a local minimum or is limited by rounding: check layer_widths and the "
    "activations (two parallel first-layer units look like one), set n_attempts=8, or loosen tol",
}


def _failure(verdict):
    """What to say when the network is not exact."""
    best = verdict.outcome.best
    return (
        f"the network is not exact: relative maximum error {best.error:.1e} on fresh inputs "
        f"(tol={verdict.inquiry.limits.tol:.0e}) after {verdict.outcome.n_attempts} attempt(s). Stage {best.stage!r} "
        f"failed with misfit {best.misfit:.1e}; {_advice(verdict)}."
    )


def _advice(verdict):
    """What to try, as a call that runs."""
    inquiry, stage = verdict.inquiry, verdict.outcome.best.stage
    if stage != "kinks" and inquiry.widths is None and not inquiry.discover:
        return "layer_widths=None looks for one hidden layer: to look for up to three, set layer_widths='auto'"
    return _ADVICE[stage]
