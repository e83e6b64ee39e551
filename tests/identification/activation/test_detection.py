"""Activations are detected from outputs alone, every one of its class, at one and two hidden layers, or doubted."""

import numpy as np
import pytest
from scipy.special import erf, expit

from skident import NetworkIdentifier
from skident.identification.activation import detect_activation
from skident.identification.activation.growth import growth, polynomial_degree
from skident.identification.activation.intervals import find_interval, growing_profile, settling_profile
from skident.oracle import Oracle
from tests.identifiers import make_identifier

# What it is called -> what it is.
ACTIVATIONS = {
    "tanh": (np.tanh, expit),
    "erf": (erf,),
    "relu": (lambda z: np.maximum(z, 0.0), lambda z: np.where(z > 0, z, 0.1 * z)),
    "hard_tanh": (lambda z: np.clip(z, -1.0, 1.0),),
    "softplus": (lambda z: np.logaddexp(0.0, z),),
    "gelu": (lambda z: 0.5 * z * (1.0 + erf(z / np.sqrt(2.0))),),
    "silu": (lambda z: z * expit(z),),
    "elu": (lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0.0))),),
    "sin": (np.sin,),
    "identity": (lambda z: z,),
    "quadratic": (lambda z: z * z,),
    "step": (lambda z: np.where(z > 0, 1.0, 0.0),),
}
CASES = [(name, g, depth) for name, gs in ACTIVATIONS.items() for g in gs for depth in (1, 2)]


def black_box(g, depth, seed):
    """A random network of one activation; its inputs are normal."""
    rng = np.random.RandomState(seed)
    sizes = [rng.randint(3, 16), *rng.randint(4, 20, size=depth), rng.randint(1, 4)]
    weights = [rng.standard_normal((n, m)) / np.sqrt(n) for n, m in zip(sizes, sizes[1:])]
    biases = [0.5 * rng.standard_normal(m) for m in sizes[1:]]

    def outputs(X):
        for W, b in zip(weights[:-1], biases[:-1]):
            X = g(X @ W + b)
        return X @ weights[-1] + biases[-1]

    return outputs, sizes[0]


@pytest.mark.parametrize(("name", "g", "depth"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_activation_is_told(name, g, depth):
    """Of 4 networks 3 at least, and none is called another one without a doubt."""
    right = 0
    for seed in range(4):
        box, D = black_box(g, depth, seed)
        seen = detect_activation(Oracle(box, D), np.random.RandomState(seed))
        assert seen.name == name or seen.doubt, str(seen)
        right += seen.name == name and not seen.doubt
        assert seen.n_queries < 8000
    assert right >= 3


@pytest.mark.parametrize(
    ("g", "expected"),
    [
        (np.tanh, ("settles", 0.0)),
        (np.sin, "oscillates"),
        (lambda z: np.maximum(z, 0), ("power", 1.0)),
        (lambda z: z * z, ("power", 2.0)),
    ],
    ids=["tanh", "sin", "relu", "quadratic"],
)
def test_growth(g, expected):
    box, D = black_box(g, 1, 0)
    found = growth(Oracle(box, D), np.random.RandomState(0))
    assert (found if isinstance(expected, tuple) else found[0]) == expected


def test_the_degree_of_a_polynomial():
    for depth, degree in ((1, 2), (2, 4)):
        box, D = black_box(np.square, depth, 0)
        assert polynomial_degree(Oracle(box, D), np.random.RandomState(0), (1, 2, 4, 8)) == degree
    box, D = black_box(np.tanh, 1, 0)
    assert polynomial_degree(Oracle(box, D), np.random.RandomState(0), (1, 2, 4, 8)) is None


def one_unit(g, w=1.0, slope=0.0):
    """A single unit of two inputs, with a linear part beside it."""
    return Oracle(lambda X: 2.0 * g(w * X @ [0.6, -0.8] + 0.3) + slope * X[:, 0], 2)


def test_a_interval_holds_the_unit_and_little_else():
    oracle, found = one_unit(np.tanh), []
    for seed in range(10):
        interval = find_interval(oracle, np.random.RandomState(seed), np.zeros(1))
        if interval is None:  # the unit's hyperplane misses the line
            continue
        z = (interval.start + np.array([[interval.low], [interval.high]]) * interval.direction) @ [0.6, -0.8] + 0.3
        assert z[0] * z[1] < 0 and 5 < np.abs(z).min() and np.abs(z).max() < 120
        assert interval.shape == "smooth"
        found.append(interval)
    assert len(found) >= 5


@pytest.mark.parametrize(("g", "shape"), [(lambda z: np.maximum(z, 0), "corner"), (lambda z: 1.0 * (z > 0), "jump")])
def test_sharp_units_are_corners_or_jumps(g, shape):
    found = [find_interval(one_unit(g), np.random.RandomState(seed), np.zeros(1)) for seed in range(10)]
    assert [s.shape for s in found if s is not None] == [shape] * sum(s is not None for s in found)
    assert sum(s is not None for s in found) >= 5


@pytest.mark.parametrize("w", [0.05, 1.0, 20.0])
def test_profiles(w):
    def intervals(oracle):
        found = (find_interval(oracle, np.random.RandomState(seed), np.zeros(1)) for seed in range(4))
        return [s for s in found if s is not None]

    for name, g in (("tanh", np.tanh), ("erf", erf)):
        oracle = one_unit(g, w)
        assert {settling_profile(s, oracle)[0] for s in intervals(oracle)} == {name}
    for name in ("softplus", "gelu", "silu", "elu"):
        oracle = one_unit(ACTIVATIONS[name][0], w, slope=0.7)
        for interval in intervals(oracle):
            best, residuals = growing_profile(interval, oracle)
            assert best == name and residuals[name] < 1e-6
            assert min(v for k, v in residuals.items() if k != name) > 3e-5  # of the two forms of GELU


def test_an_unknown_activation_is_doubted():
    for g in (np.arctan, lambda z: z / (1 + np.abs(z)), lambda z: np.log1p(z * z)):
        box, D = black_box(g, 1, 0)
        assert detect_activation(Oracle(box, D), np.random.RandomState(0)).doubt


def test_noise_and_single_precision():
    box, D = black_box(np.tanh, 1, 1)
    rng = np.random.RandomState(0)
    noisy = Oracle(lambda X: box(X) + 1e-6 * rng.standard_normal((len(X), 1)), D)
    for oracle, noise in ((noisy, 1e-6), (Oracle(lambda X: np.float32(box(X)), D), 1e-7)):
        seen = detect_activation(oracle, np.random.RandomState(0), noise)
        assert seen.name == "tanh" or seen.doubt


class TestIdentifier:
    """``activation="auto"`` of callables."""

    def fit(self, g, depth=1, seed=0, **options):
        box, D = black_box(g, depth, seed)
        X = np.random.RandomState(seed).standard_normal((200, D))
        return make_identifier(box, layer_widths="auto", random_state=0, **options).fit(X)

    @pytest.mark.parametrize(("g", "name"), [(erf, "erf"), (ACTIVATIONS["relu"][0], "relu"), (np.tanh, "tanh")])
    def test_what_is_seen_is_identified(self, g, name):
        identifier = self.fit(g)
        assert identifier.network_.activation == name
        assert identifier.report_.exact and identifier.report_.activation.name == name

    def test_leaky_units_come_with_their_slope(self):
        identifier = self.fit(ACTIVATIONS["relu"][1], seed=2)
        assert identifier.report_.exact
        assert identifier.network_.activations[0].negative_slope == pytest.approx(0.1, abs=1e-9)

    def test_two_layers_of_relu(self):
        identifier = self.fit(ACTIVATIONS["relu"][0], depth=2, seed=1)
        assert identifier.network_.activation == "relu" and identifier.report_.exact

    def test_errors_say_what_was_seen(self):
        with pytest.raises(ValueError, match="the outputs are piecewise constant"):
            self.fit(ACTIVATIONS["step"][0])

    def test_a_name_saves_the_look(self):
        box, D = black_box(np.tanh, 1, 0)
        X = np.random.RandomState(0).standard_normal((200, D))
        named = NetworkIdentifier(box, layer_widths="auto", activation="tanh", random_state=0).fit(X)
        seen = NetworkIdentifier(box, layer_widths="auto", random_state=0).fit(X)
        assert named.report_.activation is None
        assert 300 < seen.n_queries_ - named.n_queries_ < 3000
        np.testing.assert_array_equal(named.network_.weights[0], seen.network_.weights[0])
