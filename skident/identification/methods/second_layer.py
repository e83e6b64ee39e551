"""The route on patches: two hidden layers with few outputs, the second one by linear algebra."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from scipy.special import erf, erfinv, logit

from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import BlackBoxError, NotIdentified

from ..second_layer.by_all_free import AllFreeDesign, all_free_design, recover_with_all_units_free
from ..second_layer.by_fit import FitDesign, fit_design, recover_by_fit
from ..second_layer.by_patch_and_extension.recover import ExtensionDesign, extension_design, recover_by_extension
from ..second_layer.by_powers.design import power_designs
from ..second_layer.by_powers.recover import recover_by_powers
from ..second_layer.downstream import Downstream
from ..second_layer.exact_directions import exact_directions
from ..second_layer.weight_norms import centered, erf_norms_and_biases, vote_on_norms
from ..solve import polished_attempt

__all__ = ["by_patches", "patches_pay", "patches_serve", "second_layer_on_patches"]

_ACTIVATIONS = ("tanh", "sigmoid", "erf")
_SHARE = 0.5  # of `max_seconds`, after which the next route is taken
_COSTLIER = 1.5  # times what is planned that may have to be asked
_FARTHEST = 3e4  # distance of patches: rounding grows with it
_OF_A_RAY, _OF_TAILS = 10, 84  # rows that the first layer takes, a unit
_PLANS = 2  # on patches that are tried
_OF_KNOWN_WIDTH = (AllFreeDesign, FitDesign, ExtensionDesign)
_FEWEST = 8  # second-layer units that are planned for where their number is to be found
_MANY_OUTPUTS, _OF_OUTPUTS = 3, 4  # from so many on, vertices show a second layer of up to so many times their number
_ROUNDING = 2.0**-53  # distance of saturated outputs from their limits, at least
_INVERSE = {
    "tanh": lambda Y: np.arctanh(np.clip(Y, _ROUNDING - 1.0, 1.0 - _ROUNDING)),
    "sigmoid": lambda Y: logit(np.clip(Y, _ROUNDING, 1.0 - _ROUNDING)),
    "erf": lambda Y: erfinv(np.clip(Y, _ROUNDING - 1.0, 1.0 - _ROUNDING)),
}


def patches_serve(inquiry):
    """Whether patches can tell the second layer: two hidden layers, exact answers, enough inputs.

    Parameters
    ----------
    inquiry : Inquiry

    Returns
    -------
    bool
    """
    if inquiry.widths is None or len(inquiry.widths) != 3 or not _answers_serve(inquiry):
        return False
    D, first = inquiry.oracle.n_inputs, inquiry.widths[0]
    return bool(_plans(inquiry, D, inquiry.widths, before=first * (_OF_A_RAY * (D + 2) + _OF_TAILS)))


def patches_pay(inquiry):
    """Whether nothing cheaper than patches is likely to tell the second layer.

    Gradients tell one that is narrower than the first where this is no wider than the input, if its shifts are not
    those of erf units, which only their tails show; vertices one that is not much wider than the output.

    Parameters
    ----------
    inquiry : Inquiry
        With known widths, two of them hidden.

    Returns
    -------
    bool
    """
    m_1, m_2, m_L = inquiry.widths
    by_vertices = m_L >= _MANY_OUTPUTS and m_2 <= _OF_OUTPUTS * m_L
    by_gradients = m_2 < m_1 <= inquiry.oracle.n_inputs and inquiry.activations[0] != "erf"
    return not (by_gradients or by_vertices)


def _answers_serve(inquiry):
    """Whether activations and the accuracy of the answers allow Taylor coefficients far out."""
    hidden, output = inquiry.activations
    known = hidden in _ACTIVATIONS and (output == "identity" or output in _INVERSE)
    return known and inquiry.fresh.sigma is None and inquiry.oracle.response == "predict"


def by_patches(inquiry, earlier, *, layers):
    """First layer from far away and exactly, the second one on patches, then the polish.

    Parameters
    ----------
    inquiry : Inquiry
        With known widths, two of them hidden.
    earlier : list of Attempt
    layers : FirstLayerSearch
        Keeps the exact first layer for later attempts.

    Returns
    -------
    Attempt or None
        None where a step fails; the log's entry says which one, as ``failed``.

    Raises
    ------
    BlackBoxError
        If the black box cannot be asked far away.
    """
    m_1 = inquiry.widths[0]
    first = layers.find(inquiry, m_1)
    if first is None:
        return None
    if len(first.biases) != m_1:
        with inquiry.log.stage("second layer (patches)", inquiry.oracle) as entry:
            entry["failed"] = f"{len(first.biases)} of {m_1} first-layer units show; parallel ones look like one"
        return None
    found = second_layer_on_patches(inquiry, first, layers, inquiry.widths[1])
    if found is None:
        return None
    return polished_attempt(inquiry, found.network, found.residual, "polish", "saturation, patches")


def second_layer_on_patches(inquiry, first, layers, n_units=None):
    """A network with two hidden layers from patches.

    Parameters
    ----------
    inquiry : Inquiry
    first : FirstLayer
        All units.
    layers : FirstLayerSearch
        Keeps the exact first layer.
    n_units : int, default=None
        Width of the second layer; None where it is to be found. Fewer units are found where others do nothing.

    Returns
    -------
    RecoveredNetwork or None
        None where a step fails; the log's entry says which one, as ``failed``.
    """
    if not _answers_serve(inquiry):
        return None
    with inquiry.log.stage("first layer (rays and votes)", inquiry.oracle) as entry:
        try:
            first, shifts, entry["unsupported"] = _exactly(inquiry, first)
            layers.keep(first if shifts is None else replace(first, biases=first.biases + shifts))
        except (NotIdentified, BlackBoxError) as error:
            entry["failed"] = str(error)
            return None
    with inquiry.log.stage("second layer (patches)", inquiry.oracle, len(first.biases), "units") as entry:
        try:
            found = _second_layer(inquiry, _downstream(inquiry, first, shifts), n_units, entry["progress"])
            entry["residual"], entry["seen"] = found.residual, found.network.layer_widths[1]
        except (NotIdentified, BlackBoxError) as error:
            entry["failed"] = str(error)
            found = None
    return found


class _WithinShare:
    """An oracle that is not asked when the share of the time for this route is over."""

    def __init__(self, oracle):
        self.oracle, self.ends = oracle, oracle.clock.share(_SHARE)
        self.reach, self.accuracy = oracle.reach, oracle.accuracy

    def __call__(self, U):
        if time.perf_counter() > self.ends:
            raise NotIdentified("second layer", "budget", "its share of max_seconds is over", final=True)
        return self.oracle(U)


def _exactly(inquiry, first):
    """The first layer to rounding error, its shifts where tails tell them, units whose lengths no two looks tell."""
    name, oracle = inquiry.activations[0], _WithinShare(inquiry.oracle)
    first = exact_directions(oracle, first, get_activation(name), inquiry.rng)
    if name == "erf":
        first, shifts, support = erf_norms_and_biases(oracle, first, inquiry.rng)
    else:
        vote = vote_on_norms(oracle, first, name, inquiry.rng)
        first, shifts, support = centered(vote, name), None, vote.support
    return first, shifts, np.flatnonzero(support < 2).tolist()


def _second_layer(inquiry, downstream, n_units, progress):
    """What `recover_by_powers` finds, in the activations looked for."""
    failures, (D, m_1) = [], downstream.shape
    for width in _widths(inquiry, m_1, n_units):
        for plan in _plans(inquiry, D, (m_1, width, downstream.n_outputs)):
            if not (isinstance(plan, _OF_KNOWN_WIDTH) and n_units is None):
                try:
                    return _as_sought(_by_plan(inquiry, downstream, plan, n_units, progress), inquiry.activations)
                except NotIdentified as error:
                    failures.append(error)
    said = "; ".join(dict.fromkeys(map(str, failures)))
    raise NotIdentified(
        "second layer", "budget", said or "no order and number of free units serve within the questions that are left"
    )


def _plans(inquiry, n_inputs, widths, before=0):
    """Ways that the questions left, less those asked before, suffice for: the cheapest first, and a fit last.

    A walk is the first of them where nothing else asks less and no fit is quick.
    """
    clock = inquiry.oracle.clock
    left = np.inf if clock.max_queries is None else clock.max_queries - inquiry.oracle.n_queries - before
    freely = all_free_design(n_inputs, widths)
    plans = [*([] if freely is None else [freely]), *power_designs(n_inputs, widths)[:_PLANS]]
    plans = [*sorted(plans, key=lambda plan: plan.n_queries), fit_design(n_inputs, widths)]
    walking = None if inquiry.activations[0] == "erf" else extension_design(n_inputs, widths)
    if walking is not None and plans[-1] is None and (plans[0] is None or walking.n_queries < plans[0].n_queries):
        plans.insert(0, walking)
    return [plan for plan in plans if plan is not None and _COSTLIER * plan.n_queries < left]


def _by_plan(inquiry, downstream, plan, n_units, progress):
    """The second layer by one plan; with fewer units than looked for, where the others do nothing."""
    if isinstance(plan, FitDesign):
        ends = inquiry.oracle.clock.share(_SHARE)
        plan = plan.with_starts(inquiry.limits.n_starts)
        return recover_by_fit(downstream, plan, n_units, deadline=ends, progress=progress)
    if isinstance(plan, ExtensionDesign):
        return recover_by_extension(downstream, plan, n_units, callback=progress)
    if isinstance(plan, AllFreeDesign):
        return recover_with_all_units_free(downstream, plan, n_units)
    try:
        return recover_by_powers(downstream, plan, n_units, callback=progress)
    except NotIdentified as error:
        if n_units is None or error.n_seen is None or error.n_seen > n_units:
            raise
        return recover_by_powers(downstream, plan, error.n_seen, callback=progress)


def _widths(inquiry, n_first, n_units):
    """Widths of the second layer to plan for: the one that is known, or growing ones."""
    if n_units is not None:
        return [n_units]
    most = inquiry.limits.max_neurons - n_first
    widths = [min(max(_FEWEST, n_first) * 2**j, most) for j in range(3)]
    return [w for w in dict.fromkeys(widths) if w > 0]


def _downstream(inquiry, first, shifts):
    """The black box downstream the first layer, as of tanh or erf units and a linear output."""
    oracle, (hidden, output) = inquiry.oracle, inquiry.activations
    unit = 0.5 if hidden == "sigmoid" else 1.0  # sigmoid(z) = (1 + tanh(z / 2)) / 2
    invert, within = _INVERSE.get(output, lambda Y: Y), _WithinShare(oracle)
    return Downstream(
        query=lambda U: invert(within(U)),
        weights=unit * first.weights,
        biases=unit * first.biases,
        activation="erf" if hidden == "erf" else "tanh",
        center_outputs=None if shifts is None else erf(shifts),
        n_outputs=oracle.n_outputs,
        rng=inquiry.rng,
        farthest=min(_FARTHEST, 0.5 * oracle.reach),
        deadline=within.ends,
    )


def _as_sought(found, activations):
    """The second layer with sigmoid units where these are looked for, and with the output activation."""
    weights, biases = (list(part) for part in (found.network.weights, found.network.biases))
    if activations[0] == "sigmoid":
        for layer, W in enumerate(weights):
            reads, gives = (1.0 if layer == 0 else 2.0), (1.0 if layer == len(weights) - 1 else 2.0)
            biases[layer] = gives * (biases[layer] - (0.0 if layer == 0 else W.sum(axis=0)))
            weights[layer] = reads * gives * W
    return replace(found, network=FeedforwardNetwork(weights, biases, *activations))
