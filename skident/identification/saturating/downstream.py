"""The rest of the network, seen where the first layer is saturated or where it moves."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.small_starts import network_from_small_starts, small_starts_serve
from skident.fitting.starts import Search, network_through, smallest_network_through
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from ..query_points import random_sphere
from .edges import network_on_edges

__all__ = [
    "query_interior",
    "query_vertices",
    "prefers_small_starts",
    "growing",
    "fit_downstream",
    "fit_smallest_downstream",
]

_SATURATED = 40.0  # |z| beyond which tanh, sigmoid and erf are constant in float64
_FAR_INPUTS, _MOST_VERTICES = 40_000, 3000  # random far inputs, of which different vertices are asked
_EDGE_ROUNDS = ((1.2, 40), (1.5, 80), (2.0, 80))  # see `network_through`: a start at vertices takes no time
_FEW_OUTPUTS = 3  # below, random starts of several hidden layers end in local minima
_SPREAD = 1.0  # standard deviation of first-layer pre-activations where they move


def query_vertices(oracle, first, activation, n_samples, rng):
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

    Raises
    ------
    ValueError
        If too few far inputs leave all units saturated.

    Notes
    -----
    For m_1 <= D any vertex is reached by ``u = pinv(W^T) (K s - tau)``. One query a vertex. Vertices whose logits a
    classifier's probabilities do not tell are left out.
    """
    signs, U = _at_vertices(oracle, first, n_samples, rng)
    low, high = activation.limits
    return _precise_rows(oracle, np.where(signs > 0, high, low), U)


def _precise_rows(oracle, H, U):
    """What stands beside the inputs U, (n, k), and the answers there, without those of a classifier that are lost."""
    Y, error = oracle.query(U)
    clear = oracle.is_precise(error)
    return H[clear], Y[clear]


def _at_vertices(oracle, first, n_samples, rng):
    """Signs of all pre-activations (n, m_1) and inputs (n, D) where every unit is saturated."""
    W, b = first.weights, first.biases
    D, m = W.shape
    if m <= D and np.linalg.cond(W) < 1e6:
        signs = _different_signs(n_samples, m, rng)
        return signs, np.linalg.lstsq(W.T, (1.5 * _SATURATED * signs - b).T, rcond=None)[0].T
    U = random_sphere(4 * n_samples, D, first.radius, rng)
    Z = U @ W + b
    U = U[np.abs(Z).min(axis=1) > _SATURATED][:n_samples]
    if len(U) < min(n_samples, m + 2):
        raise NotIdentified(
            "rest of the network",
            "unsaturated",
            f"only {len(U)} of {4 * n_samples} inputs {first.radius:.2g} standard deviations away leave all {m} "
            "first-layer units saturated: some are too flat, or the black box is no network with these units.",
        )
    return np.sign(U @ W + b), U


def _every_vertex(oracle, first, activation, rng):
    """Answers at as many different vertices as random far inputs meet, a query each: outputs (n, m_1), (n, m_L)."""
    signs, U = _at_vertices(oracle, first, _FAR_INPUTS, rng)
    some = np.sort(np.unique(signs, axis=0, return_index=True)[1])[:_MOST_VERTICES]
    low, high = activation.limits
    return _precise_rows(oracle, np.where(signs[some] > 0, high, low), U[some])


def _different_signs(n, m, rng):
    """At most n different rows of m signs, in random order."""
    if 2**m <= n:
        return np.where((np.arange(2**m)[:, None] >> np.arange(m)) & 1, 1.0, -1.0)[rng.permutation(2**m)]
    if m < 30:
        codes = rng.randint(2**m, size=n) if 2**m > 50 * n else rng.permutation(2**m)[:n]
        return np.where((codes[:, None] >> np.arange(m)) & 1, 1.0, -1.0)
    return rng.choice([-1.0, 1.0], size=(n, m))


def query_interior(oracle, first, activation, n_samples, rng, spread=_SPREAD):
    """Answers with first-layer pre-activations from ``N(0, spread^2)``.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
        Weights and shifts exactly, ``m_1 <= D``; see `find_first_biases`.
    activation : Activation
    n_samples : int
    rng : numpy.random.RandomState
    spread : float, default=1

    Returns
    -------
    H : ndarray of shape (n_samples, m_1)
        First-layer outputs. Of a classifier it may be fewer rows: those whose logits are precise.
    Y : ndarray of shape (n_samples, m_L)
    """
    # Of a classifier up to half of the answers are lost.
    n = n_samples if oracle.response == "predict" else 2 * n_samples
    Z = spread * rng.standard_normal((n, len(first.biases)))
    H, Y = _precise_rows(oracle, activation(Z), (Z - first.biases) @ np.linalg.pinv(first.weights))
    return H[:n_samples], Y[:n_samples]


def growing(ask, limit=np.inf):
    """A sampler that remembers: ``draw_answers(n)`` asks only for rows that it does not have.

    Parameters
    ----------
    ask : callable
        ``ask(n)`` gives about n new inputs and answers.
    limit : float, default=inf
        Rows there are; none are asked when there are as many.

    Returns
    -------
    callable
    """
    parts = []

    def draw_answers(n):
        have = sum(len(U) for U, _ in parts)
        if n > have and have < limit:
            parts.append(ask(n - have))
        U, Y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return U[:n], Y[:n]

    return draw_answers


def _answers(oracle, first, way, activation, rng):
    """Answers in one of three places, as `network_through` draws them."""
    g = get_activation(activation)
    if way == "vertices":
        return growing(lambda n: query_vertices(oracle, first, g, n, rng), 2.0 ** len(first.biases))
    if way == "edges":
        return growing(lambda n: _every_vertex(oracle, first, g, rng), 1)
    if way == "interior":
        return growing(lambda n: query_interior(oracle, first, g, n, rng))
    return growing(lambda n: _near_hyperplanes(oracle, first, n, rng))


def prefers_small_starts(architecture):
    """Whether what follows the first layer is looked for from small starts: hidden layers below one or two outputs.

    With three outputs and more, starts of the true widths succeed at once.

    Parameters
    ----------
    architecture : Architecture
        Of the whole network.

    Returns
    -------
    bool
    """
    rest = architecture.behind()
    return architecture.n_outputs < _FEW_OUTPUTS and small_starts_serve(architecture.widths[0], rest)


def fit_downstream(oracle, first, way, architecture, rng, search=None):
    """A network of given widths that agrees with the black box, its first layer nearly known.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
        With all ``m_1 = architecture.widths[0]`` units.
    way : {"vertices", "edges", "interior", "stem"}
        Where to look. ``vertices``: where the first layer is saturated. ``edges``: there first, and then where one unit
        moves at a time; `first` must have exact lengths (`norms_from_tails`). ``interior``: where it moves; `first`
        must be exact (`find_first_biases`). ``stem``: near the units' hyperplanes, the whole network fitted at once,
        its first layer starting as it was found and all others at random.
    architecture : Architecture
        Of the whole network.
    rng : numpy.random.RandomState
    search : Search, default=None

    Returns
    -------
    network : FeedforwardNetwork or None
        Of standardised inputs. From vertices, first-layer shifts are those of `first`, good to some tenths: the polish
        mends them. None where every start was given up.
    misfit : float
        Relative root mean square misfit where it looked.

    Raises
    ------
    ValueError
        If too few far inputs leave all units saturated.

    Notes
    -----
    On the vertices the answer does not depend on the first layer's lengths and shifts, so the rest of the network can
    be fitted alone, with one layer less. Few vertices exist for a narrow first layer, and with one output they leave a
    fit with many local minima; where the first layer moves there are as many answers as wanted, and smoother ones.
    Several hidden layers below one or two linear outputs are looked for from small starts (`prefers_small_starts`).
    Edges tell the first layer's shifts where `find_first_biases` does not (``m_2 >= m_1``, ``m_1 > D``). The
    stem is for first layers whose shifts `find_first_biases` does not determine (``m_2 >= m_1``, ``m_1 > D``) and that
    have too few vertices. ``5 P / m_L`` queries with P parameters of the widest network tried; a step costs
    ``O(n P^2)``.
    """
    draw_answers = _answers(oracle, first, way, architecture.activation, rng)
    if way == "stem":
        stem = first.weights, first.biases
        return network_through(draw_answers, oracle.n_inputs, architecture, rng, stem=stem, search=search)
    rest = architecture.behind()
    if prefers_small_starts(architecture):
        network, misfit = network_from_small_starts(draw_answers, len(first.biases), rest, rng, search=search)
    elif way == "edges":
        search = replace(Search() if search is None else search, n_starts=sum(n for _, n in _EDGE_ROUNDS))
        network, misfit = network_through(
            draw_answers, len(first.biases), rest, rng, search=search, rounds=_EDGE_ROUNDS
        )
    else:
        network, misfit = network_through(draw_answers, len(first.biases), rest, rng, search=search)
    if network is None:
        return None, np.inf
    network = _behind(first, network)
    return network_on_edges(oracle, first, network, rng) if way == "edges" else (network, misfit)


def _behind(first, rest):
    """The rest of a network behind its first layer."""
    weights, biases = [first.weights, *rest.weights], [first.biases, *rest.biases]
    return FeedforwardNetwork(weights, biases, rest.activation, rest.output_activation)


def _near_hyperplanes(oracle, first, n, rng):
    U = design_points(first.weights, first.biases, n, _SPREAD, rng)
    U = U[rng.permutation(len(U))]
    return _precise_rows(oracle, U, U)


def fit_smallest_downstream(oracle, first, way, at_least, rng, *, second_known=False, max_neurons=200, search=None):
    """The smallest network with a given number of layers behind the first.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
    way : {"vertices", "interior", "stem"}
        Where to look: see `fit_downstream`.
    at_least : Architecture
        Of the whole network: the widths of the first layer and of the output, lower bounds for the others.
    rng : numpy.random.RandomState
    second_known : bool, default=False
        Whether `at_least` gives the second layer's width exactly.
    max_neurons : int, default=200
        Hidden units behind the first layer at most.
    search : Search, default=None

    Returns
    -------
    network : FeedforwardNetwork or None
        The whole network of standardised inputs; None if no such network explains the answers.
    misfit : float

    Raises
    ------
    ValueError
        If too few far inputs leave all units saturated.
    """
    draw_answers = _answers(oracle, first, way, at_least.activation, rng)
    find = functools.partial(smallest_network_through, max_neurons=max_neurons, search=search)
    if way == "stem":
        stem, exact = (first.weights, first.biases), (1,) if second_known else ()
        return find(draw_answers, oracle.n_inputs, at_least, rng, stem=stem, exact=exact)
    exact = (0,) if second_known else ()
    network, misfit = find(draw_answers, len(first.biases), at_least.behind(), rng, exact=exact)
    return (None if network is None else _behind(first, network)), misfit
