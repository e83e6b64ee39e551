"""The rest of the network on the vertices of the cube that a saturated first layer spans."""

from __future__ import annotations

import numpy as np

from skident.network import FeedforwardNetwork, get_activation
from skident.optim import give_up_when_slow

from .least_squares import NetworkLeastSquares, minimise
from .polish import change_outputs, output_units

__all__ = ["ask_vertices", "fit_from_random_starts", "network_from_vertices"]

_SATURATED = 40.0  # |z| beyond which tanh, sigmoid and erf are constant in float64


def ask_vertices(oracle, first, activation, n_samples, rng):
    """Answers with every first-layer unit saturated.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
        Weights up to sign, shifts only roughly.
    activation : Activation
        Saturating.
    n_samples : int
        Different vertices wanted; with m_1 > D those in reach of random far inputs.
    rng : numpy.random.RandomState

    Returns
    -------
    H : ndarray of shape (n, m_1)
        First-layer outputs, each one of the activation's two limits.
    Y : ndarray of shape (n, m_L)

    Notes
    -----
    For m_1 <= D any vertex is reached by ``u = pinv(W^T) (K s - tau)``. One query a vertex.
    """
    W, b = first.weights, first.biases
    D, m = W.shape
    if m <= D and np.linalg.cond(W) < 1e6:
        signs = np.unique(rng.choice([-1.0, 1.0], size=(n_samples, m)), axis=0)
        U = np.linalg.lstsq(W.T, (1.5 * _SATURATED * signs - b).T, rcond=None)[0].T
    else:
        U = first.radius * _far_directions(rng, 4 * n_samples, D)
        Z = U @ W + b
        U = U[np.abs(Z).min(axis=1) > _SATURATED][:n_samples]
        signs = np.sign(U @ W + b)
    low, high = activation.limits
    return np.where(signs > 0, high, low), oracle(U)


def _far_directions(rng, n, D):
    U = rng.standard_normal((n, D))
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def fit_from_random_starts(
    H, Y, widths, activation, output_activation, rng, *, n_starts=12, max_iter=150, tol=1e-10, callback=None
):
    """A network through given answers, by Levenberg-Marquardt from random starts until one fits.

    Parameters
    ----------
    H : ndarray of shape (n, m_0)
    Y : ndarray of shape (n, m_L)
        Six to nine times as many scalar answers as parameters make most starts succeed when there are several outputs.
    widths : sequence of int
        Layer widths, the last ``m_L``.
    activation, output_activation : str
    rng : numpy.random.RandomState
    n_starts, max_iter : int
    tol : float
        Relative root mean square misfit that counts as found.
    callback : callable, default=None
        ``callback(start)``; called before each start.

    Returns
    -------
    network : FeedforwardNetwork
        The best.
    misfit : float
        Its relative root mean square misfit; relative to the standard deviations of Y where the output is linear.

    Notes
    -----
    A start that no longer halves its cost within 12 steps, still above `tol`, is dropped.
    """
    shapes = list(zip((H.shape[1], *widths[:-1]), widths, strict=True))
    layers = FeedforwardNetwork(
        [np.ones(s) for s in shapes], [np.zeros(s[1]) for s in shapes], activation, output_activation
    ).activations
    offset, unit = output_units(Y, output_activation)
    Y = (Y - offset) / unit
    # Far from a solution a rough step is as good as an exact one, and many times cheaper.
    problem = NetworkLeastSquares(shapes, layers, H, Y, dense_limit=200, inner_tol=0.1)
    total = max(float(np.sum(Y**2)), np.finfo(float).tiny)
    best = None
    for start in range(n_starts):
        if callback is not None:
            callback(start)
        weights = [rng.standard_normal(s) / np.sqrt(s[0]) for s in shapes]
        biases = [0.3 * rng.standard_normal(s[1]) for s in shapes]
        result = minimise(
            problem,
            problem.flatten(weights, biases),
            max_iter=max_iter,
            target=1e-28 * total,
            ftol=1e-3,
            callback=give_up_when_slow(12, tol**2 * total),
        )
        if best is None or result.cost < best.cost:
            best = result
        if best.cost < tol**2 * total:
            break
    network = FeedforwardNetwork(*problem.unflatten(best.x), activation, output_activation)
    return change_outputs(network, offset, unit), np.sqrt(best.cost / total)


def network_from_vertices(oracle, first, widths, activation, output_activation, rng, *, n_starts=None, callback=None):
    """A network that agrees with the black box wherever its first layer is saturated.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
        With all ``m_1 = widths[0]`` units.
    widths : sequence of int
        ``(m_1, ..., m_L)``.
    activation, output_activation : str
    rng : numpy.random.RandomState
    n_starts : int, default=None
        Starts at most; by default ``3e6 / P_rest^2``, at least 12 and at most 600: with a single output one start in a
        hundred succeeds, but takes a hundredth of a second.
    callback : callable, default=None
        See `fit_from_random_starts`.

    Returns
    -------
    network : FeedforwardNetwork
        Of standardised inputs. First-layer shifts are those of `first`, good to about 0.1: the polish mends them.
    misfit : float
        Relative root mean square misfit on the vertices.

    Notes
    -----
    On the vertices the answer does not depend on the first layer's lengths and shifts, so the rest of the network can
    be fitted alone, with one layer less. ``8 P_rest / m_L`` queries.
    """
    n_rest = sum((a + 1) * c for a, c in zip(widths[:-1], widths[1:], strict=True))
    n = 8 * n_rest // widths[-1] + 50
    H, Y = ask_vertices(oracle, first, get_activation(activation), n, rng)
    if n_starts is None:
        n_starts = int(np.clip(3e6 / n_rest**2, 12, 600))
    rest, misfit = fit_from_random_starts(
        H, Y, widths[1:], activation, output_activation, rng, n_starts=n_starts, callback=callback
    )
    weights, biases = [first.weights, *rest.weights], [first.biases, *rest.biases]
    return FeedforwardNetwork(weights, biases, activation, output_activation), misfit
