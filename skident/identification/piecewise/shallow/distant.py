"""One hidden layer of ReLU units from outputs with errors of constant size: far out the outputs outgrow these errors.

With ``f(u) = sum_i c_i relu(w_i . u + b_i) + d``, the function ``f(R v) / R`` is a network with biases ``b_i / R`` and
d / R whose outputs have R times smaller errors. It is recovered as from outputs in single precision; a fit to outputs
near the center and far out gives the biases.
"""

import numpy as np

from skident.fitting.errors_of_fit import FitSample
from skident.fitting.robust_polish import residual_scale, robust_polish
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ...constants import CHECKED, FAR_REACH, FAR_UNSHARED, FARTHEST, QUANTILE, TRIES
from ..kernel.output_error import probe_of
from .inexact import find_from_inexact_outputs, is_coarse
from .line_search import LineSearch
from .unsigned import output_std, query_rows

_ERROR = 3e-6  # relative error of the outputs that is sought: some ten roundings of float32 sums of inputs
_ROWS = 32.0  # queries near the center per parameter: they determine the biases
_OUTLIERS = 2e-3  # share of outlying rows up to which units are complete
_EXPLAINED = 1.5  # scale of their residuals, in standard deviations of the errors, up to which they are errors


def serves_distant_outputs(oracle):
    """Whether the outputs' errors are large, of constant size, and can be made small by distance."""
    return is_coarse(oracle) and not oracle.accuracy.grows and not oracle.restricted


def find_from_distant_outputs(oracle, rng, *, n_units=None, max_units=1000, callback=None):
    """The `FeedforwardNetwork` and the `FitSample` of its last fit, see `find_from_inexact_outputs`.

    Raises `NotIdentified` if no units explain the outputs far out, or those near the center.
    """
    factor = min(oracle.accuracy.relative_error / _ERROR, FARTHEST)
    distant = oracle.zoomed_out(factor)
    probe = probe_of(distant, rng, far=FAR_REACH)
    for n_left in reversed(range(TRIES)):
        search = LineSearch(probe, FAR_REACH * probe.length_scale, max_units, rng)
        try:
            network, far = find_from_inexact_outputs(search, n_units, callback, FAR_UNSHARED)
            network = FeedforwardNetwork(network.weights, [b * factor for b in network.biases], "relu")
            far = FitSample(factor * far.inputs, factor * far.outputs, factor * far.std)
            return _with_outputs_near_center(oracle, network, far, rng)
        except NotIdentified:
            if n_left == 0:
                raise


def _with_outputs_near_center(oracle, network, far, rng):
    """The network fitted to outputs near the center too, and all rows; NotIdentified if it does not explain them."""
    near = query_rows(oracle, network, int(_ROWS * network.n_parameters / network.n_outputs), rng)
    both = [np.concatenate([a, b]) for a, b in zip(_parts(near), _parts(far), strict=True)]
    rows = FitSample(*both)
    fit = robust_polish(network, *both, quantile=QUANTILE)
    checked = query_rows(oracle, fit.network, CHECKED, rng)
    std = output_std(oracle, fit.network, checked.inputs, checked.outputs)
    scale = residual_scale((fit.network(checked.inputs) - checked.outputs) / std, QUANTILE)
    if scale > _EXPLAINED or fit.outliers.mean() > _OUTLIERS:
        raise NotIdentified(
            "activation boundaries",
            "unexplained",
            f"{len(fit.network.biases[0])} units leave {fit.outliers.mean():.1%} of the outputs unexplained, and "
            f"residuals of {scale:.1e} times the outputs' error near the center.",
        )
    return fit.network, rows


def _parts(rows):
    return rows.inputs, rows.outputs, np.broadcast_to(rows.std, rows.outputs.shape)
