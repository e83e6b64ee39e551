"""Checks of samples, leave-one-out errors, and warnings about fits of ReLU networks."""

import warnings

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial import cKDTree
from sklearn.exceptions import ConvergenceWarning

from skident.base.better_models import better_model
from skident.budget.constants import RIDGE_OF_PRODUCTS, SOME_SAMPLES
from skident.linalg import n_symmetric_entries

from .learning import TENSOR_UNITS
from .paper.decomposition import order_for
from .penalized_fit import MOST_UNITS, penalty_matrix
from .ridges import EXACT, jacobian_blocks, regress_on_ridges
from .sample import FEW_VALUES, SAMPLING_ERRORS, departures, distinct_rows, values_of_columns
from .unit_count import determined_units

_ROWS_PER_PARAMETER = 3  # up to which units are searched for where their number is not given
_MANY_ROWS = 50  # rows from which so few distinct values are evidence, and an outlier is named
_OUTLIER = 0.5  # excess kurtosis per row from which one row makes a column's spread: 1 if it makes all of it
_HIGHEST_ORDER = 4  # of tensors whose number of units is counted: five units of two inputs (budget)
_AGREE = 1.05  # ratio of residual sums up to which candidates agree
_MOST_PARAMETERS = 1000  # time: 2,000 P^2 products, 1 s at this size
_MAX_LEVERAGE = 0.99  # of a sample: beyond, its error without itself is not of first order


def check_sizes(sample, n_units, order, method):
    """The largest number of units that order and rows allow."""
    k, n = sample.dim, sample.n_rows
    if sample.y_scale == 0.0:
        raise ValueError(
            f"y is constant up to rounding ({sample.y_center:.6g} in all {n} rows): there is no network to learn; "
            "targets must vary by more than 1e-13 of their mean. If a large offset was added to y, fit without it."
        )
    if k == 0:
        raise ValueError("all columns of X are constant: nothing can be learned from them.")
    distinct = distinct_rows(sample)
    determined = distinct // (k + 1) - 1
    rows = f"n_samples={distinct} distinct rows"
    if n_units is None:
        if method == "literal":
            raise ValueError("method='literal' needs n_units; method='refined' finds the number of units.")
        if determined < 1:
            warnings.warn(
                f"{rows} determine no unit in {k} dimensions, {2 * (k + 1)} would be needed: a linear "
                "function is fitted.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return max(0, min(_most_counted(k, order), int(distinct / _ROWS_PER_PARAMETER - k - 1) // (k + 1)))
    if method == "literal" and order == "auto":
        order_for(k, n_units)  # an error if there is none
    if order != "auto" and n_units > (most := n_symmetric_entries(k, order)):
        what = f"{k} linearly independent feature" + ("s" if k > 1 else "")
        hint = f"order='auto' takes order {order_for(k, n_units)}" if k > 1 else "set order='auto'"
        raise ValueError(f"n_units={n_units} is more than order={order!r} can distinguish in {what}, {most}; {hint}.")
    if n_units > determined:
        needed = n_units * (k + 1) + k + 1
        raise ValueError(
            f"{rows} do not determine n_units={n_units} units: {needed} parameters, so at least {needed} "
            f"rows are needed, and several times as many where there is noise; take {determined} unit(s) at most, or "
            "n_units=None."
        )
    return n_units


def _most_counted(dim, order):
    """Units up to which their number is searched for: within a given order, else the first that separates 20."""
    if order != "auto":
        return n_symmetric_entries(dim, order)
    if dim == 1:  # breakpoints on a line, which no tensors separate
        return TENSOR_UNITS
    return n_symmetric_entries(dim, min(max(2, order_for(dim, TENSOR_UNITS + 1)), _HIGHEST_ORDER))


def warn_of_other_inputs(sample):
    """Warn of columns that are far from Gaussian, naming the one that is farthest, and of those with few values."""
    excess, values = departures(sample), values_of_columns(sample)
    worst, said = int(np.argmax(excess)), []
    if excess[worst] > 1.0:
        said.append(
            f"{int(np.sum(excess > 1.0))} of {len(excess)} columns of X are not Gaussian, most of all column {worst}: "
            f"skewness {sample.skewness[worst]:.2f}, excess kurtosis {sample.kurtosis[worst]:.2f} (Gaussian: 0). "
            "The tensors assume Gaussian inputs, so the fit rests on the polish of several starts. Transform the "
            "columns; for a known density, give importance weights."
        )
        said += _said_of_an_outlier(sample, worst)
    few = np.flatnonzero((values > 1) & (values <= FEW_VALUES))
    if len(few) and sample.n_rows >= _MANY_ROWS:
        said.append(
            f"{len(few)} of {len(excess)} columns of X are not Gaussian but discrete (column {few[0]}: "
            f"{values[few[0]]} values): a unit's bend between two of their values is undetermined, and with it the "
            "network, however well it predicts."
        )
    said += said_of_classes(sample.y)
    if said:
        warnings.warn(" ".join(said), UserWarning, stacklevel=3)


def said_of_classes(y):
    """A sentence on targets that take few values, as those that number classes."""
    classes = len(np.unique(y[: _MANY_ROWS**2]))
    if classes > FEW_VALUES or len(y) < _MANY_ROWS:
        return []
    return [
        f"y takes {classes} values: steps between them are fitted by steep units, which fail between the samples. "
        "If they are classes, use HierarchicalQuadraticNetClassifier().fit(X, y)."
    ]


def _said_of_an_outlier(sample, column):
    """A sentence on the row farthest out in a column, if the column's spread rests on it."""
    if sample.kurtosis[column] < _OUTLIER * sample.n_rows or sample.n_rows < _MANY_ROWS:
        return []
    values = np.asarray(sample.X[:, column], dtype=np.float64)
    row = int(np.argmax(np.abs(values - np.median(values))))
    value, spread = values[row], np.delete(values, row).std()
    row = row if sample.origin is None else sample.origin[row]
    return [
        f"Row {row} is an outlier: {value:.3g} in column {column}, whose other values spread by "
        f"{spread:.3g}; the scale of X rests on it. Leave it out: "
        f"fit(np.delete(X, {row}, axis=0), np.delete(y, {row}))."
    ]


def warn_doubts(sample, learned, n_units, order):
    """Warn of units that rows do not determine or noise hides, of fits that lack units, of candidates that disagree."""
    if learned.missing:
        _warn_of_interpolation(sample, learned)
    if n_units is None and not learned.settled:
        _warn_of_a_bound(sample, learned.signed.fit.model.n_units, order)
    if learned.n_flippable:
        _warn_of_signs(learned)
        return
    if learned.exact or learned.missing or n_units is None or not learned.signed.fit.model.n_units:
        return
    unit = sample.y_scale**2
    losses = ", ".join(f"{loss:.3g}" for loss in learned.candidate_losses[:4] * unit)
    if not learned.settled:
        warnings.warn(
            f"n_units={n_units} leaves residuals of mean square {learned.signed.fit.rss / sample.total * unit:.3g} "
            f"that a further unit would lower by more than chance. The candidates ended at {losses}: where these "
            "disagree, try more n_candidates or another random_state; otherwise more units (n_units=None finds how "
            "many pay).",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif determined_units(sample) <= n_units and learned.candidate_losses[-1] > _AGREE * learned.candidate_losses[0]:
        warnings.warn(
            f"the candidates disagree: they ended at mean squared residuals of {losses}, and n_samples={sample.n_rows} "
            f"rows are too few to try further units on the way to a better fit with n_units={n_units}. Take more rows, "
            "more n_candidates or another random_state.",
            ConvergenceWarning,
            stacklevel=3,
        )
    _warn_of_hidden_units(sample, learned)


def _warn_of_interpolation(sample, learned):
    m = learned.signed.fit.model.n_units
    warnings.warn(
        f"the {m} units meet all rows to rounding, but the rows do not determine them, so exact_ is False: "
        f"{learned.missing}. The fit interpolates there and can be wrong on new rows. Take more rows than "
        f"n_samples={sample.n_rows}; if the function can be evaluated anywhere, use "
        "NetworkIdentifier(function, activation='relu').fit(X) in place of samples.",
        ConvergenceWarning,
        stacklevel=4,
    )


def _warn_of_signs(learned):
    model = learned.signed.fit.model
    cause = "the linear part makes up for them" if model.skip else "their weighted sum is zero"
    warnings.warn(
        f"the function is exact, but the signs of {learned.n_flippable} of {model.n_units} units are undetermined "
        f"(signs_margin_ is 0): flipped, these units give the same function, as {cause}. So exact_ is False; "
        "predictions do not depend on the choice.",
        ConvergenceWarning,
        stacklevel=4,
    )


def _warn_of_a_bound(sample, n_units, order):
    if order == 1 and n_units == sample.dim:
        cause, way = f"order=1 allows {n_units} units, one per linearly independent feature", "Set order='auto'"
    elif n_units >= _most_counted(sample.dim, order):
        cause = f"order={order!r} allows {n_units} units"
        way = f"Set n_units={2 * n_units}" if sample.dim == 1 else f"Set order={order_for(sample.dim, n_units + 1)}"
        way += ", or learn the function with another model, e.g. sklearn.neural_network.MLPRegressor()"
    else:
        cause, way = f"n_samples={sample.n_rows} rows allow {n_units} units", "Take more rows"
    warnings.warn(
        f"a further unit would lower the residuals by more than chance, but {cause}: the fit lacks units. {way}.",
        ConvergenceWarning,
        stacklevel=4,
    )


def _warn_of_hidden_units(sample, learned):
    model, stage = learned.signed.fit.model, learned.stage
    U, b, _ = model.units()
    regression = regress_on_ridges(sample, U, b)
    n = sample.effective_rows
    gain = n * regression.removal / max(regression.rss, EXACT * sample.total)
    # What the information criterion requires of the parameters of a unit.
    needed = (sample.dim + 1) * np.log(n)
    hidden = int(np.sum(gain < needed))
    eigenvalue = abs(stage.spectrum[min(model.n_units, sample.dim) - 1])
    if hidden and eigenvalue < stage.noise:
        scale = sample.y_scale
        warnings.warn(
            f"{hidden} of {model.n_units} units are within the noise: the eigenvalue of T_2 that counts them is "
            f"{eigenvalue * scale:.2g}, sampling alone gives up to {stage.noise * scale:.2g}, and leaving out the "
            f"least of them raises the residuals by {gain.min():.1f} noise variances, where {needed:.0f} separate it "
            "from chance. Take fewer units (n_units=None counts them) or more rows.",
            ConvergenceWarning,
            stacklevel=4,
        )


def left_out_squares(sample, model, alpha=0.0):
    """Squared leave-one-out errors (n,) of a fit with penalty `alpha` to a sample, to first order, in variances of y.

    Weights enter the leverages, not the errors. Residuals over one minus their leverage, at most the range of y:
    predictions are clipped. NaN for rows that the fit meets without others to check it.
    """
    Z, y, w = sample.arrays(np.float64)
    penalty = 0.0
    if alpha:
        penalty = alpha * sample.total * penalty_matrix(sample, model.n_units, model.skip)
    J = np.vstack(list(jacobian_blocks(Z, model, w)))
    scale = np.linalg.norm(J, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    J /= scale
    root = np.linalg.cholesky(J.T @ J + penalty / np.outer(scale, scale) + RIDGE_OF_PRODUCTS * np.eye(J.shape[1]))
    leverage = np.sum(solve_triangular(root, J.T, lower=True, check_finite=False) ** 2, axis=0)
    gaps = np.where(leverage < _MAX_LEVERAGE, 1.0 - leverage, np.nan)
    return np.minimum(((y - model(Z)) / gaps) ** 2, np.ptp(y) ** 2)


def warn_of_better_models(sample, learned, rng):
    """Warn if leave-one-out errors of a `LearnedReLU` are clearly above those of another model, or of the mean.

    Not if a warning named undetermined signs or starts, and not if rows repeat: then no row is left out.
    """
    model = learned.signed.fit.model
    warned = learned.exact or learned.n_flippable or not learned.settled
    if warned or model.n_parameters > _MOST_PARAMETERS:
        return
    if distinct_rows(sample) < sample.n_rows:
        return
    part = sample.draw(SOME_SAMPLES, rng)
    squares = left_out_squares(part, model, learned.signed.fit.alpha) if part is sample else _squares(part, model)
    X, y = np.asarray(part.X, dtype=np.float64), (part.y - sample.y_center) / sample.y_scale
    if not np.isfinite(squares).any():
        return
    w, known = np.ones(len(y)) if part.weights is None else part.weights, np.isfinite(squares)
    better = better_model(X, y, squares, weights=w)
    variance = np.average((y - np.average(y, weights=w)) ** 2, weights=w)
    own = 1.0 - float(np.average(squares[known], weights=w[known]) / variance)
    if better is not None:
        better.warn("TensorReLURegressor", stacklevel=3)
        return
    agreement = _agreement_of_neighbors(part, model) if own > 0.0 else 0.0
    if own <= 0.0:
        said, compared = "the fit is no better than the mean of y", ""
    elif agreement > 0.0:
        said = "the fit is an approximation: residuals of neighboring samples agree"
        compared = f", and the correlation of residuals with those of the nearest sample is {agreement:.2f}"
    elif learned.signed.fit.alpha and model.n_units >= MOST_UNITS:
        said, compared = f"the fit is an approximation: it takes {model.n_units} units, the most that were tried", ""
    else:
        return
    warnings.warn(
        f"{said}. R^2 of samples that are left out in turn is {own:.3f} for TensorReLURegressor{compared}. The target "
        "is no sum of few ReLU units, or there are too few samples. Compare HierarchicalQuadraticNet().fit(X, y), and "
        "sklearn.ensemble.HistGradientBoostingRegressor().fit(X, y).",
        ConvergenceWarning,
        stacklevel=4,
    )


def _agreement_of_neighbors(part, model):
    """Correlation of residuals with those of the nearest sample, if it is above what noise gives; else 0.

    Noise is independent; a function that the fit lacks is not.
    """
    scale = part.column_scale()
    U = np.asarray(part.X, dtype=np.float64) / np.where(scale > 0, scale, 1.0)
    Z, y, _ = part.arrays(np.float64)
    r = y - model(Z)
    products = r * r[cKDTree(U).query(U, k=2)[1][:, 1]]
    # Two samples that are nearest to each other give one product twice.
    errors = SAMPLING_ERRORS * np.sqrt(2.0 / len(r)) * products.std()
    return float(products.mean() / np.mean(r * r)) if products.mean() > errors else 0.0


def _squares(part, model):
    """Squared residuals (n,) of a part of the samples: with many more samples than parameters, leverages are small."""
    Z, y, _ = part.arrays(np.float64)
    return (y - model(Z)) ** 2
