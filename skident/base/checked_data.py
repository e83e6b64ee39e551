"""The entry of X and y into every estimator: checked by scikit-learn, and copied once into C order."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from skident.oracle.black_box import as_frame

from .parameters import check_numbers

__all__ = ["checked_data", "checked_samples", "in_own_order"]


def checked_data(estimator, X, y="no_validation", **checks):
    """X, or X and y, of an estimator's method as arrays in C order, a copy of their own: layouts give the same bits.

    `checks` are those of `validate_data` of scikit-learn.
    """
    if checks.get("y_numeric"):
        check_numbers(y)
    return _converted(lambda frame, **order: validate_data(estimator, frame, y, **order, **checks), X)


def checked_samples(X):
    """X as a float64 array in C order, a copy of its own, for functions."""
    return _converted(lambda frame, **order: check_array(frame, dtype=np.float64, **order), X)


def in_own_order(X, y):
    """X (n, D) and y in a random order of rows that their values determine: the order they came in plays no part."""
    numbers = y if y.dtype.kind in "fiub" else np.unique(y, return_inverse=True)[1]
    # Sorted by value, the first column first, so that positive factors of the columns do not change the order.
    sorted_rows = np.lexsort((*numbers.reshape(len(X), -1).T, *X.T[::-1]))
    order = sorted_rows[np.random.RandomState(0).permutation(len(X))]
    return X[order], y[order]


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
