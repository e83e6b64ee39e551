"""One hidden layer of ReLU units from outputs with errors of constant size: far out the outputs outgrow these errors.

With ``f(u) = sum_i c_i relu(w_i . u + b_i) + d``, the function ``f(R v) / R`` is a network with biases ``b_i / R`` and
d / R whose outputs have R times smaller errors. It is recovered as from outputs in single precision; a fit to outputs
near the center and far out gives the biases.
"""

from __future__ import annotations

import numpy as np

from skident.fitting.errors_of_fit import FitSample
from skident.fitting.robust_polish import residual_scale, robust_polish
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ..kernel.output_error import probe_of
from .inexact import find_from_inexact_outputs, is_coarse
from .line_search import LineSearch
from .unsigned import output_std, query_rows

__all__ = ["find_from_distant_outputs", "serves_distant_outputs"]

_ERROR = 3e-6  # relative error of the outputs that is sought: some ten roundings of float32 sums of inputs
_FARTHEST = 1e5  # standard deviations up to which the distance is raised: models may overflow beyond
_REACH = 10.0  # half length of lines over the distance: they miss 6 % of the hyperplanes, float32 rounding stays small
_UNSHARED = 0.4  # share of boundaries that no other line meets, of more layers: faint units are met now and then
_ROWS = 32.0  # queries near the center per parameter: they determine the biases
_CHECKED = 500  # further queries near the center that the network has to explain
_EXPLAINED = 1.5  # scale of their residuals, in standard deviations of the errors, up to which they are errors
_QUANTILE = 0.8  # of the residuals, that gives their scale: decimals have many residuals near 0


def serves_distant_outputs(oracle):
    """Whether the outputs' errors are large, of constant size, and can be made small by distance."""
    return is_coarse(oracle) and not oracle.accuracy.grows and not oracle.restricted


def find_from_distant_outputs(oracle, rng, *, n_units=None, max_units=1000, callback=None):
    """The `FeedforwardNetwork` and the `FitSample` of its last fit, see `find_from_inexact_outputs`.

    Raises `NotIdentified` if no units explain the outputs far out, or those near the center.
    """
    factor = min(oracle.accuracy.relative_error / _ERROR, _FARTHEST)
    distant = oracle.zoomed_out(factor)
    probe = probe_of(distant, rng, far=_REACH)
    search = LineSearch(probe, _REACH * probe.length_scale, max_units, rng)
    network, far = find_from_inexact_outputs(search, n_units, callback, _UNSHARED)
    network = FeedforwardNetwork(network.weights, [b * factor for b in network.biases], "relu")
    near = query_rows(oracle, network, int(_ROWS * network.n_parameters / network.n_outputs), rng)
    std = np.broadcast_to(near.std, near.outputs.shape)
    far_std = np.broadcast_to(far.std, far.outputs.shape)
    both = FitSample(
        np.concatenate([near.inputs, factor * far.inputs]),
        np.concatenate([near.outputs, factor * far.outputs]),
        np.concatenate([std, factor * far_std]),
    )
    fit = robust_polish(network, both.inputs, both.outputs, both.std, quantile=_QUANTILE)
    checked = query_rows(oracle, fit.network, _CHECKED, rng)
    std = output_std(oracle, fit.network, checked.inputs, checked.outputs)
    scale = residual_scale((fit.network(checked.inputs) - checked.outputs) / std, _QUANTILE)
    if scale > _EXPLAINED:
        raise NotIdentified(
            "activation boundaries",
            "unexplained",
            f"{len(fit.network.biases[0])} units explain the outputs {factor:.0e} standard deviations away, but leave "
            f"residuals of {scale:.1e} times the outputs' error near the center.",
        )
    return fit.network, both
