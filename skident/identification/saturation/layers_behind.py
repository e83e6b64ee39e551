"""The rest of the network, seen where the first layer is saturated or where it moves."""

from __future__ import annotations

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.starts import network_through, smallest_network_through
from skident.network import FeedforwardNetwork, get_activation

__all__ = [
    "ask_interior",
    "ask_vertices",
    "growing",
    "network_from_interior",
    "network_from_stem",
    "network_from_vertices",
    "smallest_behind",
]

_SATURATED = 40.0  # |z| beyond which tanh, sigmoid and erf are constant in float64
_SPREAD = 1.0  # standard deviation of first-layer pre-activations where they move


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
        Different vertices wanted, of the ``2^m_1``; with m_1 > D those in reach of random far inputs.
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
        signs = _different_signs(n_samples, m, rng)
        U = np.linalg.lstsq(W.T, (1.5 * _SATURATED * signs - b).T, rcond=None)[0].T
    else:
        U = first.radius * _far_directions(rng, 4 * n_samples, D)
        Z = U @ W + b
        U = U[np.abs(Z).min(axis=1) > _SATURATED][:n_samples]
        if len(U) < min(n_samples, m + 2):
            raise ValueError(
                f"only {len(U)} of {4 * n_samples} inputs {first.radius:.2g} standard deviations away leave all {m} "
                "first-layer units saturated: some are too flat, or the black box is no network with these units."
            )
        signs = np.sign(U @ W + b)
    low, high = activation.limits
    return np.where(signs > 0, high, low), oracle(U)


def _different_signs(n, m, rng):
    """At most n different rows of m signs, in random order."""
    if 2**m <= n:
        return np.where((np.arange(2**m)[:, None] >> np.arange(m)) & 1, 1.0, -1.0)[rng.permutation(2**m)]
    if m < 30:
        codes = rng.randint(2**m, size=n) if 2**m > 50 * n else rng.permutation(2**m)[:n]
        return np.where((codes[:, None] >> np.arange(m)) & 1, 1.0, -1.0)
    return rng.choice([-1.0, 1.0], size=(n, m))


def _far_directions(rng, n, D):
    U = rng.standard_normal((n, D))
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def ask_interior(oracle, first, activation, n_samples, rng, spread=_SPREAD):
    """Answers with first-layer pre-activations from ``N(0, spread^2)``.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
        Weights and shifts exactly, ``m_1 <= D``; see `find_first_shifts`.
    activation : Activation
    n_samples : int
    rng : numpy.random.RandomState
    spread : float, default=1

    Returns
    -------
    H : ndarray of shape (n_samples, m_1)
        First-layer outputs.
    Y : ndarray of shape (n_samples, m_L)
    """
    Z = spread * rng.standard_normal((n_samples, len(first.biases)))
    return activation(Z), oracle((Z - first.biases) @ np.linalg.pinv(first.weights))


def growing(ask, limit=np.inf):
    """A sampler that remembers: ``sample(n)`` asks only for rows that it does not have.

    Parameters
    ----------
    ask : callable
        ``ask(n)`` gives about n new inputs and answers.
    limit : float, default=inf
        Rows there are; none are asked when there are as many.
    """
    parts = []

    def sample(n):
        have = sum(len(U) for U, _ in parts)
        if n > have and have < limit:
            parts.append(ask(n - have))
        U, Y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return U[:n], Y[:n]

    return sample


def network_from_vertices(oracle, first, widths, activation, output_activation, rng, **options):
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
    **options
        Of `network_through`: tol, budget, rounds, callback.

    Returns
    -------
    network : FeedforwardNetwork
        Of standardised inputs. First-layer shifts are those of `first`, good to some tenths: the polish mends them.
    misfit : float
        Relative root mean square misfit on the vertices.

    Notes
    -----
    On the vertices the answer does not depend on the first layer's lengths and shifts, so the rest of the network can
    be fitted alone, with one layer less. ``5 P / m_L`` queries with P parameters of the widest network tried.
    """
    g = get_activation(activation)
    sample = growing(lambda n: ask_vertices(oracle, first, g, n, rng), 2.0 ** len(first.biases))
    return _behind(sample, first, widths, activation, output_activation, rng, **options)


def network_from_interior(oracle, first, widths, activation, output_activation, rng, **options):
    """A network that agrees with the black box where its first layer moves, given that layer exactly.

    Parameters and returns are those of `network_from_vertices`; `first` must be exact (`find_first_shifts`).

    Notes
    -----
    Few vertices exist for a narrow first layer, and with one output they leave a fit with many local minima. Where the
    first layer moves there are as many answers as wanted, and smoother ones.
    """
    g = get_activation(activation)
    sample = growing(lambda n: ask_interior(oracle, first, g, n, rng))
    return _behind(sample, first, widths, activation, output_activation, rng, **options)


def _behind(sample, first, widths, activation, output_activation, rng, **options):
    rest, misfit = network_through(sample, widths[0], widths[1:], activation, output_activation, rng, **options)
    weights, biases = [first.weights, *rest.weights], [first.biases, *rest.biases]
    return FeedforwardNetwork(weights, biases, activation, output_activation), misfit


def network_from_stem(oracle, first, widths, activation, output_activation, rng, **options):
    """A network whose first layer starts where saturation found it, all others at random, fitted as a whole.

    Parameters and returns are those of `network_from_vertices`; `misfit` is on inputs near the units' hyperplanes.

    Notes
    -----
    For first layers whose shifts `find_first_shifts` does not determine (``m_2 >= m_1``, ``m_1 > D``) and that have too
    few vertices. A step costs ``O(n P^2)`` with all parameters P.
    """
    sample = growing(lambda n: _near_hyperplanes(oracle, first, n, rng))
    stem = first.weights, first.biases
    return network_through(sample, oracle.n_inputs, widths, activation, output_activation, rng, stem=stem, **options)


def _near_hyperplanes(oracle, first, n, rng):
    U = design_points(first.weights, first.biases, n, _SPREAD, rng)
    U = U[rng.permutation(len(U))]
    return U, oracle(U)


def smallest_behind(
    oracle,
    first,
    way,
    n_hidden,
    n_outputs,
    activation,
    output_activation,
    rng,
    *,
    n_next=None,
    max_neurons=200,
    **options,
):
    """The smallest network with a given number of layers behind the first.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
    way : {"vertices", "interior", "stem"}
        Where to look: see `network_from_vertices`, `network_from_interior`, `network_from_stem`.
    n_hidden : int
        Hidden layers behind the first.
    n_outputs : int
    activation, output_activation : str
    rng : numpy.random.RandomState
    n_next : int, default=None
        Width of the second layer, if known.
    max_neurons : int, default=200
        Hidden units behind the first layer at most.
    **options
        Of `smallest_network_through`: tol, budget, callback.

    Returns
    -------
    network : FeedforwardNetwork or None
        The whole network of standardised inputs; None if no such network explains the answers.
    misfit : float
    """
    g = get_activation(activation)
    hidden = (n_next or 1, *[1] * (n_hidden - 1))
    asks = {
        "vertices": lambda n: ask_vertices(oracle, first, g, n, rng),
        "interior": lambda n: ask_interior(oracle, first, g, n, rng),
        "stem": lambda n: _near_hyperplanes(oracle, first, n, rng),
    }
    sample = growing(asks[way], 2.0 ** len(first.biases) if way == "vertices" else np.inf)
    m_1, shift = len(first.biases), 0
    widths, options = (*hidden, n_outputs), dict(options, max_neurons=max_neurons)
    if way == "stem":
        widths, shift, options["stem"] = (m_1, *widths), 1, (first.weights, first.biases)
    exact = () if n_next is None else (shift,)
    n_inputs = oracle.n_inputs if way == "stem" else m_1
    network, misfit = smallest_network_through(
        sample, n_inputs, widths, activation, output_activation, rng, exact=exact, **options
    )
    if network is None or way == "stem":
        return network, misfit
    weights, biases = [first.weights, *network.weights], [first.biases, *network.biases]
    return FeedforwardNetwork(weights, biases, activation, output_activation), misfit
