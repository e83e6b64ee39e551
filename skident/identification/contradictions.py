"""Validation beyond the held-out rows: outputs far from the data, plateaus, and a clip that is attached."""

from __future__ import annotations

import numpy as np

from skident.oracle import BlackBoxError, OutOfBudgetError

__all__ = ["contradiction", "with_clip_attached"]

_NEXT = 3.0  # standard deviations at which a network must still meet the tolerance
_NEXT_ROWS = 100  # rows there (budget)
_TIMES_TOL = 3.0  # the tolerance there: errors of the weights count for three times as much
_CANDIDATES = 10_000  # rows there on which only the network is evaluated
_EXTREMES = 3  # queried rows per extreme (budget)
_MOST_INPUTS = 50  # of which the extreme rows are queried
_FAR = (10.0, 1e3)  # standard deviations at which other outputs are those of another function
_FAR_ROWS = 20  # rows at each (budget)
_FAR_ERROR = 1e-4  # relative error there: errors of the weights of 1e-8 and their growth with the distance stay below
_PLATEAU_ERROR = 1e-6  # relative error on a plateau, where units are at rest: those of the weights hardly count
_NOISE_LEFT = 20.0  # largest error on noisy answers, in standard deviations of their noise, that noise explains
_BORDERS = 40  # bisections of a way to a plateau: to 1e-12 of its length
_BESIDE = (-1e-3, 1e-3)  # standard deviations before and behind the border of a plateau at which a clip is validated
_BORDER_REACH = 10.0  # standard deviations up to which these borders are validated to the tolerance


def with_clip_attached(inquiry, network):
    """The network with the clip of the outputs, on the sides where it does not explain the plateaus by itself.

    Parameters
    ----------
    inquiry : Inquiry
    network : FeedforwardNetwork
        Of the black box's own inputs and outputs, before the clip.

    Returns
    -------
    FeedforwardNetwork
    """
    if inquiry.oracle.output_bounds is None:
        return network
    low, high = (np.array(bound) for bound in inquiry.oracle.output_bounds)
    for plateau in inquiry.oracle.extremes.plateaus():
        bound = high if plateau.side > 0 else low
        if bound[plateau.output] == plateau.value and not _misses(inquiry, network, plateau):
            bound[plateau.output] = plateau.side * np.inf
    return network if np.all(np.isinf(low) & np.isinf(high)) else network.with_clip(low, high)


def contradiction(inquiry, network):
    """What else the black box answered, or answers far from the data, that contradicts the network.

    Parameters
    ----------
    inquiry : Inquiry
    network : FeedforwardNetwork
        Of the black box's own inputs and outputs, with its clip, that meets the held-out rows.

    Returns
    -------
    text : str
        Empty if nothing does.
    complete : bool
        Whether time and queries sufficed for all of it.
    """
    oracle = inquiry.oracle
    if oracle.response == "predict_proba":  # logits are lost far out; rows of X are compared as probabilities
        return "", True
    for plateau in oracle.extremes.plateaus():
        if _misses(inquiry, network, plateau):
            which = "largest" if plateau.side > 0 else "smallest"
            return (
                f"output {plateau.output} repeats its {which} value {plateau.value:.6g} exactly at "
                f"{len(plateau.inputs)} or more distinct inputs where the network gives other values: the outputs are "
                "probably clipped. Query the model before its clip, or set input_range to where no output is clipped"
            ), True
    try:
        return _elsewhere(inquiry, network), True
    except OutOfBudgetError:
        return "", False
    except BlackBoxError:  # not to be queried there: nothing is claimed of it
        return "", True


def _elsewhere(inquiry, network):
    """What contradicts the network farther from the center than the held-out rows."""
    oracle, rng = inquiry.oracle, np.random.RandomState(0)
    noise = _NOISE_LEFT * inquiry.fresh.noise
    near = max(_TIMES_TOL * inquiry.limits.tol, noise)
    shells = [(_NEXT, _NEXT_ROWS, near)]
    shells += [(far, _FAR_ROWS, max(_FAR_ERROR, noise)) for far in _FAR if oracle.reach > far]
    sets = [(spread, spread * rng.standard_normal((n, oracle.n_inputs)), tol) for spread, n, tol in shells]
    sets.append((_NEXT, _extreme_rows(inquiry, network), near))
    if network.output_range is not None and len(border := _beside_borders(inquiry, network)):
        sets.append((_BORDER_REACH, border, near))
    for spread, U, tol in sets:
        U = oracle.clip_to_range(U)
        error = _errors(inquiry, network, oracle.to_inputs(U), oracle.output_center + oracle.output_scale * oracle(U))
        if error.max() > tol:
            return (
                f"up to {spread:g} standard deviations away it answers otherwise, by {error.max():.1e} of the outputs' "
                "largest deviation: its outputs or inputs are clipped there, or it is another kind of network"
            )
    return ""


def _extreme_rows(inquiry, network):
    """Of many standardized rows, those at which an output of the network or an input is extreme: clips start there."""
    oracle, rng = inquiry.oracle, np.random.RandomState(1)
    U = _NEXT * rng.standard_normal((_CANDIDATES, oracle.n_inputs))
    Y = network.without_clip()(oracle.to_inputs(U))
    which = [order[part] for order in np.argsort(Y, axis=0).T for part in (slice(_EXTREMES), slice(-_EXTREMES, None))]
    some = np.linspace(0, oracle.n_inputs - 1, min(oracle.n_inputs, _MOST_INPUTS)).astype(int)
    which += [U[:, some].argmin(axis=0), U[:, some].argmax(axis=0)]
    return U[np.unique(np.concatenate(which))]


def _errors(inquiry, network, X, Y):
    """Largest error of every row, relative to the deviations of the held-out outputs and of these."""
    oracle = inquiry.oracle
    known = oracle.output_center + oracle.output_scale * inquiry.fresh.answers
    unit = np.maximum(np.abs(known - known.mean(axis=0)).max(axis=0), np.abs(Y - known.mean(axis=0)).max(axis=0))
    # As in `relative_to_deviation`: below a millionth of the largest output, a deviation is taken as rounding.
    unit = np.maximum(unit, 1e-6 * np.maximum(np.abs(known).max(axis=0), np.abs(Y).max(axis=0)))
    return np.max(np.abs(network(X) - Y) / np.maximum(unit, np.finfo(float).tiny), axis=1)


def _misses(inquiry, network, plateau):
    """Whether the network gives other values on a plateau."""
    Y = network(plateau.inputs)
    Y[:, plateau.output] = plateau.value
    tol = max(_PLATEAU_ERROR, _NOISE_LEFT * inquiry.fresh.noise)
    return bool(_errors(inquiry, network, plateau.inputs, Y).max() > tol)


def _beside_borders(inquiry, network):
    """Standardized rows closely before and behind the borders of the plateaus, (n, D), as the network places them."""
    oracle, plain, rows = inquiry.oracle, network.without_clip(), []
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
