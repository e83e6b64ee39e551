"""Whether answers that are met, but not to rounding, determine the weights too."""

from __future__ import annotations

import numpy as np

from skident.fitting.standard_errors import jacobian_spectrum

from .solve import where_units_move

__all__ = ["weights_left_open"]

_ROUNDING = 1e-12  # error that is rounding: nothing more is to be known then
_SATURATING = ("tanh", "sigmoid", "erf")  # whose parameters are determined but for their order and signs
_MOST_PARAMETERS = 1500
_KNOWN = 1e-3  # relative error of a parameter that counts as known
_OPEN = (
    "its weights are open: the answers that it meets hardly depend on some combinations of them (singular values of "
    "their Jacobian down to {least:.0e} of the largest), which may be off by {off:.0e}; rows X that spread wider may "
    "tell them"
)


def weights_left_open(network, error):
    """What to say where answers are met to `tol`, and parameters may yet be wrong.

    A combination of parameters whose singular value is s, the largest being 1, may be off by ``error / s``.

    Parameters
    ----------
    network : FeedforwardNetwork
        Of standardised inputs.
    error : float
        Relative maximum error on fresh answers.

    Returns
    -------
    str
        Empty where parameters are known to a thousandth, or are not looked at: of other activations than tanh, sigmoid
        and erf, and of more than 1500 parameters. ``O(P^3)``.
    """
    if error < _ROUNDING or network.activation not in _SATURATING or network.n_parameters > _MOST_PARAMETERS:
        return ""
    least = jacobian_spectrum(network, where_units_move(network))[-1]
    off = error / max(least, np.finfo(float).eps)
    return _OPEN.format(least=least, off=off) if off > _KNOWN else ""
