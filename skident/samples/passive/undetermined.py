"""Undetermined parameters, and standard errors: of first order, and over all minima within the noise."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from skident.budget.constants import BLOCK_ENTRIES
from skident.fitting.batched_fits import BatchedNetworkFits, Prior, parameters_of
from skident.fitting.lack_of_fit import NO_NOISE
from skident.fitting.pruning import remove_unit
from skident.network import Architecture
from skident.network.calculus import flatten_parameters, unflatten_parameters

_ALONE = 0.95  # leverage; rows of planted networks have up to 0.6
_UNSEEN = 1e-3  # of a parameter's unit vector in directions that rows do not determine
_LEVEL = 0.95  # below this quantile of a right one, a larger deviation is chance and errors of first order stay
# Of the broadest prior's standard deviation: beyond, this prior decides more than a quarter of the information.
_UNDETERMINED = 0.5
_ROUGH = 1e-4  # of the largest parameter of a layer: what a claim to exactness may leave undetermined


@dataclass(frozen=True)
class Information:
    """The Gauss-Newton matrix of a network at the rows, scaled to unit diagonal.

    Attributes
    ----------
    spectrum : ndarray of shape (P,)
        Its eigenvalues, ascending.
    vectors : ndarray of shape (P, P)
        Its eigenvectors.
    scale : ndarray of shape (P,)
        Lengths of the columns of the Jacobian.
    n_free : int
        Directions in which activations let parameters move without changing the function (units of relu that are
        rescaled): as many of the least eigenvalues are 0.
    """

    spectrum: np.ndarray
    vectors: np.ndarray
    scale: np.ndarray
    n_free: int

    @property
    def n_open(self):
        """Directions that the rows do not determine to rounding, besides the free ones."""
        rounding = len(self.spectrum) * np.finfo(float).eps
        return max(0, int(np.sum(self.spectrum <= rounding)) - self.n_free)


def information(network, table, prior=None):
    """The Gauss-Newton matrix at all rows of a table, added up block by block."""
    fits = BatchedNetworkFits(Architecture.of(network), table)
    matrix = fits.normal_equations(parameters_of(network)[None])[0][0]
    if prior is not None:
        matrix = matrix + np.diag(prior.penalty(fits.shapes))
    scale = np.sqrt(np.diagonal(matrix))
    scale = np.where(scale > 1e-14 * scale.max(), scale, np.inf)  # what does nothing stays undetermined
    spectrum, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    scale_free = [g.symmetry == "homogeneous" for g in network.activations[:-1]]
    n_free = sum(m for m, free in zip(network.layer_widths[:-1], scale_free, strict=True) if free)
    return Information(spectrum, vectors, np.where(np.isfinite(scale), scale, 1.0), n_free)


def standard_errors_of(network, table, info, noise):
    """Standard errors of weights and biases, in the inputs and targets as they are."""
    unseen = info.spectrum <= len(info.spectrum) * np.finfo(float).eps
    kept = ~unseen
    root = info.vectors[:, kept] * (noise / np.sqrt(info.spectrum[kept])) / info.scale[:, None]
    lost = np.zeros(len(unseen))
    if np.sum(unseen) > info.n_free:
        lost = np.linalg.norm(info.vectors[:, unseen], axis=1)
    k, m = network.weights[0].shape
    first = root[: (k + 1) * m].reshape(k + 1, m, -1)
    W = np.tensordot(table.whitener, first[:-1], axes=1)
    b = first[-1] - np.tensordot(table.center, W, axes=1)
    open_units = (lost[: (k + 1) * m].reshape(k + 1, m) > _UNSEEN).any(axis=0)
    weights, biases = [_lengths(W, open_units)], [_lengths(b, open_units)]
    at = (k + 1) * m
    for V in network.weights[1:]:
        a, c = V.shape
        A = np.where(lost > _UNSEEN, np.inf, np.linalg.norm(root, axis=1))[at : at + (a + 1) * c].reshape(a + 1, c)
        weights, biases, at = [*weights, A[:-1]], [*biases, A[-1]], at + (a + 1) * c
    weights[-1], biases[-1] = weights[-1] * table.unit, biases[-1] * table.unit
    return weights, biases


def lone_rows(network, table, info):
    """Samples that determine a parameter alone: their leverage is above 0.95."""
    fits, x = BatchedNetworkFits(Architecture.of(network), table), parameters_of(network)[None]
    kept = info.spectrum > len(info.spectrum) * np.finfo(float).eps
    root = info.vectors[:, kept] / np.sqrt(info.spectrum[kept]) / info.scale[:, None]
    found = 0
    for U, Y, weight in table.blocks(max(1, BLOCK_ENTRIES // (len(root) * table.n_outputs))):
        leverage = np.sum((fits.jacobians(x, U, Y, weight)[0][0].T @ root) ** 2, axis=1).reshape(-1, len(U))
        found += int(np.sum(leverage.max(axis=0) > _ALONE))
    return found


def _lengths(roots, open_units):
    return np.where(open_units, np.inf, np.linalg.norm(roots, axis=-1))


@dataclass(frozen=True)
class Spread:
    """Standard errors, and what they come from.

    Attributes
    ----------
    stderr : (list of ndarray, list of ndarray)
        Of weights and biases; infinite for parameters that the rows do not determine.
    n_undetermined : int
        Parameters with an infinite standard error.
    n_resampled : int
        Fits to targets with fresh noise; 0 where the budget ended before: the errors are then of first order.
    """

    stderr: tuple
    n_undetermined: int
    n_resampled: int

    @property
    def entries(self):
        """Those of the report."""
        return {"n_undetermined": self.n_undetermined, "n_resampled": self.n_resampled}


def spread_of(network, table, info, final):
    """Standard errors of a fit.

    Of exact outputs, and beside rows that determine no direction of the parameters, those of first order. Of noisy
    ones, with the prior's information, times what deviations of fits to targets with fresh noise exceed them by. Such
    fits end at whichever minimum the noise makes the best, and follow curved valleys of the cost, of which the
    curvature at the minimum determines nothing. Where residuals are no noise, nothing is known of any parameter.
    """
    inside, noise, shapes = table.in_whitened(network), final.noise, [W.shape for W in network.weights]
    if not final.minima:
        noise = max(noise, np.finfo(float).eps)
        return Spread(*_of_exact(standard_errors_of(inside, table, info, noise), network), 0)
    if final.lack_of_fit < NO_NOISE:
        unknown = np.full(network.n_parameters, np.inf)
        return Spread(unflatten_parameters(unknown, shapes), network.n_parameters, 0)
    scale_free = any(g.symmetry == "homogeneous" for g in network.activations[:-1])
    # The length of a unit that may be rescaled is fixed by the canonical form, not by the prior.
    prior = None if scale_free else final.minima[0].prior
    first = flatten_parameters(*standard_errors_of(inside, table, information(inside, table, prior), noise))
    on_rows, rows = first, final.samples.rows
    if rows is not None and len(rows.U) < len(table.X):
        on_rows = flatten_parameters(*standard_errors_of(inside, table, information(inside, rows, prior), noise))
    errors, n_fits = first, final.samples.per_group
    if n_fits:
        wanted = parameters_of(network)
        squares = final.samples.mean(lambda one: (_aligned(one, inside, table, on_rows) - wanted) ** 2)
        beyond = np.sqrt(squares)
        by_chance = np.sqrt(stats.chi2.ppf(_LEVEL, n_fits - 1) / (n_fits - 1))
        # 1.96 of the errors are to cover 95 of 100, with so few fits known.
        factor = stats.t.ppf(0.975, n_fits - 1) / stats.norm.ppf(0.975)
        more = factor * np.divide(beyond, on_rows, out=np.ones_like(first), where=on_rows > 0.0)
        errors = first * np.where(beyond > by_chance * on_rows, more, 1.0)
    if prior is not None:
        broad = Prior.broad(Architecture.of(network), inside.weights[0].shape[0], noise**2)
        errors = np.where(errors > _UNDETERMINED * _prior_deviations(network, table, broad), np.inf, errors)
    return Spread(unflatten_parameters(errors, shapes), int(np.sum(~np.isfinite(errors))), final.samples.n_fits)


def _of_exact(stderr, network):
    """Standard errors that rounding leaves, and the number of parameters undetermined to a thousandth."""
    errors = flatten_parameters(*stderr)
    parts = ([np.full_like(p, np.abs(p).max()) for p in of] for of in (network.weights, network.biases))
    errors = np.where(errors > _ROUGH * flatten_parameters(*parts), np.inf, errors)
    return unflatten_parameters(errors, [W.shape for W in network.weights]), int(np.sum(~np.isfinite(errors)))


def _aligned(fit, inside, table, errors):
    """Parameters of a whitened fit aligned to a network, in inputs and targets as they are, without redundant units.

    Of all units of the wider layer it is the one without which the others are closest, relative to their errors.
    """
    wanted, found = parameters_of(table.in_inputs(inside)), []
    errors = np.where(errors > 0.0, errors, np.inf)  # 0: weights of columns that do not vary
    for one in _of_widths(fit, inside.layer_widths):
        found.append(parameters_of(table.in_inputs(one.align_to(inside))))
    return min(found, key=lambda one: np.sum(((one - wanted) / errors) ** 2))


def _of_widths(fit, widths):
    """The fit itself, or all networks that one of its units less leaves."""
    surplus = [k for k, (m, wanted) in enumerate(zip(fit.layer_widths, widths, strict=True)) if m > wanted]
    if not surplus:
        return [fit]
    layer, nothing = surplus[0], np.zeros(fit.layer_widths[surplus[0]] + 1)
    return [remove_unit(fit, layer, j, nothing) for j in range(fit.layer_widths[layer])]


def _prior_deviations(network, table, prior):
    """Standard deviations of the prior, in inputs and targets as they are."""
    weights = [np.full(W.shape, np.sqrt(v)) for W, v in zip(network.weights, prior.weights, strict=True)]
    shifts = [np.full(b.shape, np.sqrt(v)) for b, v in zip(network.biases, prior.biases, strict=True)]
    m = network.layer_widths[0]
    weights[0] = np.repeat(np.sqrt(prior.weights[0]) * np.linalg.norm(table.whitener, axis=1)[:, None], m, axis=1)
    along = np.linalg.norm(table.center @ table.whitener)
    shifts[0] = np.full(m, np.sqrt(prior.biases[0] + prior.weights[0] * along**2))
    weights[-1], shifts[-1] = weights[-1] * table.unit, shifts[-1] * table.unit
    return flatten_parameters(weights, shifts)
