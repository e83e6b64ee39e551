"""Units whose activation has no name: a table of their profile; names and tables are never taken for each other."""

import numpy as np
import pytest
from scipy.special import erf, expit

from skident import NetworkIdentifier
from skident.identification.asymptotes.deep_limit import network_from_limit
from skident.identification.methods.asymptotes import LINEAR_FAR_OUT
from skident.metrics import relative_max_error
from skident.network import ACTIVATIONS, FeedforwardNetwork, get_activation
from skident.network.tabulated import Tabulated
from skident.oracle import NotIdentified, Oracle
from tests.identification.asymptotes.test_relu_limit import limit_of

UNNAMED = {
    "x Phi(1.3 x) and a bump": lambda z: 0.5 * z * (1.0 + erf(1.3 * z / np.sqrt(2.0))) + 0.1 * z * np.exp(-z * z),
    "softplus and a bump": lambda z: np.logaddexp(0.0, z) + 0.3 * np.exp(-0.5 * z * z),
    "mean of GELU and softplus": lambda z: 0.5 * get_activation("gelu")(z) + 0.5 * np.logaddexp(0.0, z),
    "ELU with alpha = 0.5": lambda z: np.where(z > 0, z, 0.5 * np.expm1(np.minimum(z, 0.0))),
    "leaky softplus and a bump": lambda z: 0.1 * z + 0.9 * np.logaddexp(0.0, z) + 0.3 * np.exp(-0.5 * z * z),
}
NAMED_BY_SCALE = {
    "softplus with beta = 2.5": ("softplus", lambda z: np.logaddexp(0.0, 2.5 * z) / 2.5),
    "quick GELU": ("silu", lambda z: z * expit(1.702 * z)),
    "CELU": ("elu", lambda z: np.where(z > 0, z, 2.0 * np.expm1(np.minimum(z, 0.0) / 2.0))),
}


class Network:
    """A random network of any activation."""

    def __init__(self, g, shape, seed):
        rng = np.random.RandomState(seed)
        self.g, self.n_inputs = g, shape[0]
        self.weights = [rng.standard_normal(pair) / np.sqrt(pair[0]) for pair in zip(shape, shape[1:])]
        self.biases = [0.5 * rng.standard_normal(m) for m in shape[1:]]

    def __call__(self, X):
        for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            X = self.g(X @ W + b)
        return X @ self.weights[-1] + self.biases[-1]

    def identified(self, seed=0, **options):
        X = np.random.RandomState(seed + 100).standard_normal((300, self.n_inputs))
        return NetworkIdentifier(lambda rows: self(rows), random_state=seed, max_seconds=60, **options).fit(X)


def errors(network, found):
    """Relative errors near the center and far out."""
    X = np.random.RandomState(1).standard_normal((1000, network.n_inputs))
    return [relative_max_error(network(radius * X), found(radius * X)) for radius in (1.0, 10.0, 1e4)]


def from_limit(g, names):
    """The network from its exact ReLU limit."""
    network, rng = Network(g, (6, 8, 2), 0), np.random.RandomState(0)
    like = g if g in ACTIVATIONS.values() else "gelu"  # with its slope on the right
    limit = limit_of(FeedforwardNetwork(network.weights, network.biases, like), rng)
    return network, network_from_limit(Oracle(network, 6), limit, names, rng)


@pytest.mark.parametrize("name", LINEAR_FAR_OUT)
def test_a_named_activation_is_no_table(name):
    assert from_limit(get_activation(name), LINEAR_FAR_OUT)[1].activation == name


@pytest.mark.parametrize("name", NAMED_BY_SCALE)
def test_names_hold_at_any_scale(name):
    assert from_limit(NAMED_BY_SCALE[name][1], LINEAR_FAR_OUT)[1].activation == NAMED_BY_SCALE[name][0]


@pytest.mark.parametrize("name", [*UNNAMED][:-1])
def test_an_unnamed_activation_is_a_table(name):
    """Profiles at a distance of some 1e3 are accurate to 1e-12, and scales and biases from them to 1e-7."""
    network, found = from_limit(UNNAMED[name], LINEAR_FAR_OUT)
    assert isinstance(found.activations[0], Tabulated) and max(errors(network, found)) < 1e-6


@pytest.mark.parametrize("height", [1e-3, 1e-5, 1e-7])
def test_nearly_named_activations_are_tables(height):
    network, found = from_limit(lambda z: get_activation("gelu")(z) + height * np.exp(-z * z), LINEAR_FAR_OUT)
    assert isinstance(found.activations[0], Tabulated) and max(errors(network, found)) < 1e-6


def test_a_network_that_is_nearly_of_gelu_units():
    """Its activation is detected as GELU, which does not explain the outputs."""
    network = Network(lambda z: get_activation("gelu")(z) + 1e-6 * np.exp(-z * z), (6, 8, 2), 0)
    found = network.identified()
    assert found.report_.exact and found.network_.activation == "tabulated"
    assert max(errors(network, found.network_)) < 1e-10


SHAPES = [(8, 16, 2), (10, 32, 1), (6, 8, 5, 1), (8, 16, 2), (6, 8, 5, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), [*zip(UNNAMED, SHAPES, strict=True)])
def test_networks_of_unnamed_units(name, shape):
    network = Network(UNNAMED[name], shape, 3)
    found = network.identified()
    assert found.report_.exact and found.network_.activation == "tabulated" and found.layer_widths_ == shape[1:]
    assert max(errors(network, found.network_)) < 1e-9


OTHERS = {
    "several activations": lambda W, b: (
        lambda X: np.concatenate(
            [UNNAMED["softplus and a bump"](X @ W + b), get_activation("gelu")(X @ W[::-1] + b)], axis=1
        )
    ),
    "parallel units": lambda W, b: lambda X: UNNAMED["softplus and a bump"](np.hstack([X @ W + b, 2.0 * X @ W - b])),
    "opposite units": lambda W, b: lambda X: UNNAMED["softplus and a bump"](np.hstack([X @ W + b, b - X @ W])),
    "slow tails": lambda W, b: lambda X: np.hypot(X @ W + b, 1.0) + X @ W,
    "duplicate units": lambda W, b: lambda X: UNNAMED["softplus and a bump"](np.hstack([X @ W + b, X @ W + b])),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_what_no_table_explains_is_refused(kind):
    """Duplicate units are one; of the others, the message names the cause."""
    rng = np.random.RandomState(0)
    W, b = rng.standard_normal((6, 4)), rng.standard_normal(4)
    V, hidden = rng.standard_normal((8 if kind != "slow tails" else 4, 2)), OTHERS[kind](W, b)
    X = rng.standard_normal((300, 6))
    model = NetworkIdentifier(lambda rows: hidden(rows) @ V, random_state=0, max_seconds=60)
    if kind == "duplicate units":
        assert model.fit(X).report_.exact and model.layer_widths_ == (4, 2)
        return
    cause = "slow tails" if kind == "slow tails" else "not that of one unit|no signs make the linear part"
    with pytest.raises(NotIdentified, match=cause):
        model.fit(X)
