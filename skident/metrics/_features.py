"""Errors of learned hidden features, and the change of neurons during training."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_array

from skident.linalg import svd

__all__ = ["feature_recovery_error", "neuron_correlation"]


def feature_recovery_error(true_features, features):
    """Relative squared error of features up to a rotation of the units, the quantity of Theorem 2.

    ``min_U ||S* - S U||_F^2 / ||S*||_F^2`` over orthogonal U (Procrustes): the sum of squared features is
    invariant under rotations of the units. If one has fewer units, units that are zero are added.

    Parameters
    ----------
    true_features : array-like of shape (n, k)
        ``S*_l(x)``, one row per input.
    features : array-like of shape (n, k')
        ``S_l(x)`` at the same inputs.

    Returns
    -------
    float
        0 for features equal up to rotation, 1 for zero features.

    Raises
    ------
    ValueError
        If the numbers of rows differ or the true features are zero.

    Notes
    -----
    Source: Allen-Zhu, Li (2020), Theorem 2. Cost: ``O(n k k')``. Computed from differences, so tiny errors
    keep their digits.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.metrics import feature_recovery_error
    >>> S = np.random.default_rng(0).standard_normal((100, 2))
    >>> rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> print(round(feature_recovery_error(S, S @ rotation), 12))
    0.0
    """
    S = check_array(true_features, dtype=np.float64, input_name="true_features")
    T = check_array(features, dtype=np.float64, input_name="features")
    if len(S) != len(T):
        raise ValueError(
            f"true_features and features must be of the same inputs, one row each; got {len(S)} and {len(T)} rows."
        )
    size = float(np.sum(S**2))
    if size == 0:
        raise ValueError("true_features are all zero; their relative error is not defined.")
    k = max(S.shape[1], T.shape[1])
    S, T = (np.pad(A, ((0, 0), (0, k - A.shape[1]))) for A in (S, T))
    U, _, Vt = svd(T.T @ S)
    return float(np.sum((S - T @ (U @ Vt)) ** 2)) / size


def neuron_correlation(before, after, *, match=False):
    """Mean cosine between the neurons' weight vectors before and after, ``mean_i <w_i, w'_i> / (|w_i| |w'_i|)``.

    Parameters
    ----------
    before, after : array-like of shape (k, p)
        One neuron per row, with all its incoming weights.
    match : bool, default=False
        Pair neurons so that the sum of ``|cos|`` is largest, and take ``|cos|``. Set it for networks that were not
        trained from one another: their neurons have any order and sign.

    Returns
    -------
    float
        In [-1, 1]; neurons that are zero on one side count 0.

    Raises
    ------
    ValueError
        If the shapes differ.

    Notes
    -----
    Source: Allen-Zhu, Li (2020), Figure 9 ("average weight correlation").

    Examples
    --------
    >>> import numpy as np
    >>> from skident.metrics import neuron_correlation
    >>> print(round(neuron_correlation(np.eye(2), [[1.0, 0.0], [1.0, 1.0]]), 6))
    0.853553
    """
    A = check_array(before, dtype=np.float64, input_name="before")
    B = check_array(after, dtype=np.float64, input_name="after")
    if A.shape != B.shape:
        raise ValueError(f"before and after must have one shape, one neuron per row; got {A.shape} and {B.shape}.")
    A, B = (M / np.maximum(np.linalg.norm(M, axis=1, keepdims=True), np.finfo(float).tiny) for M in (A, B))
    if not match:
        return float(np.mean(np.sum(A * B, axis=1)))
    cosines = np.abs(A @ B.T)
    return float(np.mean(cosines[linear_sum_assignment(cosines, maximize=True)]))
