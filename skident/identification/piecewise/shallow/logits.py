"""One hidden layer of ReLU units from logits with errors: units on lines, a robust fit, signs, a polish."""

import numpy as np

from skident.budget.constants import RIDGE, TINY
from skident.fitting.errors_of_fit import FitSample
from skident.fitting.robust_polish import robust_polish
from skident.linalg import lapack
from skident.oracle import NotIdentified

from ...constants import OUTPUTS_PER_UNKNOWN, SIGNIFICANT
from .restricted import UnsignedFit, network_of_fit
from .units import ShallowNetwork
from .unsigned import units_of, unsigned_features, with_linear_part
from .visible_units import VisibleUnits

_LINES = (10, 10, 20, 20, 20, 40, 40, 80)  # lines scanned before each fit (budget)
_ROUNDS = 1  # of the robust polish: four Gauss-Newton steps from units that are right to 1e-4 reach the errors
_EXPLAINED = 4.0  # scale of the residuals, in standard deviations of the errors, up to which they are errors
_OUTLIERS = 0.01  # share of outlying rows up to which the others are explained by the right units
_SMALL_UNITS = 1e-4  # residual over the outputs' range of a network that lacks only small units
_ROUGH = 5e-5  # residual of the linear fit over the outputs' range above which units are missing
_LARGE = 2600  # parameters from which a network with several logits is fitted by conjugate gradients
_AIMED = 10  # outlying rows through which lines are aimed
_EQUATIONS = 1.5  # entries of the linear part per unit from which they determine the signs whatever their errors
_LINEAR_ERROR_ROUGH = 2e-3  # error of the linear part over its size, before a polish
_LINEAR_ERROR = 5e-6  # after it: float32 logits, a few digits less


def find_from_logits(oracle, rng, n_units=None, callback=None):
    """The `ShallowNetwork` of a classifier's logits, of standardized inputs.

    NotIdentified if the units that lines show do not explain the logits.
    """
    visible, aims, best = VisibleUnits(oracle, rng), None, None
    for n_lines in _LINES:
        visible.scan(n_lines, aims)
        units = visible.units()
        if callback is not None:
            callback(len(units))
        if len(units) == 0:
            continue
        rows = visible.rows(units, int(OUTPUTS_PER_UNKNOWN * _unknowns(units) / units.outgoing.shape[1]))
        network, _ = with_linear_part(units, rows)
        residual = np.abs(network(rows.inputs) - rows.outputs).max(axis=1) / rows.std[:, 0]
        aims = rows.inputs[np.argsort(-residual)[:_AIMED]]
        rough = np.median(residual * rows.std[:, 0]) > _ROUGH * np.ptp(rows.outputs)
        if rough:
            continue
        fit, found = _fit(network, rows)
        if fit.scale < _EXPLAINED and fit.outliers.mean() < _OUTLIERS:
            return _checked(fit, rows, found, n_units)
        close = fit.scale * np.median(rows.std) < _SMALL_UNITS * np.ptp(rows.outputs)
        if close and (best is None or fit.scale < best[0].scale):
            best = fit, rows, found
    if best is not None:  # what is left is the effect of units too small for a line; validation states it
        return _checked(*best, n_units)
    message = f"{len(visible.units())} units do not explain the logits to their precision."
    raise NotIdentified("activation boundaries", "unexplained", message)


def _checked(fit, rows, found, n_units):
    """The network of a fit, if it has no more units than it may have."""
    n_found, n_skips = found
    if n_units is not None and n_found > n_units:
        message = f"layer_widths gives {n_units} hidden units, but {n_found} hyperplanes are significant."
        raise NotIdentified("activation boundaries", "units", message)
    sample = FitSample(rows.inputs, rows.outputs, rows.std * fit.scale)
    return ShallowNetwork(fit.network, sample, n_skips=n_skips, residual=fit.scale)


def _fit(network, rows):
    """The `RobustFit` of the significant units of a network, and the numbers of units and of skips."""
    units = _significant(units_of(network), rows)
    while True:
        signed, n_skips = _signed(with_linear_part(units, rows)[0], rows)
        fit, n_before = _polished(signed, rows), len(units)
        units = _significant(units_of(fit.network, n_skips), rows)
        if len(units) == n_before:
            return fit, (n_before, n_skips)


def _polished(network, rows):
    """A `RobustFit`; of large networks with several logits by conjugate gradients."""
    limit = {} if rows.outputs.shape[1] == 1 else {"factor_limit": _LARGE}
    return robust_polish(network, rows.inputs, rows.outputs, rows.std, max_rounds=_ROUNDS, **limit)


def _unknowns(units):
    """Parameters of the network of units with a linear part."""
    (D, m), p = units.weights.shape, units.outgoing.shape[1]
    return (m + p) * (D + 1 + p)


def _significant(units, rows):
    """The units that remain after one insignificant unit after another is removed, the worst first."""
    A, F = unsigned_features(units, rows.inputs) / rows.std, rows.outputs / rows.std
    gram, right = A.T @ A, A.T @ F
    size = np.maximum(np.sqrt(np.diag(gram)), TINY)
    gram, right = gram / size[:, None] / size, right / size[:, None]
    first, kept = len(gram) - len(units), np.arange(len(gram))
    while len(kept) > first + 1:
        inverse = lapack.inv(gram[np.ix_(kept, kept)] + RIDGE * np.eye(len(kept)))
        coef = inverse @ right[kept]
        residual = (np.sum(F**2) - np.sum(coef * right[kept])) / F.size
        t = np.linalg.norm(coef, axis=1) / np.sqrt(np.maximum(np.diag(inverse) * max(residual, 1.0), TINY))
        worst = first + int(np.argmin(t[first:]))
        if t[worst] > SIGNIFICANT:
            break
        kept = np.delete(kept, worst)
    return units.take(kept[first:] - first)


def _signed(network, rows):
    """The network whose units have the signs that explain the linear part, and the number of units in its place."""
    p = network.n_outputs
    determined = p * network.n_inputs >= _EQUATIONS * (network.layer_widths[0] - p)
    if not determined:  # the signs take as many digits as the logits have
        network = _polished(network, rows).network
    units = units_of(network)
    m = len(units)
    linear = (network.weights[0][:, m:] @ network.weights[1][m:]).T + 0.5 * units.outgoing.T @ units.weights.T
    constant = network.biases[1] + network.biases[0][m:] @ network.weights[1][m:] + 0.5 * units.biases @ units.outgoing
    error = (_LINEAR_ERROR_ROUGH if determined else _LINEAR_ERROR) * np.abs(linear).max()
    unsigned = UnsignedFit(units=units, constant=constant, linear=2.0 * linear, linear_error=error)
    found = network_of_fit(unsigned, np.ones(p), np.sqrt(network.n_inputs))
    return found.network, found.n_skips
