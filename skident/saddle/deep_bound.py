"""An upper bound of escape speeds for ReLU networks of every depth, from bounds of depth two."""

import numpy as np

from .shallow_escape import fastest_shallow_escape
from .shallow_relaxation import Relaxation

_N_SHARES = 8  # values of sigma tried: each halves the interval that holds the best one (budget)


def deep_escape_bound(X, gradient, *, tol=1e-2, max_regions=2000, random_state=None):
    """Upper bound of ``-<G, f(X)>`` over bias-free ReLU networks f of every depth and width, layers of norm one.

    Parameters
    ----------
    X : array-like of shape (n, D)
        Inputs.
    gradient : array-like of shape (n,)
        G, the loss's gradient with respect to a single output.
    tol, max_regions, random_state
        Of `fastest_shallow_escape`.

    Returns
    -------
    float
        At least the speed of depth two, which every deeper network reaches. If both agree, depth makes no escape
        faster.

    Raises
    ------
    ValueError
        If the inputs are not finite, or do not match the gradient.

    Notes
    -----
    Let ``g = -w_L G`` for either sign of w_L. The pre-activations of the last hidden unit lie in the convex hull of
    ``+- relu(h)`` for those h that one layer less reaches. Replacing ``relu(h_j)`` by ``sigma h_j`` in the terms with
    ``g_j < 0`` raises the speed and makes it convex, so that it is largest at an extreme point. It is then at most the
    larger of two speeds with one layer less: of the gradient whose negative entries are multiplied by sigma, and of
    these entries alone, with positive sign. Repeated with sigma = 1, both are speeds of depth two, whatever the depth.
    The bound is the smallest over sigma in [0, 1]. It is tight if the negative entries alone are not faster.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skident.saddle import deep_escape_bound, fastest_shallow_escape
    >>> X, y = load_iris(return_X_y=True)
    >>> G = (y == 2) / 150 - 1 / 3 / 150
    >>> speed = fastest_shallow_escape(X - X.mean(axis=0), G, random_state=0).speed
    >>> print(round(deep_escape_bound(X - X.mean(axis=0), G, random_state=0) / speed, 3))
    1.0
    """
    shallow = fastest_shallow_escape(X, gradient, tol=tol, max_regions=max_regions, random_state=random_state)
    X, G = np.asarray(X, dtype=np.float64), np.asarray(gradient, dtype=np.float64)
    norms = np.linalg.norm(X, axis=1)
    scale = float(norms.max() * np.abs(G).max())
    if scale == 0:
        return 0.0
    used = (norms > 0) & (G != 0)
    U, g = X[used] / norms.max(), G[used] / np.abs(G).max()
    known = shallow.upper_bound / scale
    return scale * max(known, *(_side(U, -top * g, known) for top in (1.0, -1.0)))


def _side(X, g, known):
    """The bound of all depths for one sign of the last weight; values up to the known speed of depth two are alike."""
    losses = np.maximum(-g, 0.0)
    alone = _upper(X, losses, known)
    if alone <= known:
        return alone
    low, high, best = known / alone, 1.0, np.inf
    share = low
    for _ in range(_N_SHARES):
        both = _upper(X, np.where(g > 0, g, share * g), known)
        best = min(best, max(both, share * alone))
        if best <= known:
            break
        low, high = (share, high) if both > share * alone else (low, share)
        share = (low + high) / 2
    return best


def _upper(X, g, target):
    """Upper bound of depth two with weight one, without a split."""
    return Relaxation(X, g).bound(np.zeros(len(g), dtype=np.int8), target).upper
