"""The outputs' activation from outputs alone: right, or with a doubt; and networks identified behind it."""

import warnings

import numpy as np
import pytest
from scipy.special import erf, expit, softmax

from skident import NetworkIdentifier
from skident.identification.activation import detect_activation
from skident.identification.activation.growth import classify_near_center
from skident.identification.activation.outputs import PreActivationOracle, detect_output_activation, inverse
from skident.oracle import Oracle
from tests.identifiers import make_identifier

OUTPUTS = {
    "identity": lambda z: z,
    "tanh": np.tanh,
    "sigmoid": expit,
    "softmax": lambda z: softmax(z, axis=1),
}
HIDDEN = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0.0), "softplus": lambda z: np.logaddexp(0.0, z)}


def black_box(hidden, output, depth=1, seed=0, n_outputs=2):
    """A random network as a function, and its sizes."""
    rng = np.random.RandomState(seed)
    sizes = [rng.randint(4, 10), *rng.randint(5, 10, size=depth), n_outputs]
    weights = [rng.standard_normal((n, m)) / np.sqrt(n) for n, m in zip(sizes, sizes[1:])]
    biases = [0.5 * rng.standard_normal(m) for m in sizes[1:]]

    def outputs(X):
        for W, b in zip(weights[:-1], biases[:-1]):
            X = hidden(X @ W + b)
        return output(X @ weights[-1] + biases[-1])

    return outputs, sizes


def seen_of(box, D):
    return detect_activation(Oracle(box, D), np.random.RandomState(0))


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("hidden", ["tanh", "relu"])
def test_outputs_are_told(hidden, output):
    """Of 5 networks 4 at least, and none as another one without a doubt; and the hidden units behind them."""
    right = 0
    for seed in range(5):
        box, sizes = black_box(HIDDEN[hidden], OUTPUTS[output], seed=seed)
        seen = seen_of(box, sizes[0])
        assert seen.output.name == output or seen.output.doubt, str(seen)
        assert seen.name == hidden or seen.doubt or seen.output.doubt, str(seen)
        right += seen.output.name == output and not seen.output.doubt and seen.name == hidden
        assert seen.n_queries < 5000
    assert right >= 4


@pytest.mark.parametrize(
    ("hidden", "output", "says"),
    [
        (np.tanh, lambda z: 0.5 + 0.1 * np.tanh(z), "between 0 and 1, as behind sigmoid"),
        (HIDDEN["relu"], lambda z: np.clip(z, -1.0, 1.0), "they may be clipped there"),
        (HIDDEN["relu"], erf, "not as a tanh of growing units does"),
        (HIDDEN["relu"], lambda z: np.maximum(z, 0.0), "never negative, and 0 along some rays, as behind relu"),
        (np.sin, np.tanh, "between -1 and 1, as behind tanh"),
    ],
)
def test_what_cannot_be_told_is_doubted(hidden, output, says):
    box, sizes = black_box(hidden, output, depth=2, seed=1)
    seen = seen_of(box, sizes[0]).output
    assert seen.name == "identity" and says in str(seen)


def test_smooth_units_behind_a_saturated_output_are_not_named():
    box, sizes = black_box(HIDDEN["softplus"], np.tanh)
    seen = seen_of(box, sizes[0])
    assert seen.output.name == "tanh" and seen.output.saturates and seen.name is None and seen.doubt


def test_activations_of_linear_functions_are_hidden_units():
    W = np.random.RandomState(0).standard_normal((4, 3))
    seen = seen_of(lambda X: np.tanh(X @ W + 0.3), 4)
    assert (seen.output.name, seen.name) == ("identity", "tanh") and not seen.output.doubt


def test_where_outputs_are_tiny_tanh_is_linear():
    box, sizes = black_box(np.tanh, lambda z: 1e-9 * z, depth=2)
    seen = seen_of(box, sizes[0])
    assert (seen.output.name, seen.output.doubt) == ("identity", "") and seen.n_queries < 1500


def test_labels_are_no_outputs_of_a_network():
    box, sizes = black_box(np.tanh, lambda z: np.eye(3)[z.argmax(axis=1)], n_outputs=3)
    seen = seen_of(box, sizes[0])
    assert seen.doubt or seen.name == "step"


def test_noise_leaves_a_doubt_or_the_right_name():
    box, sizes = black_box(np.tanh, np.tanh)
    rng = np.random.RandomState(0)
    noisy = Oracle(lambda X: box(X) + 1e-5 * rng.standard_normal((len(X), 2)), sizes[0])
    output = detect_output_activation(noisy, np.random.RandomState(0), 1e-5)
    assert output.name == "tanh" or output.doubt


@pytest.mark.parametrize(("name", "g"), [("tanh", np.tanh), ("sigmoid", expit), ("erf", erf)])
def test_inverses_and_their_errors(name, g):
    z = np.linspace(-3.0, 3.0, 7)[:, None]
    error = np.full_like(z, 1e-10)
    found, bound = inverse(name, g(z) + error, error)
    assert np.all(np.abs(found - z) <= 1.01 * bound) and np.all(bound < 2e-4)
    assert np.isinf(inverse(name, g(np.array([[50.0]])), np.array([[1e-16]]))[1]).all()


@pytest.mark.parametrize(
    ("g", "told"), [(HIDDEN["relu"], "piecewise"), (lambda z: z, "linear"), (HIDDEN["softplus"], "curved")]
)
def test_shape_near_the_center(g, told):
    box, sizes = black_box(g, np.tanh)
    assert classify_near_center(PreActivationOracle(Oracle(box, sizes[0]), "tanh"), np.random.RandomState(0)) == told


@pytest.mark.parametrize(("hidden", "told"), [("relu", "piecewise"), ("softplus", "curved")])
def test_shape_near_the_center_of_hundreds_of_units(hidden, told):
    """Their boundaries lie in nearly all intervals of long lines."""
    rng = np.random.RandomState(0)
    W, b, V = rng.standard_normal((50, 600)) / np.sqrt(50), rng.standard_normal(600), rng.standard_normal((600, 2)) / 60
    oracle = Oracle(lambda X: np.tanh(HIDDEN[hidden](X @ W + b) @ V), 50)
    assert classify_near_center(PreActivationOracle(oracle, "tanh"), np.random.RandomState(0)) == told


class TestIdentifier:
    """Functions of which nothing is named."""

    def fit(self, hidden, output, depth=1, widths="auto", n_outputs=2, **options):
        box, sizes = black_box(HIDDEN[hidden], OUTPUTS[output], depth, n_outputs=n_outputs)
        X = np.random.RandomState(1).standard_normal((150, sizes[0]))
        widths = tuple(sizes[1:]) if widths == "given" else widths
        identifier = make_identifier(box, layer_widths=widths, random_state=0, **options).fit(X)
        return identifier, np.abs(identifier.predict(X) - box(X)).max()

    @pytest.mark.parametrize("hidden", ["tanh", "relu"])
    @pytest.mark.parametrize("n_outputs", [2, 3])
    def test_softmax(self, hidden, n_outputs):
        identifier, error = self.fit(hidden, "softmax", widths="given", n_outputs=n_outputs)
        assert identifier.report_.exact and error < 1e-12
        assert identifier.network_.activation == hidden and identifier.network_.output_activation == "identity"
        assert not hasattr(identifier, "classes_")  # it outputs as the function does
        assert "output softmax (outputs sum to 1)" in str(identifier.report_)

    @pytest.mark.parametrize("hidden", ["tanh", "relu"])
    def test_sigmoid_of_one_output(self, hidden):
        identifier, error = self.fit(hidden, "sigmoid", n_outputs=1)
        assert identifier.report_.exact and error < 1e-12
        assert identifier.network_.output_activation == "sigmoid" and identifier.network_.activation == hidden

    def test_tanh_of_several_outputs(self):
        for widths in (None, "given"):
            identifier, error = self.fit("tanh", "tanh", widths=widths)
            assert identifier.report_.exact and error < 1e-12
            assert identifier.network_.output_activation == "tanh"

    def test_the_rival_of_a_linear_output_is_tried_with_widths(self):
        identifier, error = self.fit("tanh", "sigmoid", depth=2, widths="given", n_outputs=3, n_attempts=1, n_starts=2)
        assert identifier.report_.exact and error < 1e-12
        assert identifier.network_.output_activation == "sigmoid"
        seen = identifier.report_.activation.output
        assert (seen.name, seen.rival) == ("sigmoid", "identity") and "as behind sigmoid" in seen.doubt

    def test_relu_units_behind_tanh(self):
        identifier, error = self.fit("relu", "tanh")
        assert identifier.report_.exact and error < 1e-10
        assert str(identifier.report_.activation.output).startswith("output tanh")

    def test_a_linear_output_that_was_named_is_kept(self):
        box, sizes = black_box(np.tanh, np.tanh)
        X = np.random.RandomState(1).standard_normal((150, sizes[0]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            identifier = NetworkIdentifier(box, layer_widths=None, output_activation="identity", random_state=0).fit(X)
        assert identifier.network_.output_activation == "identity" and not identifier.report_.exact
