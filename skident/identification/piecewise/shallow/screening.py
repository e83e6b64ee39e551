"""Units that explain most of what a fit without signs leaves over: anywhere, or beside the units that it has.

In place of two units with nearly equal hyperplanes, a fit has one. Between the two hyperplanes, the outputs differ from
it by a tent, which a unit close to it explains.
"""

import numpy as np

from skident.fitting.screening import Unexplained, near_planes, screened_planes

from .units import ReLUUnits
from .unsigned import units_of

_N_SCREENED = 6  # units that are added
_SIZES = (0.05, 0.04, 0.02, 0.01)  # distances of hyperplanes drawn beside those of units, in turn
_CLOSE = 960  # drawn for each of these (budget): 30 beside each of 32 units at first
_N_CLOSE = 4  # units beside which others are searched at the end: half of them is left after each size
_LEAST_GAIN = 20.0  # decrease of the cost by such a unit: the best of 4,000 random ones decreases that of noise by 7


def screened(fit, rows, rng, n_new=_N_SCREENED):
    """Units, random ones and others near the best of these, that explain most of what a fit leaves over."""
    network = fit.network

    def draw(n):
        planes = rng.standard_normal((network.n_inputs + 1, n))
        return planes / np.linalg.norm(planes[:-1], axis=0)

    planes = screened_planes(Unexplained(network, rows), np.abs, draw, rng, n_new)
    return _without_outputs(planes, network.n_outputs)


def screened_beside(fit, rows, rng):
    """Units close to those of a fit that explain what it leaves over, each more than errors of the outputs do."""
    unexplained, units = Unexplained(fit.network, rows), units_of(fit.network)
    planes = np.vstack([units.weights, units.biases])
    gains = np.zeros(planes.shape[1])
    for i, size in enumerate(_SIZES):
        n = -(-_CLOSE // planes.shape[1])
        drawn = near_planes(np.repeat(planes, n, axis=1), size, rng)
        gain = unexplained.gains(drawn, np.abs).reshape(-1, n)
        best, gain = np.arange(len(gain)) * n + gain.argmax(axis=1), gain.max(axis=1)
        planes, gains = np.where(gain > gains, drawn[:, best], planes), np.maximum(gain, gains)
        n_left = max(_N_CLOSE, len(gains) // 2) if i + 1 < len(_SIZES) else _N_CLOSE
        order = np.argsort(-gains)[:n_left]
        planes, gains = planes[:, order], gains[order]
    return _without_outputs(planes[:, gains > _LEAST_GAIN], fit.network.n_outputs)


def _without_outputs(planes, n_outputs):
    planes = planes / np.linalg.norm(planes[:-1], axis=0)
    k = planes.shape[1]
    return ReLUUnits(planes[:-1], planes[-1], np.zeros((k, n_outputs)), np.zeros(k))
