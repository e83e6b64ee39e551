"""Standard errors that hold where the rows leave more than one minimum, or a curved valley, within the noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.fitting.batched_fits import network_of
from skident.network import Architecture

from .final_fit import some_of
from .minima import resampled
from .openness import information, standard_errors_of

__all__ = ["Spread", "spread_of"]

# Of the prior's standard deviation: beyond, the prior decides more than a quarter of the parameter's information.
_UNDETERMINED = 0.5


@dataclass(frozen=True)
class Spread:
    """Standard errors, and what they come from.

    Attributes
    ----------
    stderr : (list of ndarray, list of ndarray)
        Of weights and shifts; infinite for parameters that the rows do not determine.
    n_undetermined : int
        Parameters with an infinite standard error.
    n_resampled : int
        Fits to targets with fresh noise; 0 where the budget ended before: the errors are then of first order.
    """

    stderr: tuple
    n_undetermined: int
    n_resampled: int


def spread_of(network, table, info, final, budget, rng):
    """Standard errors of a fit.

    Parameters
    ----------
    network : FeedforwardNetwork
        In canonical form, of the inputs as they are.
    table : Table
    info : Information
        Of the network at the table.
    final : FinalFit
        The network as it came from the fit.
    budget : WorkBudget
    rng : numpy.random.RandomState

    Returns
    -------
    Spread

    Notes
    -----
    Of exact answers, and beside rows that determine no direction of the parameters, those of first order. Of noisy
    ones, with the prior's information, times what deviations of fits to targets with fresh noise exceed them by. Such
    fits end at whichever minimum the noise makes the best, and follow curved
    valleys of the cost, of which the curvature at the minimum tells nothing.
    """
    inside, noise, minima = table.in_whitened(network), final.noise, final.minima
    if minima is None:
        stderr = standard_errors_of(inside, table, info, noise)
        return Spread(stderr, int(np.sum(~np.isfinite(_flat(stderr)))), 0)
    scale_free = any(g.symmetry == "homogeneous" for g in network.activations[:-1])
    prior = None if scale_free else minima.prior  # the length of a unit is fixed by the canonical form, not the prior
    first = _flat(standard_errors_of(inside, table, information(inside, table, prior), noise))
    rows = table.rows(some_of(np.arange(len(table.X)), rng))
    x, factor = resampled(minima, rows, budget, rng)
    errors = first
    if len(x):
        on_rows = first
        if len(rows.U) < len(table.X):
            on_rows = _flat(standard_errors_of(inside, table, information(inside, rows, prior), noise))
        errors = first * np.fmax(1.0, factor * _deviations(x, network, inside, table) / on_rows)
    if prior is not None:
        errors = np.where(errors > _UNDETERMINED * _prior_deviations(network, table, prior), np.inf, errors)
    return Spread(_shaped(errors, network), int(np.sum(~np.isfinite(errors))), len(x))


def _deviations(x, network, inside, table):
    """Root mean squares of what resampled parameters deviate by, in inputs and targets as they are."""
    found, architecture = _flat((network.weights, network.biases)), Architecture.of(network)
    aligned = [table.in_inputs(network_of(one, table.n_inputs, architecture).align_to(inside)) for one in x]
    return np.sqrt(np.mean([(_flat((one.weights, one.biases)) - found) ** 2 for one in aligned], axis=0))


def _prior_deviations(network, table, prior):
    """Standard deviations of the prior, in inputs and targets as they are."""
    weights = [np.full(W.shape, np.sqrt(v)) for W, v in zip(network.weights, prior.weights, strict=True)]
    shifts = [np.full(b.shape, np.sqrt(v)) for b, v in zip(network.biases, prior.shifts, strict=True)]
    m = network.layer_widths[0]
    weights[0] = np.repeat(np.sqrt(prior.weights[0]) * np.linalg.norm(table.whitener, axis=1)[:, None], m, axis=1)
    along = np.linalg.norm(table.center @ table.whitener)
    shifts[0] = np.full(m, np.sqrt(prior.shifts[0] + prior.weights[0] * along**2))
    weights[-1], shifts[-1] = weights[-1] * table.unit, shifts[-1] * table.unit
    return _flat((weights, shifts))


def _flat(parts):
    return np.concatenate([*(W.ravel() for W in parts[0]), *(b.ravel() for b in parts[1])])


def _shaped(values, network):
    shaped, at = ([], []), 0
    for kind, parts in enumerate((network.weights, network.biases)):
        for part in parts:
            shaped[kind].append(values[at : at + part.size].reshape(part.shape))
            at += part.size
    return shaped
