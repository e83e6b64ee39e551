"""Two hidden ReLU layers with several outputs: the first from lines, the second from lines in the positive orthant."""

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.polish import polish_network
from skident.linalg import lapack
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from ...constants import RCOND, READOUT_RADII
from .first_layer import find_first_layer, has_more_layers, points_off_boundaries, second_layer_units_on, signed_layer
from .jacobian_polish import polished_on_jacobians
from .orthant import LEAST_VALUE, SecondLayer
from .roomy_points import active_units, points_with_active
from .shared_jacobians import MIN_OUTPUTS, STAGE, Space
from .wide_layers import WideLayers

__all__ = ["MIN_OUTPUTS", "find_network"]

_MAX_ATTEMPTS = 3  # from new lines: a unit of the first layer may hide beside others on both of the first lines
_MAX_ROUNDS = 4  # of further lines if units of the second layer are missing: a new attempt costs the first layer again
_LEAST_LINES = 4  # of a first layer that is wider than the input: fewer do not show all of its units
_CHECKS = 60  # further outputs per radius that the network must explain
_MORE_CHECKS = 300  # `_CHECKS` before a network whose first layer is wider than the input is accepted: a rare unit
_LINES_PER_FIT = 3  # after a fit that does not explain outputs
_CHECKED_NEAR = 0.1  # distance of points to be checked from critical points of no unit, over that from the center
_CHECKED_RADII = (0.5, 1.0, 2.0, 3.0, 10.0)  # standard deviations of these
_MAX_POLISHED = 10_000  # parameters up to which all of them are fitted to outputs (budget: 1 s)
_POLISH_OUTPUTS = 1.75  # outputs per parameter of that fit
_POLISH_STEPS = 3  # of it: from errors of 1e-9, these reach rounding (budget: 4 s each)
_ACTIVE_PER_WEIGHT = 1.5  # of its points, at which a unit of the second layer is active, per incoming weight
_CANDIDATES = 20_000  # points among which those are chosen if the first layer is wider than the input
_CANDIDATE_RADII = (0.5, 1.0, 3.0, 10.0, 30.0)  # standard deviations of these
# `_MAX_POLISHED` if the first layer is wider than the input: there is no fit to Jacobians (budget: 30 s).
_MAX_POLISHED_WIDE = 30_000
_DENSE = 3000  # parameters up to which its normal equations are solved directly: conjugate gradients converge faster
_MAX_ERROR = 1e-5  # of these, relative: larger ones are those of missing units
_MAX_FITS = 3  # from such errors (budget)
_FITTED_WELL = 1e-8  # of these after a fit to Jacobians: larger ones are those of rare units
_FITTED_WELL_LARGE = 3e-8  # `_FITTED_WELL` of networks with many parameters, whose fits are less accurate
_MANY = 300_000  # parameters from which a fit to Jacobians takes 20 s
_MAX_FITS_LARGE = 2  # of these (budget)
_MISSED = 12  # points that are not explained, at which Jacobians are measured (budget)
_MISSED_SHARE = 0.1  # of these points, up to which a missing unit is the cause
_EXACT_ERROR = 1e-9  # of these, above which another fit follows
_FITTED_ERROR = 1e-3  # of these, up to which a fit may remove them
_SAMPLES_PER_UNIT = 8  # of the second layer, to which the output layer is fitted: a unit may rest at most of them
_READOUT_SAMPLES = 40  # beside these


def find_network(
    query, n_inputs, output_error, rng, callback=None, reach=np.inf, *, max_polished=_MAX_POLISHED, least_units=0
):
    """The `FeedforwardNetwork` with two hidden ReLU layers that has the outputs of `query`, (n, D) to (n, m_L).

    Inputs are standardized, widths unknown, and the first layer is not wider than the input. `output_error` (m_L,) is
    the error of the outputs near the center, `reach` the distance beyond which they may be lost; the first layer has
    `least_units` or more. The network is fitted to Jacobians, and one of up to `max_polished` parameters to outputs
    then, to rounding. A first layer that is wider than the input is recovered from the directions of jumps. Raises
    `NotIdentified` if there is another number of layers; the network must be validated on further samples.
    """
    space = Space(query, n_inputs, output_error, np.sqrt(n_inputs), reach, least_units)
    lines = []
    try:
        network, jacobians = _from_new_lines(space, rng, callback, lines)
    except NotIdentified as error:
        if error.reason != "wide":
            raise
    else:
        found = _polished(space, network, jacobians, rng, max_polished)
        return found if len(_unexplained(space, found, rng)) == 0 else network  # Jacobians show missing units
    return _wide(space, lines, rng, callback, max(max_polished, _MAX_POLISHED_WIDE))


def _from_new_lines(space, rng, callback, lines):
    """The network and Jacobians from several attempts, each with new `lines`: then those of the last attempt."""
    for attempt in range(_MAX_ATTEMPTS):
        lines.clear()
        try:
            return _attempt(space, rng, callback, lines)
        except NotIdentified as error:
            if error.reason in ("shallow", "wide", "deep") or attempt == _MAX_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _wide(space, lines, rng, callback, max_polished):
    """The network whose first layer is wider than the input, from `lines` and further ones, then fitted.

    A fit removes errors of weights that few critical points determine: they cost fewer queries than more lines.
    """
    layers, missed, failure, n_fitted = WideLayers(space, lines, rng), [], None, 0
    while layers.extend(missed[0] if len(missed) else None):
        missed = []
        if layers.n_done < max(_LEAST_LINES, n_fitted):
            continue
        try:
            network = _with_readout(space.query, *layers.solved(), rng)
        except NotIdentified as error:
            failure = error
            continue
        if callback is not None:
            callback(sum(network.layer_widths[:-1]))
        missed = _unexplained(space, network, rng, tol=_FITTED_ERROR)
        if len(missed) == 0:
            network, missed = _fitted_again(space, network, layers.jacobians, rng, max_polished)
            n_fitted = layers.n_done + _LINES_PER_FIT
            if len(missed) == 0:
                missed = _unexplained(space, network, rng, _MORE_CHECKS, near=layers.open_points)
            if len(missed) == 0:
                return network
        failure = NotIdentified(
            STAGE, "unexplained", f"a network {network.layer_widths} does not explain further outputs."
        )
    raise failure


def _attempt(space, rng, callback, lines):
    """The network from new lines, and their Jacobians; `NotIdentified` if it does not explain further outputs."""
    first = find_first_layer(space, rng, lines)
    if has_more_layers(first, lines):
        raise NotIdentified(
            STAGE, "deep", "most jumps behind the first layer differ on all lines: three layers or more."
        )
    W, b = signed_layer(first, lines)
    if callback is not None:
        callback(len(b))
    seen = second_layer_units_on(first, lines, W, b)
    second, network, failure = SecondLayer(space, W, b, seen, rng), None, None
    for _ in range(_MAX_ROUNDS):
        second.extend()
        try:
            further = _with_readout(space.query, W, b, second.solved(), rng)
        except NotIdentified as error:
            failure = error
            continue
        if callback is not None:
            callback(sum(further.layer_widths[:-1]))
        missed, strays = _unexplained(space, further, rng), points_off_boundaries(first, lines, further)
        if len(missed) == 0:
            settled, network = len(strays) == 0 or network is not None, further
            if settled:
                break
        second.aim_at(missed)
        second.aim_through(strays)
        failure = NotIdentified(
            STAGE, "unexplained", f"a network {further.layer_widths} does not explain further outputs."
        )
    if network is None:
        raise failure
    return network, [J for line in lines for J in line.jacobians] + second.input_jacobians()


def _polished(space, network, jacobians, rng, max_polished):
    """The network after a fit to Jacobians, and of all parameters to outputs if they are not too many."""
    try:
        tol = _FITTED_WELL if network.n_parameters <= _MANY else _FITTED_WELL_LARGE
        network, _ = _fitted_to_jacobians(space, network, jacobians, rng, tol)
    except OutOfBudgetError:
        return network
    return _fitted_to_outputs(space, network, rng, max_polished)


def _fitted_to_jacobians(space, network, jacobians, rng, tol):
    """The network after fits to Jacobians, and whether further outputs are explained up to `tol`.

    Points at which they are not show weights that no Jacobian has determined: theirs are measured next.
    """
    missed = np.empty((0, network.n_inputs))
    for _ in range(_MAX_FITS if network.n_parameters <= _MANY else _MAX_FITS_LARGE):
        network = polished_on_jacobians(space, network, rng, jacobians, missed)
        new = _unexplained(space, network, rng, tol=tol)
        if len(new) == 0:
            return network, True
        missed = np.concatenate([missed, new[:_MISSED]])
    return network, False


def _fitted_to_outputs(space, network, rng, max_polished):
    """The network after a fit of all parameters to outputs, if they are not too many."""
    P = network.n_parameters
    if P > max_polished:
        return network
    n = int(_POLISH_OUTPUTS * P / network.n_outputs) + space.n_coordinates
    X = design_points(network.weights[0], network.biases[0], n, 1.0, rng, 0.5)
    X = space.within_reach(np.concatenate([X, _points_for_rare_units(network, X, rng)]))
    try:
        options = {"max_iter": _POLISH_STEPS, "dense_limit": _DENSE, "factor_limit": _DENSE}
        return polish_network(network, X, space.query(X), **options)[0]
    except OutOfBudgetError:
        return network


def _fitted_again(space, network, jacobians, rng, max_polished):
    """The network after fits until further outputs are explained, and points (n, D) that show a missing unit.

    Some weights have errors of 1e-4 before. Where most outputs are explained after fits to Jacobians, and few are not,
    weights are not the cause.
    """
    network, exact = _fitted_to_jacobians(space, network, jacobians, rng, _EXACT_ERROR)
    if network.n_parameters <= _MAX_POLISHED:
        return _fitted_to_outputs(space, network, rng, max_polished), ()
    if exact or len(_unexplained(space, network, rng)):  # or a unit is missing
        return network, ()
    missed = _unexplained(space, network, rng, tol=_EXACT_ERROR)
    if len(missed) <= _MISSED_SHARE * _CHECKS * len(_CHECKED_RADII):
        return network, missed
    for _ in range(_MAX_FITS):
        network = _fitted_to_outputs(space, network, rng, max_polished)
        if network.n_parameters > max_polished or len(_unexplained(space, network, rng, tol=_EXACT_ERROR)) == 0:
            break
    return network, ()


def _points_for_rare_units(network, X, rng):
    """Points (n, D) at which those units of the second layer are active that are so at too few points X."""
    W, (b, c, _) = network.weights[0], network.biases
    least = int(_ACTIVE_PER_WEIGHT * (len(b) + 1))
    missing = np.maximum(least - active_units(network, X).sum(axis=0), 0)
    if len(W) < len(b):  # the outputs of the first layer are not free: the points are chosen among random ones
        more = np.array(_CANDIDATE_RADII)[np.arange(_CANDIDATES) % len(_CANDIDATE_RADII), None]
        more = more * rng.standard_normal((_CANDIDATES, len(W)))
        active = active_units(network, more)
        return np.concatenate([more[active[:, j]][:n] for j, n in enumerate(missing)])
    which = np.repeat(np.arange(len(c)), missing)
    return points_with_active(network, which, rng)


def _unexplained(space, network, rng, n_checks=_CHECKS, tol=_MAX_ERROR, near=()):
    """Further points (n, D) whose outputs a network does not explain, up to what its polish removes.

    Some lie `near` given points (k, D) besides.
    """
    X = np.array(_CHECKED_RADII)[:, None, None] * rng.standard_normal((len(_CHECKED_RADII), n_checks, network.n_inputs))
    X = X.reshape(-1, network.n_inputs)
    if len(near):
        base = near[np.arange(_CHECKS) % len(near)]
        far = np.linalg.norm(base, axis=1, keepdims=True) / np.sqrt(base.shape[1])
        X = np.concatenate([X, base + _CHECKED_NEAR * far * rng.standard_normal(base.shape)])
    X = space.within_reach(X)
    Y = space.query(X)
    errors, spread = np.abs(network(X) - Y).max(axis=1), np.abs(Y - Y.mean(axis=0)).max(axis=1)
    return X[errors > tol * np.maximum(spread, np.median(spread))]


def _with_readout(query, W, b, second, rng):
    """The network, with its output layer fitted by least squares."""
    V, c, outgoing = second
    n = _SAMPLES_PER_UNIT * len(c) + _READOUT_SAMPLES
    X = np.array(READOUT_RADII)[np.arange(n) % len(READOUT_RADII), None] * rng.standard_normal((n, len(W)))
    H = np.maximum(np.maximum(X @ W + b, 0.0) @ V + c, 0.0)
    A = np.column_stack([H, np.ones(n)])
    scale = np.maximum(np.linalg.norm(A, axis=0), LEAST_VALUE * np.linalg.norm(A))
    solution = lapack.lstsq(A / scale, query(X) - H @ outgoing, rcond=RCOND)[0] / scale[:, None]
    return FeedforwardNetwork([W, V, outgoing + solution[:-1]], [b, c, solution[-1]], "relu")
