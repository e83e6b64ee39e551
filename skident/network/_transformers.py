"""Fitted transformers as affine maps, found by asking them."""

from __future__ import annotations

import numpy as np

_TOLERANCE = 1e-9  # of the affine form, relative to the values it takes
_LOST = 1e-6  # share of the first layer that may lie outside of what a transformer lets through


def named_method(estimator, method):
    """An estimator's method, of rows that carry the column names of `fit`: by-name steps need them, others check.

    Parameters
    ----------
    estimator : fitted estimator
    method : str
        ``"predict"``, ``"predict_proba"`` or ``"transform"``.

    Returns
    -------
    callable
        Of arrays (n, D). They become frames where the estimator was fitted on one and pandas is there.
    """
    function = getattr(estimator, method)
    if not hasattr(estimator, "feature_names_in_"):
        return function
    try:
        import pandas
    except ImportError:  # fitted on another kind of frame
        return function
    return lambda X: function(pandas.DataFrame(X, columns=estimator.feature_names_in_))


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
        If it cannot be asked, or is not affine.

    Notes
    -----
    ``3 D + 1`` rows to find the map, 8 to check it. Steps are long enough to move the values by more than the
    transformer's offset, so no digits are lost where it takes off a large mean.

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
        raise ValueError(f"{name} is no fitted transformer (of a pipeline pass pipeline[:-1]).")
    return affine_function(named_method(transformer, "transform"), transformer.n_features_in_, name)


def affine_function(function, n_inputs, name):
    """`affine_map` of a function.

    Parameters
    ----------
    function : callable
        (n, D) to (n, k), dense or sparse.
    n_inputs : int
        D.
    name : str
        What error messages call it.

    Returns
    -------
    A : ndarray of shape (D, k)
    c : ndarray of shape (k,)

    Raises
    ------
    ValueError
        If it raises, gives another shape, or deviates from its affine map by more than 1e-9 of the values.
    """
    ask = lambda X: _asked(function, X, name)  # noqa: E731
    A, c, steps = None, ask(np.zeros((1, n_inputs)))[0], np.ones(n_inputs)
    for _ in range(3):
        A = (ask(np.diag(steps)) - c) / steps[:, None]
        # Steps that move the values by more than the offset: then no digits are lost in the difference.
        rate = np.abs(A).max(axis=1)
        wanted = np.where(rate > 0, 4.0 * np.abs(c).max() / np.where(rate > 0, rate, 1.0), 1.0)
        steps = np.where(np.isfinite(wanted) & (wanted > 0), 2.0 ** np.ceil(np.log2(np.clip(wanted, 1e-30, 1e30))), 1.0)
    X = np.random.RandomState(0).standard_normal((8, n_inputs)) * steps * np.array([0.1, 1.0, 3.0, 10.0] * 2)[:, None]
    unit = np.abs(X) @ np.abs(A) + np.abs(c)
    gap = np.abs(ask(X) - (X @ A + c)) / np.maximum(unit, np.finfo(float).tiny)
    if not gap.max() < _TOLERANCE:
        raise ValueError(f"{name} is not affine (it deviates by {gap.max():.1e} from a matrix and an offset).")
    return A, c


def _asked(function, X, name):
    try:
        values = function(X)
        values = values.toarray() if hasattr(values, "toarray") else values
        values = np.array(values, dtype=np.float64)
    except Exception as error:
        raise ValueError(f"{name} could not be asked for its affine map: {type(error).__name__}: {error}") from error
    if values.ndim != 2 or len(values) != len(X) or values.shape[1] == 0:
        raise ValueError(f"{name} gave shape {values.shape} for {len(X)} rows; expected ({len(X)}, n_features).")
    return values


def solve_first_layer(A, W):
    """The weights V with ``A V = W``, by least squares on rows and columns of A brought to length 1.

    Parameters
    ----------
    A : ndarray of shape (D, k)
    W : ndarray of shape (D, m)

    Returns
    -------
    ndarray of shape (k, m)

    Raises
    ------
    ValueError
        If A does not determine V, or there is none.
    """
    rows = np.linalg.norm(A, axis=1)
    rows[rows == 0.0] = 1.0
    B = A / rows[:, None]
    columns = np.linalg.norm(B, axis=0)
    if B.shape[1] > B.shape[0] or not columns.all() or np.linalg.matrix_rank(B / columns, tol=1e-10) < B.shape[1]:
        raise ValueError(
            f"the transformer's {B.shape[1]} features depend on each other, so the network behind it is not determined."
        )
    V = np.linalg.lstsq(B / columns, W / rows[:, None], rcond=None)[0] / columns[:, None]
    lost = np.abs(A @ V - W).max() / max(np.abs(W).max(), np.finfo(float).tiny)
    if lost > _LOST:
        raise ValueError(
            f"the network is no function of the transformer's features: {lost:.1e} of its first layer's weights lie "
            "outside of what the transformer lets through."
        )
    return V
