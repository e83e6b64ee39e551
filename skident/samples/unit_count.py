"""Number of units of a ReLU fit: adding and removing units while the fit improves."""

import itertools
import math

import numpy as np

from skident.budget.constants import FEW_ROUNDS, FINE_FTOL, PATIENCE
from skident.optim import best_of

from .missing_unit import correlated_units
from .ridges import NO_NOISE, RidgeFit, RidgeModel, fit_ridges, is_exact, regress_on_ridges
from .tensor_stage import leading_eigenvectors, residual_curvature

# Statistics: in 49 fits to 3 to 20 inputs and 2,000 to 10,000 rows, no unit that is not there gained more (seeds 100 to
# 111 of make_relu_network; the mean gain is 2.4 per weight).
_GAIN_PER_WEIGHT = 3.0  # noise variances
_LEAST_GAIN = 12.0  # noise variances
ROWS_PER_WEIGHT = 50  # of a unit, below which chance adds units that the price below does not keep out (statistics)
_SCREENED_ROWS = 2**14  # rows on which candidate units are compared (budget)
_DIRECTIONS = 24  # random ones screened beside the eigenvectors
_BIASES = (-1.0, 0.0, 1.0)  # starts of biases, in standard deviations of the whitened inputs
_TRIED = 2  # starts of a new ridge that are fitted
_MISSING_TRIED = 3  # units that correlate most with the residuals, each of which is fitted (budget)
_MISSING_FTOL = 1e-6  # of these fits: the other units have to move as well
_MISSING_PRICE = 4.0  # noise variances that such a unit must gain beyond the penalty: it is the best of far more
_MISSING_PARAMETERS = 400  # up to which missing units are sought this way (budget)


def determined_units(sample):
    """How many units the rows determine: ``(m + 1) (k + 1)`` parameters are no more than rows."""
    return sample.n_rows // (sample.dim + 1) - 1


def criterion(sample, fit):
    """``n log(mean squared residual)`` of Gaussian residuals, a penalty per unit, and ``log n`` per other parameter.

    n is the effective number of rows, which for equal weights is their number. The Bayesian information criterion has
    ``(k + 1) log n`` per unit. That is twice and more what the best of units gains that are not there, and leaves out
    units whose lack costs more than the noise. The penalty here is what such units hardly ever gain.
    """
    if is_exact(sample, fit.rss):
        return -math.inf
    n, model = sample.effective_rows, fit.model
    others = model.n_parameters - model.n_units * (sample.dim + 1)
    gain = n * math.log(fit.rss / sample.total)
    return gain + model.n_units * unit_penalty(sample) + others * math.log(max(n, 2.0))


def unit_penalty(sample):
    """Gain that a unit must exceed, in noise variances: at most that of the Bayesian information criterion."""
    n_weights = sample.dim + 1
    usual = n_weights * math.log(max(sample.effective_rows, 2.0))
    if sample.effective_rows < ROWS_PER_WEIGHT * n_weights:
        return usual
    return min(_GAIN_PER_WEIGHT * n_weights + _LEAST_GAIN, usual)


def _screen_block(Z, y, w, model, U, b):
    extended = np.column_stack([np.abs(Z @ U.T + b), Z, np.ones(len(Z)), y - model(Z)])
    return ((w[:, None] * extended).T @ extended,)


def _new_ridges(sample, model, rng):
    """Directions, biases and sizes of ridges that correlate best with the residuals, once linear functions are out."""
    k = sample.dim
    curvature = residual_curvature(sample, model).matrix
    vectors, _ = leading_eigenvectors(curvature, 3)
    random = rng.standard_normal((_DIRECTIONS, k))
    U = np.vstack([vectors.T, random / np.linalg.norm(random, axis=1, keepdims=True)])
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


def add_ridge(sample, fit, rng):
    """The best fit with one ridge more.

    Eigenvectors of the curvature of the residuals and random directions, each with three biases, are screened by how
    much of the residuals they explain; the best two of different directions start a fit of all ridges.
    """
    model = fit.model
    U, b, size = _new_ridges(sample, model, rng)
    chosen = [0]
    for i in range(1, len(U)):
        if len(chosen) < _TRIED and np.abs(U[chosen] @ U[i]).max() < 0.9:
            chosen.append(i)
    starts = (_extended(model, U[i], b[i], size[i]) for i in chosen)
    fits = (fit_ridges(sample, start, ftol=FINE_FTOL, rough=True, rng=rng) for start in starts)
    return best_of(fits, lambda f: f.rss, enough=lambda costs: is_exact(sample, costs[-1]))[0]


def further_ridge_pays(sample, fit, rng):
    """Whether a further ridge, as screening finds it, lowers the criterion, the other ridges kept.

    A lower bound on what :func:`add_ridge` reaches, for one pass over the rows in place of fits.
    """
    if is_exact(sample, fit.rss):
        return False
    U, b, _ = fit.model.units()
    u, shift, _ = _new_ridges(sample, fit.model, rng)
    more = regress_on_ridges(sample, np.vstack([U, u[:1]]), np.append(b, shift[0]))
    return criterion(sample, more) < criterion(sample, fit)


def _extended(model, u, b, size):
    """The model with the ridge ``size |u . z + b|`` more."""
    length = max(abs(size), 1e-3)
    return RidgeModel(
        np.column_stack([model.V, u * length]),
        np.append(model.beta, b * length),
        np.append(model.s, 1.0 if size >= 0 else -1.0),
        model.u,
        model.c,
    )


def remove_ridge(sample, fit, rng):
    """The fit without the ridge that the others replace best."""
    U, b, _ = fit.model.units()
    regression = regress_on_ridges(sample, U, b)
    keep = np.arange(len(b)) != int(np.argmin(regression.removal))
    start = regress_on_ridges(sample, U[keep], b[keep])
    if not keep.sum():
        return RidgeFit(start.model, start.rss, 0, "target")
    rough = fit_ridges(sample, start.model, ftol=FINE_FTOL, rough=True, rng=rng)
    if is_exact(sample, rough.rss) or rough.rss > NO_NOISE * sample.total:
        return rough
    return fit_ridges(sample, rough.model, rng=rng)  # to rounding, if the ridge was not needed


def _wider(sample, fit, rng, max_units, patience, callback):
    """The best fit met while ridges are added: until `patience` in a row do not pay, or residuals are rounding."""
    best = current = fit
    failures = 0
    while current.model.n_units < max_units and failures < patience and not is_exact(sample, best.rss):
        current = add_ridge(sample, current, rng)
        _report(callback, current)
        if criterion(sample, current) < criterion(sample, best):
            best, failures = current, 0
        else:
            failures += 1
    return best


def _narrower(sample, fit, rng, callback=None):
    """The fits that are left as one ridge after the other is taken away, down to none."""
    while fit.model.n_units:
        fit = remove_ridge(sample, fit, rng)
        _report(callback, fit)
        yield fit


def remove_to(sample, fit, n_units, rng, callback=None):
    """The fit with so many ridges, those that the others replace best taken away one after the other."""
    fits = itertools.chain([fit], _narrower(sample, fit, rng, callback))
    return next(f for f in fits if f.model.n_units <= n_units)


def escape(sample, fit, rng, *, max_units, patience=1, callback=None):
    """Out of a local minimum of m ridges: some more are added while that pays, and then taken away again."""
    wide = _wider(sample, fit, rng, max_units, patience, callback)
    if wide is fit:
        return fit, False
    back = remove_to(sample, wide, fit.model.n_units, rng, callback)
    return (back if back.rss < fit.rss else fit), True


def select_size(sample, fit, rng, *, max_units, callback=None):
    """The number of ridges with the smallest criterion, searched for upwards, then downwards.

    Growth ends when two ridges in a row do not lower the criterion, taking away ends when the first raises it.
    """
    best = _wider(sample, fit, rng, max_units, PATIENCE, callback)
    for smaller in _narrower(sample, best, rng, callback):
        # Among exact fits the smallest is taken, though their criteria are equal.
        if is_exact(sample, smaller.rss) or criterion(sample, smaller) < criterion(sample, best):
            best = smaller
        # Of several ridges on one boundary, the first that is taken away may leave a little.
        elif not is_exact(sample, best.rss) or smaller.rss > NO_NOISE * sample.total:
            break
    return best


def add_missing_units(sample, fit, rng, *, max_units, callback=None):
    """Units that correlate with the residuals added, and others taken away, while that lowers the criterion.

    :func:`add_ridge` compares few directions, for speed; units of which the others do a part hardly show in any of
    them. Here a unit is sought over all directions, by what it explains beyond the derivatives of the fit.
    """
    for _ in range(FEW_ROUNDS):
        largest = min(max_units, _MISSING_PARAMETERS // (sample.dim + 1))
        if is_exact(sample, fit.rss) or fit.model.n_units >= largest:
            break
        larger = _with_missing_unit(sample, fit, rng)
        _report(callback, larger)
        smaller = itertools.islice(_narrower(sample, larger, rng, callback), 2)
        best = min(itertools.chain([larger], smaller), key=lambda one: criterion(sample, one))
        if criterion(sample, best) >= criterion(sample, fit) - _MISSING_PRICE * (
            best.model.n_units > fit.model.n_units
        ):
            break
        fit = best
    return fit


def _with_missing_unit(sample, fit, rng):
    """The fit with the unit more that correlates most with its residuals."""
    model, (Z, y, w) = fit.model, sample.draw(_SCREENED_ROWS, rng).arrays(np.float64)
    root = np.sqrt(w)[:, None]
    with_bias, (U, b, _) = np.column_stack([Z, np.ones(len(Z))]), model.units()
    known = np.column_stack([U, b])
    found = correlated_units(root * with_bias, known, root[:, 0] * (y - model(Z)), _MISSING_TRIED, rng)
    fits = []
    for unit in found:
        length = max(np.linalg.norm(unit[:-1]), np.finfo(float).tiny)
        start = regress_on_ridges(sample, np.vstack([U, unit[:-1] / length]), np.append(b, unit[-1] / length))
        fits.append(fit_ridges(sample, start.model, ftol=_MISSING_FTOL, rng=rng))
    return min(fits, key=lambda one: one.rss)


def _report(callback, fit):
    if callback is not None:
        callback(fit)
