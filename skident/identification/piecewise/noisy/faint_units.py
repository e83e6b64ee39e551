"""Units of the second layer whose outgoing weights are small: a fit to what is left of the outputs.

Boundaries of such a unit move the outputs little beside those of all others, so that they cannot be followed. In the
outputs of the first layer, the residual is a network with one hidden layer and few units. It is fitted from random
starts with more units than are kept.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.budget import check_deadline
from skident.fitting.errors_of_fit import FitSample
from skident.fitting.robust_polish import residual_scale, robust_polish

from ..shallow.units import ReLUUnits
from ..shallow.unsigned import n_units_of, units_of, with_linear_part

__all__ = ["rows_of_faint_units", "with_faint_units"]

_N_RANDOM = 12  # random units of a fit
_ROWS = 6.0  # outputs per parameter of a fit
_ROUNDS = (12, 3)  # changes of the weights of the fit with all units, and of that with those that are kept
_QUANTILE = 0.97  # of the residuals, that gives their scale in a fit: units that 5 % of the inputs activate are fitted
_EFFECT = 1.2  # root mean square of a unit's outputs over the residuals' scale, from which it is kept
_MOST_KEPT = 8  # units of these that are kept at most: a residual that takes more is no network of few units
_FAINT_FITS = 2  # at most: the second one finds what the first one left
_NEARLY_NEVER = 1e-3  # deviation over the largest one of an input that is hardly ever active


def rows_of_faint_units(layers):
    """Number of outputs that `with_faint_units` takes."""
    K, p = layers.W1.shape[1], layers.W3.shape[1]
    return int(_ROWS * (_N_RANDOM * (K + 1 + p) / p + K))


def with_faint_units(layers, X, F, rng):
    """`TwoLayers` with further units and another linear part, which explain outputs F (n, m_L) at X (n, D) better.

    The first layer and the units that are known do not change.
    """
    H = layers.hidden(X)
    for _ in range(_FAINT_FITS):
        check_deadline()
        residual = F - layers(X)
        rows = FitSample(H, residual, np.ones_like(residual))
        fit = _fit(_random_units(H, residual, rng), rows, _ROUNDS[0])
        rest = residual_scale(residual - fit.network(H))
        kept = _effects(fit, H) > _EFFECT * rest
        if not 0 < kept.sum() <= _MOST_KEPT:
            break
        fit = _fit(units_of(fit.network).take(kept), rows, _ROUNDS[1])
        if fit.scale >= residual_scale(residual, _QUANTILE):
            break
        layers = _joined(layers, fit.network)
    return layers


def _random_units(H, residual, rng):
    """Random `ReLUUnits` of inputs H (n, K) whose boundaries pass through rows of it."""
    size = H.std(axis=0)
    size = np.where(size > _NEARLY_NEVER * size.max(), size, np.inf)
    W = rng.standard_normal((H.shape[1], _N_RANDOM)) / size[:, None]
    b = -np.sum(H[rng.randint(len(H), size=_N_RANDOM)] * W.T, axis=1)
    return ReLUUnits(W, b, np.zeros((_N_RANDOM, residual.shape[1])), np.zeros(_N_RANDOM))


def _fit(units, rows, max_rounds):
    network, _ = with_linear_part(units, rows)
    return robust_polish(network, rows.inputs, rows.outputs, rows.std, max_rounds=max_rounds, quantile=_QUANTILE)


def _effects(fit, H):
    """Root mean squares (k,) of the outputs of units, less the part that is linear in their sums."""
    units = units_of(fit.network)
    part = np.abs(H @ units.weights + units.biases)
    return 0.5 * part.std(axis=0) * np.linalg.norm(units.outgoing, axis=1)


def _joined(layers, network):
    """The layers and a network of the first layer's outputs with linear units at its end."""
    m = n_units_of(network)
    (W, outgoing), (b, c) = network.weights, network.biases
    return replace(
        layers,
        W2=np.hstack([layers.W2, W[:, :m]]),
        b2=np.append(layers.b2, b[:m]),
        W3=np.vstack([layers.W3, outgoing[:m]]),
        V=layers.V + W[:, m:] @ outgoing[m:],
        c=layers.c + c + b[m:] @ outgoing[m:],
    )
