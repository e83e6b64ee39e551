"""The route by kinks: piecewise linear networks, of one hidden layer or of more."""

from __future__ import annotations

import functools

import numpy as np

from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from ..piecewise.deep.network import find_deep_relu_network
from ..piecewise.kernel.output_error import DeepProbe, probe_of
from ..piecewise.shallow.hard_tanh import find_hard_tanh_network
from ..piecewise.shallow.network import find_relu_network
from ..solve import Attempt, worst_error

__all__ = ["by_kinks"]

_REACH = 1e3  # of lines, in units of sqrt(D) standard deviations
# What one hidden layer looks like where there are more.
_MORE_LAYERS = {"crowded", "bent", "signs", "ambiguous", "undecided", "unexplained", "unresolved"}
_CHECKS = 17  # times as many answers as are judged by in the end show whether units are missing
_ALIKE = 1.0 - 1e-6  # cosine of two units from which on they may be one
_POINTS, _RADII = 20_000, (1.0, 2.0, 3.0)  # at which units are looked at, and their spreads
_NO_SLOPE = 1e-11  # of leaky units that are taken as plain ones
_SKIPS = (
    "the signs of its units are undetermined: {} units that are always active stand for a linear part of the outputs. "
    "The activation boundaries and the function are recovered, the width and the signs of the units may differ"
)
_PAIRS = (
    "{} pairs of units only stand for a linear part of the outputs: units that are always active, or a skip "
    "connection. The function is recovered, the width of the last hidden layer may differ"
)
_MISSING = (
    "{:.2%} of {} further answers are not explained: units that are rarely active are missing. Give rows X where they "
    "are, or raise max_seconds"
)


def by_kinks(inquiry, earlier):
    """A ReLU network from the kinks of its answers: one hidden layer along lines, more of them layer by layer.

    Where neither widths nor depth are known, one hidden layer is tried first; lines soon tell that there are more. Of
    hard tanh networks there is one hidden layer.

    Parameters
    ----------
    inquiry : Inquiry
    earlier : list of Attempt

    Returns
    -------
    Attempt

    Raises
    ------
    ValueError
        If the black box has no kinks, or not those of such a network.
    """
    hidden = inquiry.activations[0]
    unsure = hidden == "relu" and inquiry.seen is not None
    if inquiry.widths is not None and len(inquiry.widths) > 2:
        return _deep(inquiry, leaky=unsure or hidden == "leaky_relu")
    try:
        return _relu_or_leaky(inquiry) if unsure else _shallow(inquiry, hidden)
    except NotIdentified as error:
        if inquiry.widths is not None or error.reason not in _MORE_LAYERS or hidden == "hard_tanh":
            raise
        try:
            return _deep(inquiry, leaky=unsure or hidden == "leaky_relu")
        except (NotIdentified, OutOfBudgetError) as deeper:
            raise NotIdentified(
                "activation boundaries",
                error.reason,
                f"no ReLU network was found. With one hidden layer: {error} With more: {deeper}",
            ) from deeper


def _relu_or_leaky(inquiry):
    """One hidden layer whose units are leaky or not: not, unless that leaves a linear part and leaky ones do not."""
    try:
        plain, refusal = _shallow(inquiry, "relu"), None
    except NotIdentified as error:
        plain, refusal = None, error
    if plain is not None and plain.minimal:
        return plain
    try:
        leaky = _shallow(inquiry, "leaky_relu")
    except (NotIdentified, OutOfBudgetError) as error:
        if plain is None:
            raise (refusal if refusal.reason in _MORE_LAYERS else error) from error
        return plain
    return leaky if plain is None or leaky.minimal else plain


def _shallow(inquiry, hidden):
    """One hidden layer of relu, leaky relu or hard tanh units."""
    oracle, n_units = inquiry.oracle, None if inquiry.widths is None else inquiry.widths[0]
    leaky = functools.partial(find_relu_network, leaky=True)
    find = {"relu": find_relu_network, "leaky_relu": leaky, "hard_tanh": find_hard_tanh_network}[hidden]
    with inquiry.log.stage("units (kinks along lines)", oracle, n_units, "units") as entry:
        found = find(
            oracle,
            n_units=n_units,
            max_units=max(1000, 2 * (n_units or 0)),
            reach=min(_REACH, oracle.reach / np.sqrt(oracle.n_inputs)),
            rng=inquiry.rng,
            callback=entry["progress"],
        )
    caveat = "" if found.n_skips == 0 else _SKIPS.format(found.n_skips)
    # Every unit was seen by itself; only noise makes two of one.
    minimal = not found.n_skips and (inquiry.fresh.sigma is None or oracle.restricted)
    return _attempt(inquiry, found.network, minimal, caveat, {})


def _deep(inquiry, leaky):
    """Any number of hidden layers."""
    oracle = inquiry.oracle
    with inquiry.log.stage("layers (kinks and facets)", oracle, None, "units") as entry:
        output_error = probe_of(oracle, inquiry.rng).output_error
        found = find_deep_relu_network(
            DeepProbe(oracle, output_error, inquiry.fresh.answers.std(axis=0)),
            rng=inquiry.rng,
            leaky=leaky,
            callback=entry["progress"],
            n_validation=_CHECKS * len(inquiry.fresh.inputs),
            inputs=inquiry.fresh.inputs,
        )
    caveat = "" if found.n_linear == 0 else _PAIRS.format(found.n_linear)
    if found.wrong_share:
        caveat = _MISSING.format(found.wrong_share, found.n_validation)
    evidence = {
        "explained": 1.0 - found.wrong_share,
        "explained_of": found.n_validation,
        "sign_doubt": found.sign_deviation,
    }
    minimal = not found.n_linear and not _has_alike_units(found.network)
    return _attempt(inquiry, found.network, minimal, caveat, evidence)


def _has_alike_units(network):
    """Whether two units of the last hidden layer may be one that was found twice."""
    V = np.vstack([network.weights[-2], network.biases[-2]])
    V = V / np.maximum(np.linalg.norm(V, axis=0), np.finfo(float).tiny)
    return bool(np.any(np.abs(np.triu(V.T @ V, 1)) > _ALIKE))


def _attempt(inquiry, network, minimal, caveat, evidence):
    """The attempt, with the units that never show; leaky ones whose slope is 0 to rounding are not."""
    if inquiry.seen is not None and abs(getattr(network.activations[0], "negative_slope", 1.0)) < _NO_SLOPE:
        network = FeedforwardNetwork(network.weights, network.biases, "relu")
    error = worst_error(inquiry.fresh.answers, network(inquiry.fresh.inputs))
    evidence = {**evidence, **_units_at_rest(inquiry, network)}
    return Attempt(network, error, "kinks", error, "kinks", minimal=minimal, caveat=caveat, evidence=evidence)


def _units_at_rest(inquiry, network):
    """How many units of every hidden layer are never active near the centre, and how many always.

    Hard tanh units are active between their bends.
    """
    rng, D = np.random.RandomState(0), inquiry.oracle.n_inputs
    H = inquiry.oracle.clip_to_range(rng.choice(_RADII, (_POINTS, 1)) * rng.standard_normal((_POINTS, D)))
    never, always = [], []
    for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        Z = H @ W + b
        H = network.activations[0](Z)
        low, high = Z.min(axis=0), Z.max(axis=0)
        hard = network.activation == "hard_tanh"
        never.append(int(np.sum((high <= -1.0) | (low >= 1.0) if hard else high <= 0.0)))
        always.append(int(np.sum((low >= -1.0) & (high <= 1.0) if hard else low >= 0.0)))
    return {"never_active": never, "always_active": always}
