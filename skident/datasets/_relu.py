"""Samples of random depth-2 ReLU networks."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from skident.network import FeedforwardNetwork

from ._checks import check_count, check_real

__all__ = ["make_relu_network"]

_OUTPUT_WEIGHTS = (1.0, 2.0)  # range of their absolute values: no unit is negligible


def make_relu_network(
    n_samples=100,
    n_features=20,
    n_units=10,
    *,
    noise=0.0,
    bias_range=1.0,
    perturbation=None,
    base_weights=None,
    random_state=None,
):
    """Gaussian inputs, the outputs of a random network ``sum_i a_i relu(w_i . x + b_i)``, and the network.

    Biases are uniform in ``[-bias_range, bias_range]`` and output weights uniform in ``[1, 2]`` with random signs. The
    w_i are uniform on the unit sphere, or, with `perturbation`, come from the smoothed-analysis model of Appendix E
    of [1]_: given weights plus independent Gaussian steps.

    Parameters
    ----------
    n_samples : int, default=100
    n_features : int, default=20
        d.
    n_units : int, default=10
        m; may be larger than d.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise in y, relative to that of the network's outputs.
    bias_range : float, default=1.0
    perturbation : float, default=None
        tau: entries of the weights are those of `base_weights` plus N(0, tau^2 / d). Columns are then scaled to norm 1,
        which moves a factor into b and a.
    base_weights : array-like of shape (n_features, n_units), default=None
        Weights to perturb; by default the worst case: all units alike.
    random_state : int, RandomState instance or None, default=None
        The network depends on it, on the sizes of the network and on its options, but not on n_samples and noise.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Independent standard normal entries.
    y : ndarray of shape (n_samples,)
    network : FeedforwardNetwork
        With one output, without noise.

    Raises
    ------
    ValueError
        If an argument is out of range, or `base_weights` has another shape or comes without `perturbation`.

    References
    ----------
    .. [1] P. Awasthi, A. Tang, A. Vijayaraghavan (2021). Efficient Algorithms for Learning Depth-2 Neural Networks with
       General ReLU Activations.

    Examples
    --------
    >>> from skident.datasets import make_relu_network
    >>> X, y, network = make_relu_network(100, n_features=5, n_units=3, random_state=0)
    >>> print(abs(network(X)[:, 0] - y).max())
    0.0
    """
    n_samples = check_count("n_samples", n_samples)
    n_features = check_count("n_features", n_features)
    n_units = check_count("n_units", n_units)
    noise = check_real("noise", noise, lambda v: 0 <= v < np.inf, "a number >= 0")
    bias_range = check_real("bias_range", bias_range, lambda v: 0 <= v < np.inf, "a number >= 0")
    rng = check_random_state(random_state)
    W = _weights(n_features, n_units, perturbation, base_weights, rng)
    b = rng.uniform(-bias_range, bias_range, n_units)
    a = rng.choice([-1.0, 1.0], n_units) * rng.uniform(*_OUTPUT_WEIGHTS, n_units)
    lengths = np.linalg.norm(W, axis=0)
    network = FeedforwardNetwork([W / lengths, (a * lengths)[:, None]], [b / lengths, np.zeros(1)], "relu")
    X = rng.standard_normal((n_samples, n_features))
    y = network(X)[:, 0]
    if noise:
        y = y + noise * y.std() * rng.standard_normal(n_samples)
    return X, y, network


def _weights(n_features, n_units, perturbation, base_weights, rng):
    """Columns: directions on the sphere, or perturbed base weights."""
    if perturbation is None:
        if base_weights is not None:
            raise ValueError("base_weights are the weights to perturb; give perturbation too.")
        W = rng.standard_normal((n_features, n_units))
        return W / np.linalg.norm(W, axis=0)
    tau = check_real("perturbation", perturbation, lambda v: 0 < v < np.inf, "a number > 0")
    if base_weights is None:
        base_weights = np.full((n_features, n_units), 1.0 / np.sqrt(n_features))
    base_weights = np.asarray(base_weights, dtype=np.float64)
    if base_weights.shape != (n_features, n_units) or not np.isfinite(base_weights).all():
        raise ValueError(
            f"base_weights must be finite, of shape ({n_features}, {n_units}), one column per unit; "
            f"got shape {base_weights.shape}."
        )
    return base_weights + tau / np.sqrt(n_features) * rng.standard_normal((n_features, n_units))
