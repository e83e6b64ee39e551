"""Identification near the data: entangled weights from Hessians, completion, polish (Fiedler et al., Section 3)."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

from skident.fitting.design import design_points
from skident.linalg import column_units
from skident.network import FeedforwardNetwork, change_inputs
from skident.optim import best_of

from ..missing_units import with_missing_units
from ..solve import polished_attempt, worst_error

__all__ = ["by_hessians"]

_RESTARTS = 5  # with a single output about one start in five ends in a local minimum


def by_hessians(inquiry, earlier, *, attempt):
    """Extraction, completion and polish at one centre; from other random starts where directions are exact.

    Parameters
    ----------
    inquiry : Inquiry
    earlier : list of Attempt
    attempt : int
        The first one looks at the centre, later ones elsewhere.

    Returns
    -------
    Attempt

    Raises
    ------
    ValueError
        If the extraction or the completion cannot work with these widths and answers.
    """
    extractor = _extract(inquiry, _center(inquiry, attempt, earlier))
    missing = sum(extractor.layer_widths_) > len(extractor.components_)
    exact = len(extractor.layer_widths_) == 2 and extractor.scales_ is None and not missing
    good = max(inquiry.limits.tol, 20.0 * inquiry.fresh.noise)

    def completed(restart):
        network, completion = _complete(inquiry, extractor, restart)
        stage = "extraction" if missing else "completion" if completion.residual_ > 0.1 else "polish"
        found = polished_attempt(inquiry, network, completion.residual_, stage, "hessian", extractor, completion)
        return _complemented(inquiry, found)

    best, _ = best_of(
        map(completed, range(1 + _RESTARTS if exact and inquiry.limits.polish else 1)),
        cost=lambda found: found.error,
        enough=lambda errors: min(errors) < good or inquiry.out_of_time,
    )
    return best


def _complemented(inquiry, found):
    """The attempt with the units that noise hid far away, where there is one hidden layer and noise."""
    network, sigma = found.network, inquiry.fresh.sigma
    one_layer = len(network.weights) == 2 and network.output_activation == "identity"
    at_most = inquiry.limits.max_neurons if inquiry.widths is None else inquiry.widths[0]
    # Logits lose accuracy where probabilities are near 0 and 1: no noise that a single number describes.
    complete = network.layer_widths[0] >= at_most or inquiry.oracle.response == "predict_proba"
    if (
        sigma is None
        or not one_layer
        or complete
        or not inquiry.limits.polish
        or not inquiry.fresh.accuracy.is_plausible
    ):
        return found
    with inquiry.log.stage("missing units", inquiry.oracle, unit="units") as entry:
        network, misfit = with_missing_units(
            inquiry.oracle,
            network,
            sigma,
            inquiry.rng,
            at_most=at_most,
            out_of_time=lambda: inquiry.out_of_time,
            callback=entry["progress"],
        )
        entry["residual"] = misfit
    return replace(found, network=network, error=worst_error(inquiry.fresh.answers, network(inquiry.fresh.inputs)))


def _center(inquiry, attempt, earlier):
    """Where attempt k looks: the centre; the first layer's inflection point; random points near the centre."""
    center, scale = inquiry.oracle.center, inquiry.oracle.scale
    if attempt == 0 or inquiry.pipeline.extractor.center is not None:
        return center
    extractor = next((t.extractor for t in earlier if t.extractor is not None), None)
    if attempt == 1 and extractor is not None and extractor.scales_ is not None:
        W, b = _first_layer(extractor, inquiry.oracle)
        return center - scale * np.linalg.lstsq(W.T, b, rcond=1e-2)[0]
    u = 0.3 * inquiry.rng.standard_normal((1, len(center))) / np.sqrt(len(center))
    # Room for derivatives: the same as at the centre, if that has little.
    template = inquiry.pipeline.extractor
    margin = min(inquiry.oracle.reach, 10.0 * (template.radius + 2.0 * template.step_size))
    return inquiry.oracle.to_inputs(inquiry.oracle.clip_to_range(u, margin))[0]


def _extract(inquiry, center):
    """The fitted extractor of this attempt; its warnings are judged by the last look instead."""
    box, oracle = inquiry.box, inquiry.oracle
    frozen = FrozenEstimator(box) if hasattr(box, "predict") and hasattr(box, "fit") else box
    extractor = clone(inquiry.pipeline.extractor).set_params(
        estimator=oracle.as_black_box(),  # same range, count and clock
        layer_widths=inquiry.widths,
        activation=inquiry.activations[0],
        output_activation=inquiry.activations[1],
        center=center,
        random_state=inquiry.rng.randint(2**31 - 1),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        extractor.fit(inquiry.X)
    extractor.estimator_ = box
    extractor.set_params(estimator=frozen)
    inquiry.log.stages.extend(extractor.report_)
    return extractor


def _complete(inquiry, extractor, restart):
    """Scales and shifts on fresh inputs: a network of standardised inputs, and the fitted completion."""
    widths = _found_widths(extractor)
    V = _components(extractor, widths, inquiry.rng)
    ridge = len(widths) == 2 and inquiry.activations[1] == "identity"
    V = V[: widths[0]] if ridge else V
    with inquiry.log.stage("completion", inquiry.oracle) as entry:
        n = 10 * 3 * sum(widths) // widths[-1] + 4 * inquiry.oracle.n_inputs + 4 * widths[0]
        U, Y = inquiry.oracle.query_precise(functools.partial(_completion_inputs, inquiry, extractor, widths), n)
        Z = inquiry.oracle.to_inputs(U) @ V.T
        completion = clone(inquiry.pipeline.completion).set_params(
            layer_widths=widths,
            activation=inquiry.activations[0],
            output_activation=inquiry.activations[1],
            random_state=inquiry.rng.randint(2**31 - 1),
        )
        if completion.start is None and extractor.scales_ is not None and len(extractor.scales_) == widths[0]:
            completion.set_params(start=(extractor.scales_, extractor.biases_))
        elif restart:
            completion.set_params(start=_random_start(Z[:, : widths[0]], inquiry.rng), n_init=1)
        # Where answers are not exact, a fit can be no better than they are.
        completion.set_params(tol=max(completion.tol, inquiry.fresh.noise))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            completion.fit(Z, Y)
        entry["residual"] = completion.residual_
    inner = completion.network_
    network = FeedforwardNetwork([V.T @ inner.weights[0], *inner.weights[1:]], inner.biases, *inquiry.activations)
    return change_inputs(network, inquiry.oracle.center, inquiry.oracle.scale), completion


def _random_start(Z, rng):
    """Scales and shifts of first-layer units that bend around where their features Z (n, m_1) lie."""
    spread = rng.standard_normal((2, Z.shape[1]))
    scales = 0.5 * np.exp(0.7 * spread[0]) / column_units(Z)[1]
    return scales, 0.3 * spread[1] - scales * Z.mean(axis=0)


def _found_widths(extractor):
    """The widths asked for, or fewer first-layer units where saturation found fewer; Hessians may miss some."""
    widths = extractor.layer_widths_
    first = int(np.sum(extractor.layer_assignment_ == 0))
    complete = extractor.first_layer_method_ == "saturation"
    return (first, *widths[1:]) if len(widths) == 2 and 0 < first and complete else widths


def _completion_inputs(inquiry, extractor, widths, n, factor):
    """Inputs near enough for eq. (18) to be solvable."""
    D, rng = inquiry.oracle.n_inputs, inquiry.rng
    if extractor.scales_ is None or len(extractor.scales_) != widths[0]:
        return factor * rng.standard_normal((n, D)) / np.sqrt(D)
    W, b = _first_layer(extractor, inquiry.oracle)
    if len(widths) > 2 or inquiry.activations[1] != "identity":
        return design_points(W, b, n, 0.25 * factor, rng, near=0.0)
    return design_points(W, b, n, factor, rng)


def _first_layer(extractor, oracle):
    """First-layer weights (D, m_1) and shifts from saturation, in the oracle's coordinates."""
    W = extractor.components_[: len(extractor.scales_)].T * extractor.scales_
    return W * oracle.scale[:, None], extractor.biases_ + W.T @ oracle.center


def _components(extractor, widths, rng):
    """Components layer by layer, (m, D); missing ones replaced by random directions for the polish to turn."""
    rows = []
    for layer, m in enumerate(widths):
        V = extractor.components_[extractor.layer_assignment_ == layer][:m]
        fill = rng.standard_normal((m - len(V), extractor.components_.shape[1])) / extractor.scale_
        rows += [V, fill / np.linalg.norm(fill, axis=1, keepdims=True)]
    return np.concatenate(rows)
