"""Determine the affine map of a fitted scikit-learn transformer from its values."""

import numpy as np

from skident.budget.constants import FEW_ROUNDS

_AFFINE_TOL = 1e-9  # deviation from an affine map, relative to its terms: rounding of a float64 transformer is 1e-12


def named_method(estimator, method):
    """An estimator's method as a function of arrays, with the column names that `fit` saw.

    Parameters
    ----------
    estimator : fitted estimator
    method : str
        ``"predict"``, ``"predict_proba"`` or ``"transform"``.

    Returns
    -------
    callable
        Of DataFrames, which are passed on, or arrays (n, D). These become DataFrames if the estimator was fitted on one
        and pandas is installed: steps that select columns by name need them, others check them.
    """
    function = getattr(estimator, method)
    if not hasattr(estimator, "feature_names_in_"):
        return function
    try:
        import pandas
    except ImportError:  # fitted on another kind of frame
        return function

    def of_frames(X):
        named = hasattr(X, "columns")
        return function(X if named else pandas.DataFrame(X, columns=estimator.feature_names_in_, copy=False))

    return of_frames


def affine_map(transformer):
    """Matrix and offset of an affine transformer.

    Parameters
    ----------
    transformer : fitted transformer
        With ``transform`` and ``n_features_in_``.

    Returns
    -------
    A : ndarray of shape (D, k)
    c : ndarray of shape (k,)
        ``transformer.transform(X) = X @ A + c``.

    Raises
    ------
    ValueError
        If it raises, or is not affine.

    Notes
    -----
    ``3 D + 1`` rows determine the map, 8 more check it. Steps are long enough to move the values by more than the
    transformer's offset, so that no digits are lost if it subtracts a large mean.

    Examples
    --------
    >>> from sklearn.preprocessing import MinMaxScaler
    >>> from skident.network import affine_map
    >>> A, c = affine_map(MinMaxScaler().fit([[2.0], [6.0]]))
    >>> print(A, c)
    [[0.25]] [-0.5]
    """
    name = type(transformer).__name__
    if not hasattr(transformer, "transform") or not hasattr(transformer, "n_features_in_"):
        raise ValueError(f"{name} is not a fitted transformer (of a pipeline pass pipeline[:-1]).")
    return affine_function(named_method(transformer, "transform"), transformer.n_features_in_, name)


def affine_function(function, n_inputs, name):
    """`affine_map` of a function (n, D) to (n, k), dense or sparse; `name` is for messages."""
    evaluate = lambda X: _values(function, X, name)  # noqa: E731
    A, c, steps = None, evaluate(np.zeros((1, n_inputs)))[0], np.ones(n_inputs)
    for _ in range(FEW_ROUNDS):
        A = (evaluate(np.diag(steps)) - c) / steps[:, None]
        # Steps that move the values by more than the offset: then no digits are lost in the difference.
        rate = np.abs(A).max(axis=1)
        wanted = np.where(rate > 0, 4.0 * np.abs(c).max() / np.where(rate > 0, rate, 1.0), 1.0)
        steps = np.where(np.isfinite(wanted) & (wanted > 0), 2.0 ** np.ceil(np.log2(np.clip(wanted, 1e-30, 1e30))), 1.0)
    X = np.random.RandomState(0).standard_normal((8, n_inputs)) * steps * np.array([0.1, 1.0, 3.0, 10.0] * 2)[:, None]
    size = np.abs(X) @ np.abs(A) + np.abs(c)
    gap = np.abs(evaluate(X) - (X @ A + c)) / np.maximum(size, np.finfo(float).tiny)
    if not gap.max() < _AFFINE_TOL:
        raise ValueError(f"{name} is not affine (it deviates by {gap.max():.1e} from a matrix and an offset).")
    return A, c


def _values(function, X, name):
    """Values (n, k) of the function at X (n, D), checked."""
    try:
        values = function(X)
        values = values.toarray() if hasattr(values, "toarray") else values
        values = np.array(values, dtype=np.float64)
    except Exception as error:
        raise ValueError(
            f"{name} failed while its affine map was determined: {type(error).__name__}: {error}"
        ) from error
    if values.ndim != 2 or len(values) != len(X) or values.shape[1] == 0:
        raise ValueError(f"{name} gave shape {values.shape} for {len(X)} rows; expected ({len(X)}, n_features).")
    return values
