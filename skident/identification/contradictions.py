"""Validation beyond held-out samples: far outputs, plateaus and the clip that explains them, undetermined weights."""

from __future__ import annotations

import numpy as np

from skident.fitting.standard_errors import jacobian_spectrum
from skident.linalg.sign_vectors import UndecidedSignsError, flippable_units
from skident.oracle import BlackBoxError, OutOfBudgetError

from .attempt import design_where_units_vary

__all__ = ["contradiction", "undetermined_signs", "undetermined_weights", "with_clip"]

_NEXT = 3.0  # standard deviations at which a network must still meet the tolerance
_NEXT_ROWS = 100  # rows there (budget)
_NEXT_ROWS_PIECEWISE = 3000  # the same of ReLU networks from inexact outputs: a unit may be active at one in a thousand
_TIMES_TOL = 3.0  # the tolerance there: errors of the weights count for three times as much
_CANDIDATES = 10_000  # rows there on which only the network is evaluated
_CANDIDATES_AT_ONCE = 1000  # of them, for memory: 6 MB with 784 inputs
_EXTREMES = 3  # queried rows per extreme (budget)
_MOST_INPUTS = 50  # of which the extreme rows are queried
_FAR = (10.0, 1e3)  # standard deviations at which other outputs are those of another function
_FAR_ROWS = 20  # rows at each (budget)
_FAR_ERROR = 1e-4  # relative error there: errors of the weights of 1e-8 and their growth with the distance stay below
_PLATEAU_ERROR = 1e-6  # relative error on a plateau, where units are at rest: those of the weights hardly count
_NOISE_STDS = 20.0  # largest error on noisy outputs that noise explains, in standard deviations
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
        except UndecidedSignsError as undecided:
            said.append(f"the signs of the units of hidden layer {layer}: {undecided}".rstrip("."))
            continue
        if n_flips:
            said.append(
                f"the signs of {n_flips} units of hidden layer {layer}: the products of their incoming and outgoing "
                "weights add up to zero, so these units flipped give the same function"
            )
    return "; ".join(said)


def with_clip(problem, network):
    """The network with the clip of the outputs, at the bounds where it does not explain the plateaus by itself."""
    if problem.oracle.output_bounds is None:
        return network
    low, high = (np.array(bound) for bound in problem.oracle.output_bounds)
    for plateau in problem.oracle.extremes.plateaus():
        bound = high if plateau.side > 0 else low
        if bound[plateau.output] == plateau.value and not _misses(problem, network, plateau):
            bound[plateau.output] = plateau.side * np.inf
    return network if np.all(np.isinf(low) & np.isinf(high)) else network.with_clip(low, high)


def contradiction(problem, network):
    """What contradicts a network that agrees on held-out samples, and whether the budget sufficed for all checks.

    Empty if nothing does. The network has the model's own inputs and outputs, with its clip.
    """
    oracle = problem.oracle
    if oracle.response == "predict_proba":  # logits are lost far out; samples of X are compared as probabilities
        return "", True
    for plateau in oracle.extremes.plateaus():
        if _misses(problem, network, plateau):
            which = "largest" if plateau.side > 0 else "smallest"
            return (
                f"output {plateau.output} repeats its {which} value {plateau.value:.6g} exactly at "
                f"{len(plateau.inputs)} or more distinct inputs where the network gives other values: the outputs are "
                "probably clipped. Query the model before its clip, or set input_range to where no output is clipped"
            ), True
    try:
        return _elsewhere(problem, network), True
    except OutOfBudgetError:
        return "", False
    except BlackBoxError:  # the model cannot be queried there: nothing is claimed of it
        return "", True


def _elsewhere(problem, network):
    """What contradicts the network farther from the center than the held-out samples."""
    oracle, rng = problem.oracle, np.random.RandomState(0)
    noise = _NOISE_STDS * problem.held_out.relative_noise
    near = max(_TIMES_TOL * problem.options.tol, noise)
    many = noise > 0 and network.activations[0].symmetry == "homogeneous"
    shells = [(_NEXT, _NEXT_ROWS_PIECEWISE if many else _NEXT_ROWS, near)]
    shells += [(far, _FAR_ROWS, max(_FAR_ERROR, noise)) for far in _FAR if oracle.reach > far]
    sets = [(spread, spread * rng.standard_normal((n, oracle.n_inputs)), tol) for spread, n, tol in shells]
    sets.append((_NEXT, _extreme_points(problem, network), near))
    if network.output_range is not None and len(border := _beside_borders(problem, network)):
        sets.append((_BORDER_REACH, border, near))
    for spread, U, tol in sets:
        U = oracle.clip_to_range(U)
        error = _errors(problem, network, oracle.to_inputs(U), oracle.output_center + oracle.output_scale * oracle(U))
        if error.max() > tol:
            return (
                f"up to {spread:g} standard deviations away its outputs differ by {error.max():.1e} of the outputs' "
                "largest deviation: its outputs or inputs are clipped there, or it is another kind of network"
            )
    return ""


def _extreme_points(problem, network):
    """Standardized points (n, D) at which an output of the network or an input is extreme: clips start there."""
    oracle, rng = problem.oracle, np.random.RandomState(1)
    some = np.linspace(0, oracle.n_inputs - 1, min(oracle.n_inputs, _MOST_INPUTS)).astype(int)
    U = np.empty((0, oracle.n_inputs))
    for _ in range(_CANDIDATES // _CANDIDATES_AT_ONCE):
        U = np.concatenate([U, _NEXT * rng.standard_normal((_CANDIDATES_AT_ONCE, oracle.n_inputs))])
        Y = network.without_clip()(oracle.to_inputs(U))
        ends = (slice(_EXTREMES), slice(-_EXTREMES, None))
        which = [order[part] for order in np.argsort(Y, axis=0).T for part in ends]
        which += [U[:, some].argmin(axis=0), U[:, some].argmax(axis=0)]
        U = U[np.unique(np.concatenate(which))]
    return U


def _errors(problem, network, X, Y):
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
    tol = max(_PLATEAU_ERROR, _NOISE_STDS * problem.held_out.relative_noise)
    return bool(_errors(problem, network, plateau.inputs, Y).max() > tol)


def _beside_borders(problem, network):
    """Standardized points (n, D) closely before and behind the borders of the plateaus, as the network places them."""
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
    return np.concatenate(rows) if rows else np.empty((0, oracle.n_inputs))


def _beyond(network, X, plateau):
    return plateau.side * (network(X)[:, plateau.output] - plateau.value) >= 0.0
