"""Validation beyond held-out samples: far outputs, plateaus and the clip that explains them, undetermined weights."""

import numpy as np

from skident.budget import check_deadline
from skident.fitting.standard_errors import jacobian_spectrum
from skident.linalg.sign_vectors import UndecidedSignsError, flippable_units
from skident.oracle import BlackBoxError, OutOfBudgetError

from .attempt import design_where_units_vary
from .constants import AT_ONCE
from .problem import NOISE_STDS
from .query_points import evenly_spaced_rows, unit_rows
from .reductions.outputs import has_skip

_NEXT = 3.0  # standard deviations at which a network must still meet the tolerance
_NEXT_ROWS = 100  # rows there (budget)
_NEXT_ROWS_PIECEWISE = 3000  # `_NEXT_ROWS` of ReLU networks from inexact outputs: units may be active at one in 1,000
TIMES_TOL = 3.0  # the tolerance there: errors of the weights count for three times as much
_CANDIDATES = 10_000  # rows there on which only the network is evaluated
_EXTREMES = 3  # queried rows per extreme (budget)
_MOST_INPUTS = 50  # of which the extreme rows are queried
_MOST_OUTPUTS = 10  # `_MOST_INPUTS` behind the data (budget)
_CLIMBS = 30  # steps of an ascent to an extreme output of the network; no queries (budget)
_FAR = (10.0, 1e3)  # standard deviations at which other outputs are those of another function
_FAR_ROWS = 14  # rows at each, beside the extreme ones (budget)
_FAR_ERROR = 1e-4  # relative error there: errors of the weights of 1e-8 and their growth with the distance stay below
_PLATEAU_ERROR = 1e-6  # relative error on a plateau, where units are at rest: those of the weights hardly count
ROUNDING_STDS = 20.0  # largest error that the rounding of inputs explains, in units of its bound
_BORDERS = 40  # bisections of a way to a plateau: to 1e-12 of its length
_BESIDE = (-1e-3, 1e-3)  # standard deviations before and behind the border of a plateau at which a clip is validated
_BORDER_REACH = 10.0  # standard deviations up to which these borders are validated to the tolerance
_EXACT_ERROR = 1e-12  # relative error that is rounding, below which weights are as determined as they can be
_MAX_PARAMETERS = 1500  # parameters up to which the Jacobian's spectrum is computed (budget: O(P^3))
_MAX_PARAMETER_ERROR = 1e-3  # relative error of a parameter that counts as determined
_SIGN_ERRORS = 100.0  # relative errors of the outputs that a sum of weights which is zero may have
_LEAST_SIGN_ERROR = 1e-12  # of such a sum relative to its largest term: rounding of products of polished weights
_SATURATING = ("tanh", "sigmoid", "erf")  # activations whose parameters are determined up to order and signs


def undetermined_weights(network, error):
    """Why weights may be wrong although outputs agree to `tol`; empty if they are determined to a thousandth.

    A combination of parameters whose singular value is s, relative to the largest, may be off by ``error / s``.
    """
    if error < _EXACT_ERROR or network.activation not in _SATURATING or network.n_parameters > _MAX_PARAMETERS:
        return ""
    least = jacobian_spectrum(network, design_where_units_vary(network))[-1]
    off = error / max(least, np.finfo(float).eps)
    if off <= _MAX_PARAMETER_ERROR:
        return ""
    return (
        "its weights are undetermined: the outputs hardly depend on some combinations of them (singular values of "
        f"their Jacobian down to {least:.0e} of the largest), which may be off by {off:.0e}; samples X with a wider "
        "spread may determine them"
    )


def undetermined_signs(network, error):
    """Which units of ReLU layers can be flipped without a change of the outputs; empty if none can.

    If the terms ``w_i v_i^T`` of some units of a layer add up to zero, flipping all of them gives the same function.
    """
    said, tol = [], max(_LEAST_SIGN_ERROR, _SIGN_ERRORS * error)
    for layer, (W, V) in enumerate(zip(network.weights[:-1], network.weights[1:], strict=True), 1):
        if network.activations[layer - 1].symmetry != "homogeneous":
            continue
        try:
            n_flips = int(np.sum(flippable_units(W, V, tol)))
        except (UndecidedSignsError, OutOfBudgetError) as undecided:
            said.append(f"the signs of the units of hidden layer {layer}: {undecided}".rstrip("."))
            continue
        if n_flips:
            said.append(
                f"the signs of {n_flips} units of hidden layer {layer}: the products of their incoming and outgoing "
                "weights add up to zero, so these units flipped give the same function"
            )
    return "; ".join(said)


def _with_clip(problem, network):
    """The network with the clip of the outputs, at bounds that the plateaus prove and the network does not explain.

    A bound of the reading is dropped if the network explains the plateau by itself. An extreme output that the network
    misses is a bound if the network clipped there explains it: an output whose clip the fit did not meet.
    """
    bounds, network = network.output_range or problem.oracle.output_bounds, network.without_clip()
    if has_skip(problem.oracle) or network.activations[-1].symmetry != "linear":
        return network
    bounds = bounds or np.multiply.outer([-np.inf, np.inf], np.ones(network.n_outputs))
    low, high = (np.array(bound) for bound in bounds)
    for plateau in problem.oracle.extremes.plateaus():
        bound = high if plateau.side > 0 else low
        misses = _misses(problem, network, plateau)
        if bound[plateau.output] == plateau.value and not misses:
            bound[plateau.output] = plateau.side * np.inf
        elif np.isinf(bound[plateau.output]) and misses:
            bound[plateau.output] = plateau.value
            if np.any(low >= high) or _misses(problem, network.with_clip(low, high), plateau):
                bound[plateau.output] = plateau.side * np.inf
    return network if np.all(np.isinf(low) & np.isinf(high)) else network.with_clip(low, high)


def contradiction(problem, network):
    """A network with its clip, what contradicts it beyond the held-out samples, and whether the budget sufficed.

    Empty if nothing does. The network has the model's own inputs and outputs, and agrees on the held-out samples.
    """
    oracle = problem.oracle
    if oracle.response == "predict_proba":  # logits are lost far out; samples of X are compared as probabilities
        return network, "", True
    network = _with_clip(problem, network)
    if text := _missed_plateau(problem, network):
        return network, text, True
    try:
        sets = _elsewhere(problem, network.without_clip())
        network = _with_clip(problem, network)  # these queries may have been the first to meet a clip
        text = _missed_plateau(problem, network) or _differs(problem, network, sets)
        if not text and network.output_range is not None:
            text = _differs(problem, network, [_queried(problem, *_beside_borders(problem, network))])
        return network, text, True
    except OutOfBudgetError:
        return network, "", False
    except BlackBoxError:  # the model cannot be queried there: nothing is claimed of it
        return network, "", True


def _missed_plateau(problem, network):
    """What an extreme output that the network does not repeat says of it; empty if there is none."""
    for plateau in problem.oracle.extremes.plateaus():
        if _misses(problem, network, plateau):
            which = "largest" if plateau.side > 0 else "smallest"
            return (
                f"output {plateau.output} repeats its {which} value {plateau.value:.6g} exactly at "
                f"{len(plateau.inputs)} or more distinct inputs where the network gives other values: the outputs are "
                "probably clipped. Query the model before its clip, or set input_range to where no output is clipped"
            )
    return ""


def _elsewhere(problem, network):
    """Queried points farther from the center than the held-out samples: spread, inputs, outputs and tolerance."""
    oracle, rng = problem.oracle, np.random.RandomState(0)
    noise = NOISE_STDS * problem.held_out.relative_noise
    near, far_tol = _near_tol(problem), max(_FAR_ERROR, noise)
    many = noise > 0 and network.activations[0].symmetry == "homogeneous"
    shells = [(_NEXT, _NEXT_ROWS_PIECEWISE if many else _NEXT_ROWS, near)]
    shells += [(far, _FAR_ROWS, far_tol) for far in _FAR if oracle.reach > far]
    sets = [(spread, spread * rng.standard_normal((n, oracle.n_inputs)), tol) for spread, n, tol in shells]
    extremes, outermost = _extreme_points(problem, network)
    sets.append((_NEXT, extremes, near))
    sets += [(far, far / _NEXT * outermost, far_tol) for far in _FAR if oracle.reach > far]
    return [_queried(problem, *one) for one in sets]


def _near_tol(problem):
    """Largest relative error up to some standard deviations away."""
    return max(TIMES_TOL * problem.options.tol, NOISE_STDS * problem.held_out.relative_noise)


def _queried(problem, spread, U, tol):
    oracle = problem.oracle
    U = oracle.clip_to_range(U)
    return spread, oracle.to_inputs(U), oracle.output_center + oracle.output_scale * oracle(U), tol


def _differs(problem, network, sets):
    """What contradicts the network on queried points; empty if nothing does."""
    for spread, X, Y, tol in sets:
        error = errors_over_deviation(problem, network, X, Y) if len(X) else np.zeros(1)
        if error.max() > tol:
            return (
                f"up to {spread:g} standard deviations away its outputs differ by {error.max():.1e} of the outputs' "
                "largest deviation: its outputs or inputs are clipped there, or it is another kind of network"
            )
    return ""


def _extreme_points(problem, network):
    """Standardized points at which an output of the network or an input is extreme, and of outputs alone; (n, D) each.

    Clips start there. The extremes of random samples are moved uphill, within their distance from the center.
    """
    oracle, rng = problem.oracle, np.random.RandomState(1)
    some = np.linspace(0, oracle.n_inputs - 1, min(oracle.n_inputs, _MOST_INPUTS)).astype(int)
    U = np.empty((0, oracle.n_inputs))
    for _ in range(_CANDIDATES // AT_ONCE):
        check_deadline()
        U = np.concatenate([U, _NEXT * rng.standard_normal((AT_ONCE, oracle.n_inputs))])
        order = np.argsort(network(oracle.to_inputs(U)), axis=0)
        low, high = U[order[:_EXTREMES].T], U[order[-_EXTREMES:].T]
        of_inputs = U[np.unique([U[:, some].argmin(axis=0), U[:, some].argmax(axis=0)])]
        U = np.concatenate([*low, *high, of_inputs])
    for k in (climbed := evenly_spaced_rows(np.arange(network.n_outputs), _MOST_OUTPUTS)):
        low[k], high[k] = (_climb(problem, network, part[k], k, side) for part, side in ((low, -1.0), (high, 1.0)))
    return np.concatenate([*low, *high, of_inputs]), np.concatenate([*low[climbed], *high[climbed]])


def _climb(problem, network, U, output, side):
    """Points U (n, D) moved to larger outputs, smaller ones if `side` is -1, within their distance from the center."""
    oracle = problem.oracle
    radius = np.linalg.norm(U, axis=1, keepdims=True)
    step, best = 0.5 * radius, np.full(len(U), -np.inf)
    V = U
    for _ in range(_CLIMBS):
        check_deadline()
        V = oracle.clip_to_range(
            V * np.minimum(1.0, radius / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), np.finfo(float).tiny))
        )
        values = side * network(oracle.to_inputs(V))[:, output]
        better = values > best
        U, best = np.where(better[:, None], V, U), np.where(better, values, best)
        step = np.where(better[:, None], step, 0.5 * step)
        slope = side * oracle.scale * network.jacobian(oracle.to_inputs(U))[:, output]
        V = U + step * unit_rows(slope)
    return U


def errors_over_deviation(problem, network, X, Y):
    """Largest error per row, relative to the deviations of the held-out outputs and of these."""
    oracle = problem.oracle
    known = oracle.output_center + oracle.output_scale * problem.held_out.outputs
    unit = np.maximum(np.abs(known - known.mean(axis=0)).max(axis=0), np.abs(Y - known.mean(axis=0)).max(axis=0))
    # As in `relative_to_deviation`: below a millionth of the largest output, a deviation is taken as rounding.
    unit = np.maximum(unit, 1e-6 * np.maximum(np.abs(known).max(axis=0), np.abs(Y).max(axis=0)))
    return np.max(np.abs(network(X) - Y) / np.maximum(unit, np.finfo(float).tiny), axis=1)


def _misses(problem, network, plateau):
    """Whether the network gives other values on a plateau."""
    Y = network(plateau.inputs)
    Y[:, plateau.output] = plateau.value
    tol = max(_PLATEAU_ERROR, NOISE_STDS * problem.held_out.relative_noise)
    return bool(errors_over_deviation(problem, network, plateau.inputs, Y).max() > tol)


def _beside_borders(problem, network):
    """Spread, standardized points (n, D) closely before and behind the plateaus' borders of the network, tolerance."""
    oracle, plain, rows = problem.oracle, network.without_clip(), []
    for plateau in oracle.extremes.plateaus():
        bound = network.output_range[(plateau.side + 1) // 2][plateau.output]
        U = oracle.from_inputs(plateau.inputs)
        inner, outer = np.zeros(len(U)), np.ones(len(U))
        if bound != plateau.value or _beyond(plain, oracle.center[None], plateau)[0]:
            continue
        for _ in range(_BORDERS):
            middle = 0.5 * (inner + outer)
            beyond = _beyond(plain, oracle.to_inputs(middle[:, None] * U), plateau)
            inner, outer = np.where(beyond, inner, middle), np.where(beyond, middle, outer)
        lengths = np.linalg.norm(U, axis=1)
        near = outer * lengths < _BORDER_REACH * np.sqrt(oracle.n_inputs)
        for step in _BESIDE:
            rows.append(((outer + step / lengths)[:, None] * U)[near])
    return _BORDER_REACH, np.concatenate(rows) if rows else np.empty((0, oracle.n_inputs)), _near_tol(problem)


def _beyond(network, X, plateau):
    return plateau.side * (network(X)[:, plateau.output] - plateau.value) >= 0.0
