"""Rounding of an identified network to a number format, and the summary of how many of its bits are certain."""

import numpy as np

from skident.fitting.standard_errors import parameter_jacobian
from skident.linalg import lapack
from skident.oracle import OutOfBudgetError

from .accuracy import polished_for_bits
from .bits import LEAST_LOG10_ODDS, Bits
from .float32_outputs import round_from_single, why_not_from_single
from .grid import FAR_OFF, FORMAT_DIGITS, INFORMATIVE, PROBABLY_OFF, WITHIN, distances, nearest, spacing
from .rounding import MAX_LOG_ODDS, Layer, log_odds_of_neighbors, round_network, with_layers

_OUTPUTS_PER_UNKNOWN = 4  # held-out outputs per remaining parameter from which these are fitted again
_MAX_REMAINING = 500  # parameters that are fitted again (budget: their dense Jacobian on the held-out samples)
_OVER_INDEPENDENT = 2.0  # standard errors over those of independent rounding errors
_ROUNDING = 1e-11  # relative error of outputs that unrounded parameters leave; a wrong last bit of float32: 6e-8
_ACCURATE = 1e-12  # relative error of outputs below which weights on the grid are recognized
_MAX_GROWTH = 2.0  # largest error of the rounded network over that of the recovered one


def round_to_format(network, format, X, Y):
    """Round a network to numbers of a format where held-out samples X (n, D), Y (n, m_L) of double precision allow it.

    Returns the network and its `Bits`. Parameters that the distances to the grid leave undetermined are fitted again
    with all others fixed. If the rounded network explains the samples less well, the given one is returned.
    """
    digits = FORMAT_DIGITS[format]
    rounded = round_network(network, digits)
    layers = _fit_remaining(rounded, X, Y, digits)
    result = with_layers(network, [layer.values for layer in layers])
    log_odds = np.concatenate([layer.log_odds.ravel() for layer in layers])
    certain = log_odds < MAX_LOG_ODDS
    reasons = tuple(f"layer {i}: {', '.join(layer.reasons)}" for i, layer in enumerate(layers, 1) if layer.reasons)
    n_small = int(np.sum(np.isfinite(log_odds) & ~certain))
    if n_small:
        reasons += (f"{n_small} parameters are too small for the accuracy of the outputs",)
    before, after = (np.abs(one(X) - Y).max() for one in (network, result))
    if certain.any() and after > _MAX_GROWTH * before + _ROUNDING * np.abs(Y).max():
        return network, Bits(format, 0, certain.size, 0.0, ("the rounded network does not explain the outputs",))
    least = max(float(log_odds[certain].max() / np.log(10.0)), LEAST_LOG10_ODDS) if certain.any() else 0.0
    return result, Bits(format, int(certain.sum()), certain.size, least, reasons)


def round_validated(validation, format, emulate=None):
    """Round the network of a `Validation` to numbers of a format; returns the network and its `Bits`.

    The network stays as it is, and no bit is certain, if it does not explain the outputs. From outputs of double
    precision it is rounded; where some bits are certain and others not, it is polished once on further queries. From
    outputs in float32 bits are searched for if `emulate` is given, see `bits_from_outputs`.
    """
    problem, network = validation.problem, validation.network
    accuracy = problem.held_out.accuracy
    if problem.held_out.noise_std is not None:
        reason = why_not_from_single(validation, format, emulate)
    else:
        reason = "" if validation.explained else "the network does not explain the outputs"
        reason += f" (relative error {validation.error:.1e})" if reason else ""
    if reason:
        return network, Bits(format, 0, network.n_parameters, 0.0, (reason,))
    try:
        if accuracy.kind == "float32" and problem.held_out.noise_std is not None:
            return round_from_single(problem, network, emulate)
        return _round_from_double(validation, format)
    except OutOfBudgetError as error:
        return network, Bits(format, 0, network.n_parameters, 0.0, (f"bits were searched for: {error}",))


def _round_from_double(validation, format):
    problem, network = validation.problem, validation.network
    oracle, held_out = problem.oracle, problem.held_out
    X, Y = oracle.to_inputs(held_out.inputs), oracle.output_center + oracle.output_scale * held_out.outputs
    rounded, bits = round_to_format(network, format, X, Y)
    if bits.certain < bits.total and (bits.certain > 0 or validation.error > _ACCURATE):
        better, more = round_to_format(polished_for_bits(problem, network), format, X, Y)
        rounded, bits = (better, more) if more.certain > bits.certain else (rounded, bits)
    return rounded, bits


def _fit_remaining(rounded, X, Y, digits):
    """The layers, with uncertain parameters on a grid fitted to outputs while all others are fixed, and rounded."""
    log_odds = rounded.log_odds
    remaining = np.flatnonzero((log_odds >= MAX_LOG_ODDS) & np.isfinite(log_odds))
    if not 0 < len(remaining) <= min(_MAX_REMAINING, Y.size // _OUTPUTS_PER_UNKNOWN):
        return rounded.layers
    J = parameter_jacobian(rounded.network, X)[:, remaining]
    residual = (Y - rounded.network(X)).ravel()
    norms = np.linalg.norm(J, axis=0)
    if not np.all(norms > 0.0):
        return rounded.layers
    change, _, rank, _ = lapack.lstsq(J / norms, residual)
    if rank < len(remaining):
        return rounded.layers
    left = residual - J @ (change / norms)
    std = np.sqrt(np.mean(left**2)) + np.finfo(float).eps * np.abs(Y).max()
    error = _OVER_INDEPENDENT * std * np.sqrt(np.diagonal(lapack.inv((J / norms).T @ (J / norms)))) / norms
    flat = np.concatenate([layer.values.ravel() for layer in rounded.layers])
    fitted = flat[remaining] + change / norms
    step = np.maximum(spacing(fitted, digits), np.finfo(float).tiny)
    share_off = PROBABLY_OFF / (1.0 + np.sum(log_odds < MAX_LOG_ODDS))
    by_chance = np.log(2.0 * WITHIN * error / step * share_off)
    odds = np.maximum(log_odds_of_neighbors(fitted, error, digits), by_chance)
    odds = np.where((step > INFORMATIVE * error) & (distances(fitted, digits) > FAR_OFF * step), np.inf, odds)
    flat[remaining] = np.where(odds < MAX_LOG_ODDS, nearest(fitted, digits), fitted)
    log_odds[remaining] = odds
    shapes = [layer.values.shape for layer in rounded.layers]
    ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    parts = zip(np.split(flat, ends), np.split(log_odds, ends), shapes, rounded.layers)
    return [Layer(v.reshape(shape), o.reshape(shape), layer.reasons) for v, o, shape, layer in parts]
