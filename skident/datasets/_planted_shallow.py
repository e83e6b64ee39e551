"""Data of a shallow network that is known, or of none."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from skident.network import get_activation

from ._checks import check_count, check_real

__all__ = ["make_planted_shallow"]


def make_planted_shallow(
    n_samples,
    n_features,
    n_hidden,
    *,
    activation="quadratic",
    sharpness=1.0,
    output_signs="positive",
    labels="planted",
    noise=0.0,
    coef=False,
    random_state=None,
):
    """Gaussian inputs, labelled by a random network with one hidden layer: the data of [1]_, Section 3.

    ``y_i = sum_l v_l g(w_l . x_i)`` with ``x_i`` from N(0, I) and the entries of W from N(0, 1 / d).

    Parameters
    ----------
    n_samples, n_features, n_hidden : int
        n, d, k.
    activation : str or Activation, default="quadratic"
        See :func:`skident.network.get_activation`.
    sharpness : float, default=1
        b of ``g(b z) / b``; [1]_ takes softplus with 10.
    output_signs : {"positive", "negative", "mixed"} or array-like of shape (k,), default="positive"
        v: all 1, all -1, random signs, or given.
    labels : {"planted", "random"}, default="planted"
        ``random``: labels from N(0, 1) instead, which no network knows of.
    noise : float, default=0
        Standard deviation of noise on planted labels.
    coef : bool, default=False
        Whether W and v are returned too.
    random_state : int, RandomState instance or None, default=None
        Source of the random numbers.

    Returns
    -------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    W : ndarray of shape (k, d)
        Only with ``coef=True``, as is v.
    v : ndarray of shape (k,)

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    .. [1] M. Soltanolkotabi, A. Javanmard, J. D. Lee, "Theoretical insights into the optimization landscape of
       over-parameterized shallow neural networks", 2017 (revised 2022).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_planted_shallow
    >>> X, y, W, v = make_planted_shallow(50, 4, 3, coef=True, random_state=0)
    >>> print(X.shape, round(float(np.abs((X @ W.T) ** 2 @ v - y).max()), 12))
    (50, 4) 0.0
    """
    n, d = check_count("n_samples", n_samples), check_count("n_features", n_features)
    k = check_count("n_hidden", n_hidden)
    sharpness = check_real("sharpness", sharpness, lambda b: 0 < b < np.inf, "a finite number > 0")
    noise = check_real("noise", noise, lambda s: 0 <= s < np.inf, "a finite number >= 0")
    if labels not in ("planted", "random"):
        raise ValueError(f"labels must be 'planted' or 'random', got {labels!r}.")
    g, rng = get_activation(activation), check_random_state(random_state)
    X, W = rng.standard_normal((n, d)), rng.standard_normal((k, d)) / np.sqrt(d)
    v = _output_weights(output_signs, k, rng)
    y = g(sharpness * (X @ W.T)) @ v / sharpness + noise * rng.standard_normal(n)
    if labels == "random":
        y = rng.standard_normal(n)
    return (X, y, W, v) if coef else (X, y)


def _output_weights(output_signs, k, rng):
    if isinstance(output_signs, str):
        if output_signs not in ("positive", "negative", "mixed"):
            raise ValueError(
                f"output_signs must be 'positive', 'negative', 'mixed' or {k} weights, got {output_signs!r}."
            )
        signs = rng.choice([-1.0, 1.0], size=k)
        return signs if output_signs == "mixed" else np.full(k, 1.0 if output_signs == "positive" else -1.0)
    v = np.asarray(output_signs, dtype=np.float64)
    if v.shape != (k,) or not np.isfinite(v).all():
        raise ValueError(f"output_signs given as an array must be {k} finite numbers, got shape {v.shape}.")
    return v
