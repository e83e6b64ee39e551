"""The downstream network, behind a known first layer: fitted where that is saturated, or near its hyperplanes."""

import functools

import numpy as np

from skident.budget.constants import MAX_CONDITION
from skident.fitting.design import design_points
from skident.fitting.random_starts import fit_from_random_starts, fit_smallest_network
from skident.fitting.small_starts import fit_from_small_starts, small_starts_apply
from skident.linalg import lapack
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from ..constants import FEW_OUTPUTS
from ..query_points import random_sphere
from ..smooth.cube import saturated

_BIAS_ERROR = 3.0  # largest error of a bias measured far out, in z
_SPREAD = 1.0  # standard deviation of first-layer pre-activations in the interior


def query_vertices(oracle, first, activation, n_samples, rng):
    """First-layer outputs H (n, m_1), each at a limit, and outputs Y (n, m_L) with every first-layer unit saturated.

    At most `n_samples` of the ``2^m_1`` different vertices; with m_1 > D those that random far inputs reach, with
    m_1 <= D any of them, by ``u = pinv(W^T) (K s - b)``. Signs of weights may be wrong, biases rough. One query per
    vertex; those whose logits a classifier's probabilities do not determine are left out.
    Raises NotIdentified if too few far inputs leave all units saturated.
    """
    signs, U = _at_vertices(oracle, first, activation, n_samples, rng)
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


def _at_vertices(oracle, first, activation, n_samples, rng):
    """Signs of all pre-activations (n, m_1) and inputs (n, D) where every unit is saturated."""
    W, b = first.weights, first.biases
    D, m = W.shape
    level = saturated(activation.name, oracle.accuracy.relative_error) + _BIAS_ERROR
    if m <= D and lapack.cond(W) < MAX_CONDITION:
        signs = _different_signs(n_samples, m, rng)
        return signs, lapack.lstsq(W.T, (1.5 * level * signs - b).T, rcond=None)[0].T
    # Both sides of every hyperplane: random inputs alone may leave two units equal everywhere.
    across = (1.5 * level * first.directions / first.norms).T
    sphere = random_sphere(4 * n_samples, D, first.radius, rng)
    U = np.concatenate([first.points + across, first.points - across, sphere])
    U = U[np.abs(U @ W + b).min(axis=1) > level][:n_samples]
    if len(U) < min(n_samples, m + 2):
        raise NotIdentified(
            "rest of the network",
            "unsaturated",
            f"only {len(U)} of {4 * n_samples} inputs {first.radius:.2g} standard deviations away leave all {m} "
            "first-layer units saturated: some are too flat, or the black box is no network with these units.",
        )
    return np.sign(U @ W + b), U


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
    else:
        network, residual = fit_from_random_starts(draw, m, downstream, rng, limits=search)
    return (None, np.inf) if network is None else (_joined(first, network), residual)


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
    the hidden units downstream of the first layer.
    """
    draw = _sampler(oracle, first, region, at_least.activation, rng)
    find = functools.partial(fit_smallest_network, max_neurons=max_neurons, limits=search)
    if region == "stem":
        return find(draw, oracle.n_inputs, at_least, rng, stem=(first.weights, first.biases), exact=exact)
    exact = [layer - 1 for layer in exact]
    network, residual = find(draw, len(first.biases), at_least.after_first_layer(), rng, exact=exact)
    return (None if network is None else _joined(first, network)), residual
