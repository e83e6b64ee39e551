"""How many ridges a sample supports: adding them, taking them away, and out of local minima by doing both."""

from __future__ import annotations

import math

import numpy as np

from .ridges import RidgeFit, RidgeModel, fit_ridges, regress_on_ridges
from .tensor_stage import residual_curvature

__all__ = ["add_ridge", "criterion", "cross_validated_size", "escape", "remove_ridge", "select_size"]

_EXACT = 1e-20  # mean squared residual, in variances of y, that leaves nothing to explain
_SCREENED_ROWS = 2**14
_DIRECTIONS = 24  # random ones screened beside the eigenvectors
_BIASES = (-1.0, 0.0, 1.0)
_TRIED = 2  # starts of a new ridge that are fitted
_PATIENCE = 2  # ridges in a row that may be added without gain
_FOLDS = 4
_ROUGHLY = 1e-4  # relative decrease at which a fit that is only compared stops


def is_exact(sample, rss):
    """Whether residuals are rounding."""
    return rss <= _EXACT * sample.total


def criterion(sample, fit):
    """Bayesian information criterion ``n log(mean squared residual) + P log n`` of Gaussian residuals.

    n is the effective number of rows, which for equal weights is their number.

    Parameters
    ----------
    sample : Sample
    fit : RidgeFit

    Returns
    -------
    float
        ``-inf`` where residuals are rounding, so that no further ridge is worth it.
    """
    if is_exact(sample, fit.rss):
        return -math.inf
    n = sample.effective_rows
    return n * math.log(fit.rss / sample.total) + fit.model.n_parameters * math.log(max(n, 2.0))


def _screen_block(Z, y, w, model, U, b):
    extended = np.column_stack([np.abs(Z @ U.T + b), Z, np.ones(len(Z)), y - model(Z)])
    return ((w[:, None] * extended).T @ extended,)


def _new_ridges(sample, model, rng):
    """Directions, biases and sizes of ridges that correlate best with the residuals, once linear functions are out."""
    k = sample.dim
    curvature = residual_curvature(sample, model).matrix
    values, vectors = np.linalg.eigh(curvature)
    order = np.argsort(-np.abs(values), kind="stable")[: min(3, k)]
    random = rng.standard_normal((_DIRECTIONS, k))
    U = np.vstack([vectors[:, order].T, random / np.linalg.norm(random, axis=1, keepdims=True)])
    U, b = np.repeat(U, len(_BIASES), axis=0), np.tile(_BIASES, len(U))
    (gram,) = sample.draw(_SCREENED_ROWS, rng).reduce(_screen_block, model, U, b)
    n = len(b)
    linear, cross = gram[n:-1, n:-1], gram[n:-1, :n]
    solved = np.linalg.lstsq(linear, np.column_stack([cross, gram[n:-1, -1]]), rcond=1e-12)[0]
    squares = np.diag(gram)[:n] - np.einsum("an,an->n", cross, solved[:, :n])
    products = gram[:n, -1] - cross.T @ solved[:, -1]
    usable = squares > 1e-10 * np.diag(gram)[:n]
    size = np.divide(products, squares, out=np.zeros(n), where=usable)
    best = np.argsort(-size * products, kind="stable")
    return U[best], b[best], size[best]


def add_ridge(sample, fit, rng, *, ftol=_ROUGHLY):
    """The best fit found with one ridge more.

    Parameters
    ----------
    sample : Sample
    fit : RidgeFit
        Of kind "abs".
    rng : numpy.random.RandomState
    ftol : float

    Returns
    -------
    RidgeFit

    Notes
    -----
    Eigenvectors of the curvature of the residuals and random directions, each with three biases, are screened by how
    much of the residuals they explain; the best two of different directions start a fit of all ridges.
    """
    model = fit.model
    U, b, size = _new_ridges(sample, model, rng)
    chosen = [0]
    for i in range(1, len(U)):
        if len(chosen) < _TRIED and np.abs(U[chosen] @ U[i]).max() < 0.9:
            chosen.append(i)
    fits = []
    for i in chosen:
        length = max(abs(size[i]), 1e-3)
        start = RidgeModel(
            np.column_stack([model.V, U[i] * length]),
            np.append(model.beta, b[i] * length),
            np.append(model.s, 1.0 if size[i] >= 0 else -1.0),
            model.u,
            model.c,
        )
        fits.append(fit_ridges(sample, start, ftol=ftol, rough=True, rng=rng))
        if is_exact(sample, fits[-1].rss):
            break
    return min(fits, key=lambda f: f.rss)


def remove_ridge(sample, fit, rng, *, ftol=_ROUGHLY):
    """The fit without the ridge that the others replace best.

    Parameters
    ----------
    sample : Sample
    fit : RidgeFit
        Of kind "abs".
    rng : numpy.random.RandomState
    ftol : float

    Returns
    -------
    RidgeFit
    """
    U, b, _ = fit.model.units()
    regression = regress_on_ridges(sample, U, b)
    keep = np.arange(len(b)) != int(np.argmin(regression.removal))
    start = regress_on_ridges(sample, U[keep], b[keep])
    if not keep.sum():
        return RidgeFit(start.model, start.rss, 0, "target")
    return fit_ridges(sample, start.model, ftol=ftol, rough=True, rng=rng)


def escape(sample, fit, rng, *, max_units, patience=1, callback=None):
    """Out of a local minimum of m ridges: some more are added while that pays, and then taken away again.

    Parameters
    ----------
    sample : Sample
    fit : RidgeFit
    rng : numpy.random.RandomState
    max_units : int
        Ridges at most, in between.
    patience : int, default=1
        Ridges in a row that are added without gain before it is given up.
    callback : callable, default=None
        ``callback(fit)`` after every fit.

    Returns
    -------
    fit : RidgeFit
        With as many ridges as before; the given one where nothing better was found.
    found_more : bool
        Whether a further ridge paid, so that either this was a local minimum or there are more than m.
    """
    m, wide = fit.model.n_units, fit
    widest, failures = wide, 0
    while widest.model.n_units < max_units and failures < patience:
        widest = add_ridge(sample, widest, rng)
        _report(callback, widest)
        if criterion(sample, widest) < criterion(sample, wide):
            wide, failures = widest, 0
        else:
            failures += 1
    if wide is fit:
        return fit, False
    while wide.model.n_units > m:
        wide = remove_ridge(sample, wide, rng)
        _report(callback, wide)
    return (wide if wide.rss < fit.rss else fit), True


def select_size(sample, fit, rng, *, max_units, callback=None):
    """The number of ridges with the smallest Bayesian information criterion, looked for upwards, then downwards.

    Parameters
    ----------
    sample : Sample
    fit : RidgeFit
        Where to begin.
    rng : numpy.random.RandomState
    max_units : int
    callback : callable, default=None

    Returns
    -------
    RidgeFit
    """
    best = current = fit
    failures = 0
    while current.model.n_units < max_units and failures < _PATIENCE and not is_exact(sample, best.rss):
        current = add_ridge(sample, current, rng)
        _report(callback, current)
        if criterion(sample, current) < criterion(sample, best):
            best, failures = current, 0
        else:
            failures += 1
    return _shrink(sample, best, rng, callback)


def _shrink(sample, best, rng, callback):
    while best.model.n_units:
        smaller = remove_ridge(sample, best, rng)
        _report(callback, smaller)
        # Among exact fits the smallest is taken, though their criteria are equal.
        if not is_exact(sample, smaller.rss) and criterion(sample, smaller) >= criterion(sample, best):
            break
        best = smaller
    return best


def squared_errors(Z, y, w, model):
    """Weighted sums of the squared errors of a block of rows, and of their squares, for `Sample.reduce`."""
    e2 = (y - model(Z)) ** 2
    return np.asarray(w @ e2), np.asarray(w @ e2**2)


def cross_validated_size(sample, n_units, learn, rng):
    """The number of ridges, up to a given one, that predicts rows best that were not fitted.

    Parameters
    ----------
    sample : Sample
    n_units : int
    learn : callable
        ``learn(sample, n_units) -> RidgeFit``, of kind "abs".
    rng : numpy.random.RandomState
        Deals the rows into four folds.

    Returns
    -------
    int
        The smallest number whose mean squared error is within a standard error of the least.

    Notes
    -----
    On every fold `n_units` ridges are learned from scratch and then taken away one after the other: four runs of
    `learn` and ``4 n_units`` short fits.
    """
    n = len(sample.y)
    fold_of = rng.permutation(n) % _FOLDS
    sums = np.zeros((n_units + 1, 2))
    for fold in range(_FOLDS):
        inside, outside = sample.take(np.flatnonzero(fold_of != fold)), sample.take(np.flatnonzero(fold_of == fold))
        fit = learn(inside, n_units)
        while True:
            sums[fit.model.n_units] += outside.reduce(squared_errors, fit.model)
            if fit.model.n_units == 0:
                break
            fit = remove_ridge(inside, fit, rng)
    means = sums[:, 0] / sample.total
    best = int(np.argmin(means))
    error = math.sqrt(max(sums[best, 1] / sample.total - means[best] ** 2, 0.0) / sample.effective_rows)
    return int(np.flatnonzero(means <= means[best] + error)[0])


def _report(callback, fit):
    if callback is not None:
        callback(fit)
