"""Columns by name: one place decides which DataFrames a model gets, and refuses columns that it does not know."""

import functools
import re
import sys
from collections import Counter

from sklearn.utils.validation import validate_data

# Texts of libraries about columns that are unknown, missing or in another order. NaN: what a model that aligns columns
# by name has in those that are missing.
_ABOUT_NAMES = re.compile(r"feature|column|\bnan\b", re.IGNORECASE)


def as_frame(X):
    """X itself, or as a pandas DataFrame if it is a table with column names of a kind that scikit-learn does not read.

    ValueError if column names are not unique.
    """
    names = _names_of(X)
    if not names:
        return X
    repeated = [str(name) for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"X has duplicate column names: {', '.join(map(repr, repeated))}. Give every column a name of its own, or "
            "pass X.to_numpy() to use columns by their positions."
        )
    if "pandas" in sys.modules and isinstance(X, sys.modules["pandas"].DataFrame) or "polars" in type(X).__module__:
        return X
    try:
        import pandas
    except ImportError:
        return X
    return X.to_pandas() if hasattr(X, "to_pandas") else pandas.DataFrame(X.to_numpy(), columns=names)


def _names_of(X):
    """Column names of a DataFrame of any library; None for what has none."""
    names = getattr(X, "column_names", None)  # pyarrow, whose `columns` are data
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None or not hasattr(X, "to_numpy") and not hasattr(X, "to_pandas") else list(names)


def frames_like(frame):
    """A function that puts rows (n, D) into a DataFrame with the columns of `frame`; None if these have no names.

    Names are text, as scikit-learn requires. The rows stay in C order, so that a model computes the same bits as from
    an array.
    """
    names = _names_of(as_frame(frame))
    if not names or not all(isinstance(name, str) for name in names):
        return None
    if "polars" in type(frame).__module__:
        return lambda X: type(frame)(X, names)
    import pandas

    return lambda X: pandas.DataFrame(X, columns=names, copy=False)


def named_rows(X, frame):
    """X (n, D) as a DataFrame with the columns of `frame` if these have names; else X."""
    framed = frames_like(frame)
    return X if framed is None else framed(X)


def fitted_with_names(model):
    """The estimator with `feature_names_in_` that a model is, or whose method it is, also in `functools.partial`."""
    while isinstance(model, functools.partial):
        model = model.func
    estimator = getattr(model, "__self__", model)
    return estimator if hasattr(estimator, "feature_names_in_") else None


def check_columns(model, X):
    """Raise the error of scikit-learn if the columns of X are not those that a model was fitted with, in their order.

    For models that are read rather than queried: their inputs are those of `fit`.
    """
    estimator = fitted_with_names(model)
    if estimator is not None and frames_like(X) is not None:
        validate_data(estimator, X, reset=False, skip_check_array=True)


def is_about_names(error, names):
    """Whether an exception, or one that caused it, is about the names of columns."""
    while error is not None:
        text = str(error)
        if _ABOUT_NAMES.search(text) or any(repr(name) in text for name in names):
            return True
        if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
            return True
        error = error.__cause__ or error.__context__
    return False
