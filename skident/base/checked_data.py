"""The entry of X and y into every estimator: checked by scikit-learn, and copied once into C order."""

import numpy as np
from sklearn.utils.validation import _check_sample_weight, check_array, validate_data

from skident.budget.constants import FEW_ROUNDINGS
from skident.oracle.black_box import as_frame, resolve_response

from .parameters import check_numbers, check_targets

# Largest weight, and the smallest one is its inverse: sums of weights and their squares are finite.
_LARGE_WEIGHT = 1e50


def checked_data(estimator, X, y="no_validation", **checks):
    """X, or X and y, of an estimator's method as arrays in C order, a copy of their own: layouts give the same bits.

    `checks` are those of `validate_data` of scikit-learn. Strings as y are refused if ``y_numeric`` is set.
    """
    if checks.get("y_numeric"):
        check_numbers(y)
    return _converted(lambda frame, **order: validate_data(estimator, frame, y, **order, **checks), X)


def checked_model_data(estimator, X, y):
    """X, the targets of a model to be fitted first or None, and what it returns: "predict" or "predict_proba"."""
    response = resolve_response(estimator.estimator, estimator.response_method)
    checks = {"dtype": np.float64, "ensure_min_samples": 2}
    if y is None:
        return checked_data(estimator, X, **checks), None, response
    X, y = checked_data(estimator, X, y, multi_output=True, y_numeric=response == "predict", **checks)
    return X, check_targets(y, response), response


def checked_samples(X):
    """X as a float64 array in C order, a copy of its own, for functions."""
    return _converted(lambda frame, **order: check_array(frame, dtype=np.float64, **order), X)


def merged_samples(X, y, sample_weight=None, class_weight=None):
    """Distinct samples X (m, D), y, and their weights (m,) with mean one, None if these are all equal.

    See `merged_order`.
    """
    order, weights = merged_order(X, y, sample_weight, class_weight)
    return X[order], y[order], weights


def merged_order(X, y, sample_weight=None, class_weight=None):
    """Indices (m,) of distinct samples in an order that their values determine, and their weights (m,) or None.

    Equal samples are merged and their weights added, and samples of weight zero are left out: integer weights and
    repetitions are the same input to a fit, whatever it splits or draws. Weights have mean one, and are None if they
    are all equal. `class_weight` (a dict, or "balanced" for classes of equal weight) multiplies those of the classes.
    """
    w = np.ones(len(X)) if sample_weight is None else checked_weights(sample_weight, X)
    used = np.flatnonzero(w)
    numbers = y if y.dtype.kind in "fiub" else np.unique(y, return_inverse=True)[1]
    # Sorted by value, the first column first, so that positive factors of the columns do not change the order.
    columns = [column[used] for column in (*numbers.reshape(len(X), -1).T, *X.T[::-1])]
    order = np.lexsort(columns)
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    order, first = used[order], np.flatnonzero(is_new)
    w, order = np.add.reduceat(w[order], first), order[first]
    if class_weight is not None:
        w = w * _weights_of_classes(class_weight, y[order], w)
        order, w = order[w > 0], w[w > 0]
    shuffled = np.random.RandomState(0).permutation(len(order))
    order, w = order[shuffled], w[shuffled]
    equal = np.ptp(w) <= FEW_ROUNDINGS * w.max()
    return order, None if equal else w * (len(w) / w.sum())


def checked_weights(sample_weight, X):
    """Weights (n,) of samples; ValueError unless they are finite, nonnegative and not all zero.

    Divided by the largest if that is beyond 1e50 or below 1e-50.
    """
    checks = {"ensure_non_negative": True, "allow_all_zero_weights": True}
    w = _check_sample_weight(sample_weight, X, dtype=np.float64, **checks)
    if not w.any():
        raise ValueError("sample_weight is zero for all samples, so none is left to fit. Pass positive weights.")
    return w if 1.0 / _LARGE_WEIGHT < w.max() < _LARGE_WEIGHT else w / w.max()


def _weights_of_classes(class_weight, y, w):
    """The factor of each sample (n,) of weight w (n,) for its label in y (n,)."""
    classes, codes = np.unique(y, return_inverse=True)
    if isinstance(class_weight, str):  # "balanced": by the weights of the samples, so that these count as repetitions
        return (w.sum() / (len(classes) * np.bincount(codes, w)))[codes]
    unknown, missing = set(class_weight) - set(classes.tolist()), set(classes.tolist()) - set(class_weight)
    if unknown and missing:
        raise ValueError(
            f"class_weight names classes that y does not have, {sorted(map(str, unknown))}, and not its classes "
            f"{sorted(map(str, missing))}. Use the labels of y as keys, or class_weight='balanced'."
        )
    factors = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    if not (np.isfinite(factors).all() and (factors >= 0).all() and factors.any()):
        raise ValueError(
            f"class_weight must have finite values >= 0, not all zero; got {class_weight!r}. Use "
            "class_weight='balanced' for classes of equal weight."
        )
    return factors[codes]


def _converted(check, X):
    frame = as_frame(X)
    try:
        data = check(frame, order="C", copy=True)
    except (ValueError, TypeError) as error:
        _refuse_text(frame, error)
        raise
    return (data[0], np.array(data[1], order="C")) if isinstance(data, tuple) else data


def _refuse_text(frame, error):
    """Name the first column of a DataFrame that is not of numbers, if there is one."""
    for name in getattr(frame, "columns", ()):
        column = frame[name].to_numpy()
        try:
            column.astype(np.float64)
        except (ValueError, TypeError):
            raise ValueError(
                f"column {name!r} of X is not numeric: its first value is {column[0]!r}. Encode it. If a pipeline "
                "does, pass its last step, pipeline[-1], with X=pipeline[:-1].transform(X)."
            ) from error
