"""The downstream network, behind a known first layer: fitted where that is saturated, and on edges."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from skident.budget.constants import MAX_CONDITION
from skident.fitting.design import design_points
from skident.fitting.least_squares import Stopping, fit_network
from skident.fitting.random_starts import StartLimits, fit_from_random_starts, fit_smallest_network
from skident.fitting.small_starts import fit_from_small_starts, small_starts_apply
from skident.linalg import lapack
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from ..constants import FEW_OUTPUTS, SATURATED
from ..query_points import random_sphere
from ..smooth.cube import Cube
from ..smooth.edges import query_edges

__all__ = [
    "SATURATED",
    "cached_sampler",
    "fit_downstream",
    "fit_smallest_downstream",
    "network_on_edges",
    "prefers_small_starts",
    "query_interior",
    "query_vertices",
]

_FAR_INPUTS = 40_000  # random far inputs among which different vertices are chosen: no queries, 0.1 s
_MAX_VERTICES = 3000  # queried of them; budget
_EDGE_ROUNDS = ((1.2, 40), (1.5, 80), (2.0, 80))  # (width factor, starts) of `network_through`: vertices fit quickly
_EDGES = 8  # edges per unit: with m_1 > D, few signs of the others can be reached from each
_STOPPING = Stopping(max_iter=100, target=1e-13, patience=30, gain=0.9)  # of the fit on edges, to rounding
_SPREAD = 1.0  # standard deviation of first-layer pre-activations in the interior


def query_vertices(oracle, first, activation, n_samples, rng):
    """First-layer outputs H (n, m_1), each at a limit, and outputs Y (n, m_L) with every first-layer unit saturated.

    At most `n_samples` of the ``2^m_1`` different vertices; with m_1 > D those that random far inputs reach, with
    m_1 <= D any of them, by ``u = pinv(W^T) (K s - b)``. Signs of weights may be wrong, biases rough. One query per
    vertex; those whose logits a classifier's probabilities do not determine are left out.
    Raises NotIdentified if too few far inputs leave all units saturated.
    """
    signs, U = _at_vertices(oracle, first, n_samples, rng)
    low, high = activation.limits
    return _precise_samples(oracle, np.where(signs > 0, high, low), U)


def _precise_samples(oracle, H, U):
    """Features H (n, k) of inputs U (n, D) and the outputs there, without those of a classifier that are imprecise."""
    Y, error = oracle.query(U)
    clear = oracle.is_precise(error)
    if not clear.any():
        raise NotIdentified(
            "rest of the network", "imprecise", "no probabilities with saturated units determine their logits."
        )
    return H[clear], Y[clear]


def _at_vertices(oracle, first, n_samples, rng):
    """Signs of all pre-activations (n, m_1) and inputs (n, D) where every unit is saturated."""
    W, b = first.weights, first.biases
    D, m = W.shape
    if m <= D and lapack.cond(W) < MAX_CONDITION:
        signs = _different_signs(n_samples, m, rng)
        return signs, lapack.lstsq(W.T, (1.5 * SATURATED * signs - b).T, rcond=None)[0].T
    U = random_sphere(4 * n_samples, D, first.radius, rng)
    Z = U @ W + b
    U = U[np.abs(Z).min(axis=1) > SATURATED][:n_samples]
    if len(U) < min(n_samples, m + 2):
        raise NotIdentified(
            "rest of the network",
            "unsaturated",
            f"only {len(U)} of {4 * n_samples} inputs {first.radius:.2g} standard deviations away leave all {m} "
            "first-layer units saturated: some are too flat, or the black box is no network with these units.",
        )
    return np.sign(U @ W + b), U


def _query_reachable_vertices(oracle, first, activation, rng):
    """As `query_vertices`, at as many different vertices as random far inputs reach."""
    signs, U = _at_vertices(oracle, first, _FAR_INPUTS, rng)
    some = np.sort(np.unique(signs, axis=0, return_index=True)[1])[:_MAX_VERTICES]
    low, high = activation.limits
    return _precise_samples(oracle, np.where(signs[some] > 0, high, low), U[some])


def _different_signs(n, m, rng):
    """At most n different rows of m signs, in random order."""
    if 2**m <= n:
        return np.where((np.arange(2**m)[:, None] >> np.arange(m)) & 1, 1.0, -1.0)[rng.permutation(2**m)]
    if m < 30:
        codes = rng.randint(2**m, size=n) if 2**m > 50 * n else rng.permutation(2**m)[:n]
        return np.where((codes[:, None] >> np.arange(m)) & 1, 1.0, -1.0)
    return rng.choice([-1.0, 1.0], size=(n, m))


def query_interior(oracle, first, activation, n_samples, rng):
    """First-layer outputs H (n, m_1) and outputs Y (n, m_L) at standard normal first-layer pre-activations.

    Weights and biases of `first` must be exact and ``m_1 <= D``, see `find_first_biases`. Of a classifier there may be
    fewer samples: those with precise logits.
    """
    n = n_samples if oracle.response == "predict" else 2 * n_samples  # up to half of a classifier's are imprecise
    Z = _SPREAD * rng.standard_normal((n, len(first.biases)))
    H, Y = _precise_samples(oracle, activation(Z), (Z - first.biases) @ lapack.pinv(first.weights))
    return H[:n_samples], Y[:n_samples]


def cached_sampler(query, limit=np.inf):
    """A sampler ``draw(n) -> inputs, outputs`` that queries only the samples it lacks, `limit` of them at most.

    ``query(n)`` gives about n new inputs and outputs.
    """
    parts = []

    def draw(n):
        have = sum(len(U) for U, _ in parts)
        if n > have and have < limit:
            parts.append(query(n - have))
        U, Y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return U[:n], Y[:n]

    return draw


def _sampler(oracle, first, region, activation, rng):
    """A `cached_sampler` of first-layer outputs (of inputs for "stem") and outputs, for `network_through`."""
    g = get_activation(activation)
    if region == "vertices":
        return cached_sampler(lambda n: query_vertices(oracle, first, g, n, rng), 2.0 ** len(first.biases))
    if region == "edges":
        return cached_sampler(lambda n: _query_reachable_vertices(oracle, first, g, rng), 1)
    if region == "interior":
        return cached_sampler(lambda n: query_interior(oracle, first, g, n, rng))
    return cached_sampler(lambda n: _query_near_hyperplanes(oracle, first, n, rng))


def prefers_small_starts(architecture):
    """Whether the downstream network is fitted from small starts: hidden layers below one or two outputs.

    With three outputs and more, starts of the true widths succeed at once. `architecture` is that of the whole network.
    """
    downstream = architecture.after_first_layer()
    return architecture.n_outputs < FEW_OUTPUTS and small_starts_apply(architecture.widths[0], downstream)


def fit_downstream(oracle, first, region, architecture, rng, search=None):
    """A network of given widths with the outputs of the black box, its first layer nearly known, and the residual.

    `region` is where outputs are queried, `first` has all units, `architecture` is that of the whole network:
    - "vertices": the first layer is saturated. The outputs do not depend on its norms and biases, so the rest is fitted
      alone. A narrow first layer has few vertices, and with one output they leave many local minima.
    - "edges": there first, then where one unit moves at a time, which determines the first layer's norms and biases if
      `find_first_biases` does not (``m_2 >= m_1`` or ``m_1 > D``).
    - "interior": where the first layer moves. It must be exact (`find_first_biases`). Any number of smooth outputs.
    - "stem": near the hyperplanes, the whole network fitted at once, its first layer started as recovered and the
      others at random; for biases that are not determined and too few vertices.
    From vertices, the biases are those of `first`, good to some tenths: the polish corrects them. The network is None
    if every start was given up. The residual is the relative root mean square on the samples.
    ``5 P / m_L`` queries with P parameters of the widest network tried; ``O(n P^2)`` per step.
    """
    draw = _sampler(oracle, first, region, architecture.activation, rng)
    if region == "stem":
        stem = first.weights, first.biases
        return fit_from_random_starts(draw, oracle.n_inputs, architecture, rng, stem=stem, limits=search)
    m, downstream = len(first.biases), architecture.after_first_layer()
    if prefers_small_starts(architecture):
        network, residual = fit_from_small_starts(draw, m, downstream, rng, limits=search)
    elif region == "edges":
        search = replace(StartLimits() if search is None else search, n_starts=sum(n for _, n in _EDGE_ROUNDS))
        network, residual = fit_from_random_starts(draw, m, downstream, rng, limits=search, rounds=_EDGE_ROUNDS)
    else:
        network, residual = fit_from_random_starts(draw, m, downstream, rng, limits=search)
    if network is None:
        return None, np.inf
    network = _joined(first, network)
    return network_on_edges(oracle, first, network, rng) if region == "edges" else (network, residual)


def _joined(first, downstream):
    """The first layer and the network downstream of it as one network."""
    weights, biases = [first.weights, *downstream.weights], [first.biases, *downstream.biases]
    return FeedforwardNetwork(weights, biases, downstream.activation, downstream.output_activation)


def _query_near_hyperplanes(oracle, first, n, rng):
    U = design_points(first.weights, first.biases, n, _SPREAD, rng)
    U = U[rng.permutation(len(U))]
    return _precise_samples(oracle, U, U)


def fit_smallest_downstream(oracle, first, region, at_least, rng, *, exact=(), max_neurons=200, search=None):
    """As `fit_downstream`, with the smallest hidden widths, at least those of `at_least`; None if there are none.

    `exact` lists the hidden layers (from 1, the second one) whose width `at_least` gives exactly; `max_neurons` bounds
    the hidden units downstream of the first layer. Not for the region "edges".
    """
    draw = _sampler(oracle, first, region, at_least.activation, rng)
    find = functools.partial(fit_smallest_network, max_neurons=max_neurons, limits=search)
    if region == "stem":
        return find(draw, oracle.n_inputs, at_least, rng, stem=(first.weights, first.biases), exact=exact)
    exact = [layer - 1 for layer in exact]
    network, residual = find(draw, len(first.biases), at_least.after_first_layer(), rng, exact=exact)
    return (None if network is None else _joined(first, network)), residual


def network_on_edges(oracle, first, network, rng):
    """Correct the first-layer norms and biases of a network that is right where that layer is saturated: it, residual.

    Where only one unit moves, the network after it gives its norm and bias. Steep units of the second layer may be
    saturated at all vertices, which leaves their weights uncertain; on edges they move, so that a fit of norms, biases
    and the layers after them follows. The residual is the relative root mean square on the edges.
    ``8 * 36`` queries per unit, more for units whose hyperplane is off their center.
    """
    m, farthest = len(first.biases), min(Cube.farthest, 0.5 * oracle.reach)
    g, names = network.activations[0], (network.activation, network.output_activation)
    cube = Cube(oracle, first.weights, first.biases, g, network.n_outputs, rng, farthest)
    edges, cube = query_edges(cube, _EDGES)
    rest = FeedforwardNetwork(network.weights[1:], network.biases[1:], *names)
    x, _ = edges.given(rest, np.zeros((m, 2)))
    start = FeedforwardNetwork([np.diag(np.exp(x[:, 0])), *rest.weights], [x[:, 1], *rest.biases], *names)
    fitted, residual = fit_network(start, *edges.samples(), _STOPPING, scaled_first=True)
    norms = np.diag(fitted.weights[0])
    weights, biases = [cube.weights * norms, *fitted.weights[1:]], cube.biases * norms + fitted.biases[0]
    return network.with_parameters(weights, [biases, *fitted.biases[1:]]), residual
