import numpy as np
import pytest

from skident.network import ACTIVATIONS, FeedforwardNetwork

HIDDEN = [(9, 3), (8, 7, 3), (6, 6, 5, 2)]
PAIRS = [(name, "identity") for name in ACTIVATIONS] + [("tanh", "tanh"), ("quadratic", "quadratic"), ("sin", "sin")]


def random_network(widths, activation, output_activation="identity", n_inputs=5, seed=0, sparse=False):
    rng = np.random.default_rng(seed)
    sizes = (n_inputs, *widths)
    weights = [rng.normal(size=pair) / np.sqrt(pair[0]) for pair in zip(sizes, sizes[1:])]
    if sparse:  # many exact ties: entries from {-1, 0, 1}, no biases
        weights = [rng.integers(-1, 2, W.shape) for W in weights]
        return FeedforwardNetwork(weights, [np.zeros(m) for m in widths], activation, output_activation)
    return FeedforwardNetwork(weights, [rng.normal(0, 0.7, m) for m in widths], activation, output_activation)


def symmetric_copy(net, seed):
    """Another network with the same function, unit by unit: shuffled, flipped, rescaled, shifted by half turns."""
    rng = np.random.default_rng(seed)
    W, b = [w.copy() for w in net.weights], [v.copy() for v in net.biases]
    for layer, g in enumerate(net.activations[:-1]):
        for j in range(W[layer].shape[1]):
            c, v, half_turn = MOVES[g.symmetry](rng)
            if g.symmetry == "point" and c < 0:
                b[layer + 1] = b[layer + 1] + sum(g.limits) * W[layer + 1][j]
            W[layer][:, j] *= c
            b[layer][j] = c * b[layer][j] + np.pi * half_turn
            W[layer + 1][j] *= v
        order = rng.permutation(W[layer].shape[1])
        W[layer], b[layer], W[layer + 1] = W[layer][:, order], b[layer][order], W[layer + 1][order]
    kind = net.activations[-1].symmetry
    for j in range(net.n_outputs):
        if kind in ("even", "sine") and rng.random() < 0.5:
            W[-1][:, j] *= -1
            b[-1][j] = -b[-1][j] + (np.pi if kind == "sine" else 0.0)
        b[-1][j] += 2 * np.pi * rng.integers(-2, 3) if kind == "sine" else 0.0
    return FeedforwardNetwork(W, b, net.activation, net.output_activation)


def _sign(rng):
    return rng.choice([-1.0, 1.0])


def _odd(rng):
    s = _sign(rng)
    return s, s, 0


def _even(rng):
    c = _sign(rng) * rng.uniform(0.2, 5.0)
    return c, 1 / c**2, 0


def _homogeneous(rng):
    c = rng.uniform(0.2, 5.0)
    return c, 1 / c, 0


def _sine(rng):
    s, k = _sign(rng), rng.integers(-3, 4)
    return s, s * (-1.0) ** k, k


# incoming factor, outgoing factor, half turns
MOVES = {"odd": _odd, "point": _odd, "even": _even, "homogeneous": _homogeneous, "sine": _sine}
MOVES |= dict.fromkeys(["linear", None], lambda rng: (1.0, 1.0, 0))


def largest_difference(a, b):
    return max(np.abs(u - v).max() for u, v in zip(a.weights + a.biases, b.weights + b.biases))


def largest_output_difference(a, b):
    X = np.random.default_rng(9).normal(size=(50, a.n_inputs))
    return np.abs(a(X) - b(X)).max() / np.abs(b(X)).max()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("widths", HIDDEN, ids=str)
@pytest.mark.parametrize(("activation", "output_activation"), PAIRS)
def test_symmetric_copies(activation, output_activation, widths, seed):
    net = random_network(widths, activation, output_activation, seed=seed)
    other = symmetric_copy(net, seed)
    assert largest_output_difference(other, net) < 1e-12
    aligned = other.align_to(net)
    assert largest_difference(aligned, net) < 1e-12
    assert largest_output_difference(aligned, other) < 1e-12
    standard = net.canonical()
    assert largest_difference(standard, other.canonical()) < 1e-12
    assert largest_output_difference(standard, net) < 1e-12
    assert largest_difference(standard, standard.canonical()) < 1e-14


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "softplus"])
def test_canonical_form_with_many_exact_ties(activation):
    net = random_network((10, 3), activation, n_inputs=8, sparse=True)
    assert len({tuple(w) for w in net.weights[0].T} | {tuple(-w) for w in net.weights[0].T}) == 20
    for seed in range(5):
        assert largest_difference(net.canonical(), symmetric_copy(net, seed).canonical()) < 1e-13


@pytest.mark.parametrize("seed", range(5))
def test_canonical_form_of_cosine_units(seed):
    """Shifts of exactly pi/2 lie on the edge of the interval that canonical biases are taken to."""
    net = random_network((6, 2), "sin")
    net = FeedforwardNetwork(net.weights, [np.full(6, np.pi / 2), net.biases[1]], "sin")
    assert largest_difference(net.canonical(), symmetric_copy(net, seed).canonical()) < 1e-13


def test_canonical_rule():
    net = random_network((9, 4), "tanh").canonical()
    W = net.weights[0]
    assert (np.take_along_axis(W, np.abs(W).argmax(axis=0)[None], axis=0) > 0).all()
    assert (np.diff(W[0]) > 0).all()
    for name in ("relu", "quadratic"):
        norms = np.linalg.norm(random_network((9, 4), name).canonical().weights[0], axis=0)
        np.testing.assert_allclose(norms, 1.0, rtol=1e-14)
    phases = symmetric_copy(random_network((9, 4), "sin"), 0).canonical().biases[0]
    assert (np.abs(phases) <= np.pi / 2).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_output_units_stay_in_place(activation):
    net = random_network((6, 4), activation)
    one = [
        FeedforwardNetwork([net.weights[0], net.weights[1][:, [p]]], [net.biases[0], net.biases[1][[p]]], activation)
        for p in range(4)
    ]
    X = np.random.default_rng(0).normal(size=(20, 5))
    for p in range(4):
        np.testing.assert_allclose(net.canonical()(X)[:, p], one[p](X)[:, 0], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_dead_units_do_no_harm(activation):
    net = random_network((5, 3), activation)
    W, b = net.weights[0].copy(), net.biases[0].copy()
    W[:, :2] = 0.0
    b[0] = 0.0
    dead = FeedforwardNetwork([W, net.weights[1]], [b, net.biases[1]], activation)
    for before, after in [(dead, dead.canonical()), (dead, dead.align_to(net)), (net, net.align_to(dead))]:
        assert largest_output_difference(after, before) < 1e-12
    assert dead.align_to(dead) == dead


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu", "quadratic", "sin", "softplus"])
def test_alignment_bears_noise(activation):
    net = random_network((8, 7, 3), activation)
    other = symmetric_copy(net, 0)
    rng = np.random.default_rng(0)
    noisy = FeedforwardNetwork(
        [W + 1e-6 * rng.normal(size=W.shape) for W in other.weights], other.biases, activation, "identity"
    )
    assert largest_difference(noisy.align_to(net), net) < 1e-3


def test_single_layer_has_nothing_to_move():
    net = random_network((4,), "tanh", "tanh")
    assert net.canonical() == net and net.align_to(net) == net


@pytest.mark.parametrize(
    "other",
    [
        random_network((6, 3), "tanh"),
        random_network((5, 5, 3), "tanh"),
        random_network((5, 3), "sin"),
        random_network((5, 3), "tanh", "tanh"),
        random_network((5, 3), "tanh", n_inputs=4),
    ],
    ids=repr,
)
def test_only_equal_architectures_are_aligned(other):
    with pytest.raises(ValueError, match=r"one architecture .* got FeedforwardNetwork\(5 -> 5 -> 3, tanh"):
        random_network((5, 3), "tanh").align_to(other)


def test_alignment_needs_a_network():
    with pytest.raises(TypeError, match="must be a FeedforwardNetwork, got ndarray"):
        random_network((5, 3), "tanh").align_to(np.zeros(3))
