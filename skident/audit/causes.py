"""Ordinary causes why a black box differs from a network: each a small fit, tested on all queries."""

from dataclasses import dataclass, field

import numpy as np

from skident.network import FeedforwardNetwork

from .changes import Layers, changes_without_fit, permuted_inputs
from .fitted_maps import leaky_slopes, mapped
from .links import VALUES, Probabilities
from .quantized import KIND
from .randomness import dropout, normalizes_batches

_SCREENED = 200  # rows on which changes are compared first (budget)
_TESTED = 12  # changes that are compared on all rows (budget)
_NEAR = 0.5  # of the differences' root mean square: a change that leaves more of them is not mentioned
_LISTED = 5  # causes in a report
_CERTAIN = 0.3  # share of the rows in which a quantized network has no tie: fewer decide nothing


@dataclass(frozen=True)
class Cause:
    """An ordinary difference between a black box and the network that is known.

    Attributes
    ----------
    kind : str
        Its name: "input maps", "one input map", "output maps", "permuted inputs", "reversed outputs", "activation",
        "zero biases", "transposed weights", "missing layer", "doubled layer", "number format", "clipped outputs",
        "added softmax", "missing softmax", "quantized reference", "quantized copy", "batch normalization in training
        mode", "dropout in training mode" or another.
    text : str
        One line on it.
    parameters : dict
        Its numbers, for example ``input_scale`` and ``input_offset`` (D,) of "input maps", or the ``order`` of inputs.
    explains : bool
        Whether all outputs agree with the changed network within their tolerance; of a quantized model on file,
        whether no weight differs by more than one step from the quantized reference.
    share : float
        Root mean square of what is left of the differences, over that of the differences.
    network : FeedforwardNetwork or None
        The changed network; None if it is not one, or if its hidden layers have different activations.
    """

    kind: str
    text: str
    parameters: dict = field(repr=False)
    explains: bool
    share: float
    network: FeedforwardNetwork | None = field(repr=False)

    def __str__(self):
        return self.text if self.explains else f"{self.text}, which leaves {100 * self.share:.2g} % of the differences"


class _Comparison:
    """Outputs of other networks, beside those of the black box."""

    def __init__(self, queries, link, rng):
        self.queries, self.layers, self.link = queries, Layers.of(queries.network), link
        self.X, self.Y = queries.X, queries.Y
        self.order = rng.permutation(len(self.X))
        self.few = self.order[:_SCREENED]
        spread = self.Y.std(axis=0)
        self.unit = np.where(spread > 0.0, spread, spread.max() or 1.0)

    def differences(self, layers, link=None, rows=None):
        """Of the outputs, over their standard deviation."""
        rows = self.few if rows is None else rows
        with np.errstate(over="ignore", invalid="ignore"):
            values = (link or self.link).values(layers(self.X[rows]))
        if values.shape != self.Y[rows].shape:
            return np.full(self.Y[rows].shape, np.inf)
        return (values - self.Y[rows]) / self.unit

    def share(self, layers, link=None, rows=None):
        """What a network leaves of the differences, of 1."""
        rows = self.few if rows is None else rows
        left, all_of_them = (self.differences(*of, rows).ravel() for of in ((layers, link), (self.layers, None)))
        with np.errstate(over="ignore", invalid="ignore"):
            share = np.linalg.norm(left) / np.linalg.norm(all_of_them)
        return float(share) if np.isfinite(share) else np.inf

    def explains(self, layers, link=None):
        """Whether nothing is left beyond tolerance."""
        every = np.arange(len(self.X))
        gaps = np.abs(self.differences(layers, link, every)) * self.unit
        if not np.isfinite(gaps).all():
            return False
        agree = np.all(gaps <= self.queries.tolerance_of(layers, link or self.link), axis=1)
        certain = layers.certain(self.X) if hasattr(layers, "certain") else every >= 0
        return bool(agree[certain].all() and np.mean(certain) >= _CERTAIN)


def quantized_cause(queries, copied):
    """The cause of a quantized model whose weights are on file, from `quantized_copy`."""
    text, parameters, network, is_reference = copied
    left = np.linalg.norm(queries.link.values(network(queries.X)) - queries.Y)
    share = float(left / max(np.linalg.norm(queries.gaps), np.finfo(float).tiny))
    return Cause(KIND if is_reference else "quantized copy", text, parameters, is_reference, share, network)


def causes_in_calls(queries):
    """Causes that show before outputs are compared: a missing softmax, batch normalization, dropout."""
    if queries.lacks_softmax:
        text = "the softmax (or sigmoid) is missing, since the outputs are logits"
        return [Cause("missing softmax", text, {}, True, 0.0, None)]
    if queries.batch_dependent and normalizes_batches(queries.Y, queries.tolerance):
        text = (
            "batch normalization is in training mode (call .eval() on the model): all single rows have the same outputs"
        )
        return [Cause("batch normalization in training mode", text, {}, True, 0.0, None)]
    if queries.kind == "noise" and (found := dropout(queries.network, queries.link, queries.X, queries.gaps**2)):
        layer, rate = found
        where = "of all hidden layers" if layer is None else f"after layer {layer + 1}"
        text = f"dropout in training mode (call .eval() on the model), {where}, with a rate near {rate:.2g}"
        return [Cause("dropout in training mode", text, {"layer": layer, "rate": rate}, True, 0.0, None)]
    return []


def causes_of(queries, rng):
    """Ordinary causes of the differences, the best first: those that explain all, by the number of fitted numbers."""
    if not np.isfinite(queries.tolerance).all():
        return []
    cases = [_Comparison(queries, queries.link, rng)]
    if isinstance(queries.link, Probabilities) and queries.Y.shape[1] == queries.network.n_outputs:
        cases.append(_Comparison(queries, VALUES, rng))
    found = [pair for case in cases for pair in _without_fit(case)]
    if not any(cause.explains for cause, _ in found):
        found += [pair for case in cases for pair in _with_fit(case)]
    found = [pair for pair in found if pair[0].explains or pair[0].share <= _NEAR]
    if explaining := [pair for pair in found if pair[0].explains]:
        found = sorted(explaining, key=lambda pair: (pair[1], pair[0].share))
    else:
        found.sort(key=lambda pair: pair[0].share)
    return list({cause.text: cause for cause, _ in reversed(found)}.values())[::-1][:_LISTED]


def _without_fit(case):
    changes = [*changes_without_fit(case.layers, case.link, case.X, case.Y)]
    changes += permuted_inputs(case.layers, case.link, case.X, case.share)
    shares = np.array([case.share(c.layers, c.link) for c in changes])
    return [_cause(case, changes[k]) for k in np.argsort(shares, kind="stable")[:_TESTED] if shares[k] <= _NEAR]


def _with_fit(case):
    changes = [*mapped(case.layers, case.link, case.X, case.Y, case.order, case.explains)]
    return [_cause(case, change) for change in [*changes, *leaky_slopes(case.layers, case.link, case.differences)]]


def _cause(case, change):
    """The cause, and how many numbers were fitted."""
    every = np.arange(len(case.X))
    share = case.share(change.layers, change.link, every)
    explains = case.explains(change.layers, change.link)
    return Cause(change.kind, change.text, change.parameters, explains, share, _network(change.layers)), change.n_fitted


def _network(layers):
    """As a network, if it is one."""
    hidden = {g.name for g in layers.activations[:-1]}
    if not isinstance(layers, Layers) or len(hidden) > 1:
        return None
    hidden = layers.activations[0] if len(layers.weights) > 1 else "identity"
    return FeedforwardNetwork(layers.weights, layers.biases, hidden, layers.activations[-1])
