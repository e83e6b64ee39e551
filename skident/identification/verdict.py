"""The last look: what the best attempt is worth, and what to say of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils import Bunch

from skident.fitting.design import design_points
from skident.fitting.polish import NOISY_ANSWERS
from skident.fitting.redundancy import redundant_units
from skident.fitting.standard_errors import standard_errors
from skident.network import FeedforwardNetwork, center_outputs, change_inputs, change_outputs
from skident.oracle import probability_error

from .attempts import Outcome, where_units_move
from .hints import clipping_hint, probability_hint
from .input_range import spaced
from .inquiry import Inquiry

__all__ = ["Verdict", "judge", "report_of", "stderr_of", "warning_of"]

_COMPARED = 100  # rows of X on which a classifier's probabilities are compared
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
    redundant : list of int
        Units that the answers do not need, one number a hidden layer.
    probability_error, lost : float or None
        Of a classifier: the largest error of a probability on rows of X, and the share of these whose logits are lost.
    hint : str
        What the black box seems to do, where the network is not exact.
    """

    inquiry: Inquiry
    outcome: Outcome
    network: FeedforwardNetwork
    redundant: list
    probability_error: float | None
    lost: float | None
    hint: str

    @property
    def error(self):
        """Relative maximum error on fresh inputs."""
        return self.outcome.best.error

    @property
    def noisy(self):
        """Whether answers carry errors of `tol` or more, or come differently every time."""
        fresh = self.inquiry.fresh
        return fresh.sigma is not None and (fresh.noise >= self.inquiry.limits.tol or not fresh.accuracy.repeatable)

    @property
    def exact(self):
        """Whether fresh answers, probabilities and widths all agree to `tol`, none of it hidden in noise."""
        tol = self.inquiry.limits.tol
        agrees = self.error < tol and not self.noisy and not any(self.redundant)
        return bool(agrees and (self.probability_error is None or self.probability_error < 100.0 * tol))


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
    best, oracle = outcome.best, inquiry.oracle
    redundant = redundant_units(best.network, where_units_move(best.network))
    hint = ""
    if best.error >= inquiry.accepted_error:
        hint = clipping_hint(oracle) + probability_hint(oracle, oracle.offset + oracle.unit * inquiry.fresh.answers)
    network = change_inputs(best.network, -oracle.center / oracle.scale, 1.0 / oracle.scale)
    network = change_outputs(network, oracle.offset, oracle.unit)
    if oracle.response == "predict_proba" and inquiry.activations[1] == "identity":
        network = center_outputs(network)
    network = network.canonical()
    gap, lost = _compare_probabilities(oracle, inquiry.X, network)
    if lost:
        hint += f" Of {lost:.0%} of the rows of X the logits are lost: probabilities 0 or 1 to 1e-7."
    return Verdict(inquiry.noise_refuted_by(best.error), outcome, network, redundant, gap, lost, hint)


def _compare_probabilities(oracle, X, network):
    """A classifier's last look also at rows of X whose logits are lost: largest error, and how many there are."""
    if oracle.response == "predict":
        return None, None
    U = oracle.from_inputs(spaced(X, _COMPARED))
    return probability_error(*oracle.ask(U), network(oracle.to_inputs(U)))


def report_of(verdict, reason):
    """The public report.

    Parameters
    ----------
    verdict : Verdict
    reason : str
        Why the routes were those that they were.

    Returns
    -------
    sklearn.utils.Bunch
        See `NetworkIdentifier`.
    """
    inquiry, outcome = verdict.inquiry, verdict.outcome
    report = Bunch(
        relative_max_error=verdict.error,
        exact=verdict.exact,
        redundant_units=verdict.redundant,
        stages=inquiry.log.stages,
        attempts=outcome.n_attempts,
        route=outcome.best.route,
        reason=reason,
        noise=inquiry.fresh.noise,
        repeatable=inquiry.fresh.accuracy.repeatable,
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
        None where the answers are exact, or the network does not explain them.
    """
    inquiry, network = verdict.inquiry, verdict.network
    oracle = inquiry.oracle
    if (
        inquiry.fresh.sigma is None
        or network.n_parameters > _MOST_PARAMETERS
        or verdict.error >= inquiry.accepted_error
    ):
        return None
    n = int(NOISY_ANSWERS) * network.n_parameters // network.n_outputs + 4 * network.n_inputs
    inner = change_inputs(network, oracle.center, oracle.scale)
    U = design_points(inner.weights[0], inner.biases[0], n, 1.0, np.random.RandomState(0))
    try:
        return standard_errors(network, oracle.to_inputs(oracle.confined(U)), _noise_left(verdict) * oracle.unit)
    except (ValueError, np.linalg.LinAlgError):
        return None


def _noise_left(verdict):
    """Errors of every output on fresh inputs, less what the network's own contribute: about a tenth of the variance.

    Short lines tell noise to some 15 % only; and rounding grows with the numbers inside the black box.
    """
    fresh, network = verdict.inquiry.fresh, verdict.outcome.best.network
    left = np.sqrt(np.mean((network(fresh.inputs) - fresh.answers) ** 2, axis=0) / (1.0 + 1.0 / NOISY_ANSWERS))
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
    inexact = verdict.error >= inquiry.limits.tol or verdict.noisy
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
        return _failure(verdict) + verdict.hint + last
    if any(redundant):
        fewer = tuple(m - r for m, r in zip(widths, (*redundant, 0), strict=True))
        return (
            f"the answers do not determine all weights: with layer_widths={widths} the network "
            f"answers as the black box does (error {verdict.error:.1e}), but {redundant} units of its hidden layers "
            f"are not needed. Stage 'widths' failed; try layer_widths={fewer}."
        )
    if inquiry.widths is not None and widths != inquiry.widths:
        return (
            f"layer_widths={inquiry.widths} was asked for, but only {widths} show and explain all answers: "
            "the other units do nothing, or are parallel to these."
        )
    return None


_ADVICE = {
    "extraction": "weights are missing: try another center, a larger n_hessians, or check layer_widths",
    "completion": "scales and shifts were not found: check layer_widths and the activations, or raise "
    "completion__n_init",
    "vertices": "no random start fits the layers behind the first one: check layer_widths and the activations, "
    "or raise n_starts",
    "polish": "the fit ended in a local minimum or is limited by rounding: check layer_widths and the "
    "activations (two parallel first-layer units look like one), raise n_attempts, or loosen tol",
}


def _failure(verdict):
    """What to say when the network is not exact."""
    best = verdict.outcome.best
    return (
        f"the network is not exact: relative maximum error {best.error:.1e} on fresh inputs "
        f"(tol={verdict.inquiry.limits.tol:.0e}) after {verdict.outcome.n_attempts} attempt(s). Stage {best.stage!r} "
        f"failed with misfit {best.misfit:.1e}; {_ADVICE[best.stage]}."
    )
