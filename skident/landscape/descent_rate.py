"""The rate at which gradient descent converges near a network that fits the data: Theorem 2.5 as a computation."""

import numpy as np

from skident.network import get_activation

from .quadratic_form import check_point


def descent_rate(W, v, X, *, activation):
    """Largest step size of gradient descent at a network, and the factor by which its loss falls per step there.

    Parameters
    ----------
    W : array-like of shape (k, d)
        Hidden weights of a network that fits the data, one unit per row.
    v : array-like of shape (k,)
        Output weights, trained too.
    X : array-like of shape (n, d)
    activation : str or Activation
        See :func:`skident.network.get_activation`.

    Returns
    -------
    step : float
        ``1 / beta = n / s_max^2``, with the singular values s of the Jacobian J (n, k d + k) of the outputs.
    factor : float
        ``(1 - s_min^2 / s_max^2)^2``: near this network the losses of gradient descent with this step fall by at least
        this factor per step. 1, no guarantee, with fewer weights than samples.

    Raises
    ------
    ValueError
        If shapes do not match, or values are not finite.

    Notes
    -----
    Theorem 2.5 of [1]_ states ``L_tau <= (1 - c alpha d / n)^tau L_0`` with a constant c that it does not give. The
    residual r of a network near this one changes by ``- alpha / n J J^T r`` per step, so that ``c = 2 s_min^2 / d`` to
    first order in alpha. Cost: ``O(n^2 k d)``.

    References
    ----------
    .. [1] M. Soltanolkotabi, A. Javanmard, J. D. Lee, "Theoretical insights into the optimization landscape of
       over-parameterized shallow neural networks", 2017 (revised 2022).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_planted_shallow
    >>> from skident.landscape import descent_rate
    >>> from skident.network import get_activation
    >>> X, y, W, v = make_planted_shallow(12, 8, 10, activation="tanh", coef=True, random_state=0)
    >>> step, factor = descent_rate(W, v, X, activation="tanh")
    >>> W, v, losses = W + 1e-4, v - 1e-4, []
    >>> for _ in range(800):
    ...     value, slope = get_activation("tanh").jet(X @ W.T, 1)
    ...     r = (value @ v - y) / len(y)
    ...     losses.append(len(y) * r @ r / 2)
    ...     W, v = W - step * v[:, None] * ((slope * r[:, None]).T @ X), v - step * value.T @ r
    >>> print(round(losses[-1] / losses[-2] / factor, 4))
    1.0
    """
    W, v, X, _ = check_point(W, v, X, np.zeros(len(X)))
    value, slope = get_activation(activation).jet(X @ W.T, 1)
    n = len(X)
    # J J^T is the sum of those of the output weights and, unit by unit, the hidden weights.
    values = np.linalg.eigvalsh(value @ value.T + (slope * v) @ (slope * v).T * (X @ X.T))
    least = max(float(values[0]), 0.0) if n <= W.size + len(v) else 0.0
    return n / float(values[-1]), (1.0 - least / float(values[-1])) ** 2
