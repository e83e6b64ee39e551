"""skident.datasets: sizes, distributions, reproducibility and error messages."""

import numpy as np
import pytest
from scipy import stats

from skident.datasets import make_network, make_planted_shallow, make_pyramidal_network, pyramidal_widths


@pytest.mark.parametrize(
    ("n_layers", "n_outputs", "n_neurons", "contraction", "expected"),
    [
        (3, 10, 200, 0.6, (119, 71, 10)),
        (4, 10, 200, 1.0, (64, 63, 63, 10)),
        (3, 10, 400, 0.5, (260, 130, 10)),
        (2, 10, 100, 0.3, (90, 10)),
        (1, 7, 7, 0.6, (7,)),
        # Section 4.2 lists these for m = 100 and 200, without the 10 outputs.
        (3, 10, 110, 1.0, (50, 50, 10)),
        (3, 10, 210, 0.6, (125, 75, 10)),
        (4, 10, 210, 1.0, (68, 66, 66, 10)),
        # Figure 2, right, for m = 14, again without the outputs.
        (4, 3, 17, 0.5, (8, 4, 2, 3)),
    ],
)
def test_widths_known(n_layers, n_outputs, n_neurons, contraction, expected):
    assert pyramidal_widths(n_layers, n_outputs, n_neurons, contraction) == expected


@pytest.mark.parametrize("contraction", [0.25, 0.5, 0.6, 0.75, 0.8, 1.0])
@pytest.mark.parametrize("n_layers", [2, 3, 4, 5])
def test_widths_properties(n_layers, contraction):
    for n_neurons in range(200, 1501, 61):
        widths = pyramidal_widths(n_layers, 10, n_neurons, contraction)
        assert len(widths) == n_layers and sum(widths) == n_neurons and widths[-1] == 10
        inner = np.array(widths[:-1])
        exact = (n_neurons - 10) * contraction ** np.arange(n_layers - 1)
        exact /= np.sum(contraction ** np.arange(n_layers - 1))
        assert np.all(np.diff(inner) <= 0)
        assert np.all(np.abs(inner[1:] - exact[1:]) < 1) and abs(inner[0] - exact[0]) < n_layers - 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 10, 11, 0.6), "at least one unit.*try more neurons"),
        ((3, 10, 10, 0.6), r"widths \(0, 0, 10\)"),
        ((2, 10, 5, 0.6), "at least one unit"),
        ((1, 10, 20, 0.6), "n_layers=1 leaves only the output layer"),
        ((5, 10, 40, 0.05), "larger contraction"),
        ((0, 10, 20, 0.6), "n_layers must be an integer >= 1, got 0"),
        ((2.0, 10, 20, 0.6), "n_layers must be an integer"),
        ((2, True, 20, 0.6), "n_outputs must be an integer"),
        ((2, 10, "20", 0.6), "n_neurons must be an integer"),
        ((2, 10, 20, 0.0), "contraction must be a number in"),
        ((2, 10, 20, 1.5), "contraction must be a number in"),
        ((2, 10, 20, float("nan")), "contraction must be a number in"),
        ((2, 10, 20, None), "contraction must be a number in"),
    ],
)
def test_widths_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        pyramidal_widths(*arguments)


def test_network_shapes_and_norms():
    network = make_pyramidal_network(50, 3, 10, 200, contraction=0.6, random_state=3)
    assert [W.shape for W in network.weights] == [(50, 119), (119, 71), (71, 10)]
    assert [b.shape for b in network.biases] == [(119,), (71,), (10,)]
    for W in network.weights:
        np.testing.assert_allclose(np.linalg.norm(W, axis=0), 1.0, rtol=1e-14)


def test_numpy_integers_are_sizes():
    assert pyramidal_widths(np.int64(3), np.int32(10), np.uint16(200), np.float32(0.5)) == (127, 63, 10)
    assert make_network(np.array([3, 2])).n_outputs == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("tanh", "tanh")),
        ({"activation": "sigmoid"}, ("sigmoid", "sigmoid")),
        ({"output_activation": "identity"}, ("tanh", "identity")),
    ],
)
def test_activations(options, expected):
    networks = [make_network((4, *pyramidal_widths(2, 2, 5)), **options)]
    if "output_activation" not in options:
        networks.append(make_pyramidal_network(4, 2, 2, 5, **options))
    for network in networks:
        assert (network.activation, network.output_activation) == expected


def test_random_state():
    first, again, other = (make_network((5, 4, 3), random_state=seed) for seed in (0, np.random.RandomState(0), 1))
    for name in ("weights", "biases"):
        for a, b, c in zip(getattr(first, name), getattr(again, name), getattr(other, name)):
            np.testing.assert_array_equal(a, b)
            assert not np.any(a == c)


def test_pyramidal_is_make_network_of_its_widths():
    pyramidal = make_pyramidal_network(6, 3, 2, 11, contraction=0.5, bias_scale=0.3, random_state=5)
    direct = make_network((6, *pyramidal_widths(3, 2, 11, 0.5)), bias_scale=0.3, random_state=5)
    assert pyramidal == direct


def test_global_random_stream_is_untouched():
    before = np.random.get_state()
    make_network((5, 4, 3), random_state=0)
    after = np.random.get_state()
    assert before[2] == after[2] and np.array_equal(before[1], after[1])


def test_distributions():
    # A coordinate t of a uniform vector on the sphere in R^d has (t + 1) / 2 ~ Beta((d - 1) / 2, (d - 1) / 2).
    network = make_network((8, 4000), bias_scale=0.05, random_state=0)
    coordinate = stats.beta(3.5, 3.5, loc=-1, scale=2)
    assert min(stats.kstest(row, coordinate.cdf).pvalue for row in network.weights[0]) > 1e-3
    assert stats.kstest(network.biases[0], stats.norm(scale=0.05).cdf).pvalue > 1e-3


def test_no_shifts():
    assert not any(b.any() for b in make_network((4, 3, 2), bias_scale=0, random_state=0).biases)


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((5,), {}, "number of inputs and at least one layer width"),
        ((), {}, "number of inputs and at least one layer width"),
        ((5, 0, 2), {}, r"layer_sizes\[1\] must be an integer >= 1, got 0"),
        ((5, 2.5), {}, r"layer_sizes\[1\] must be an integer"),
        ((5, 2), {"bias_scale": -0.1}, "bias_scale must be a finite number >= 0"),
        ((5, 2), {"bias_scale": np.inf}, "bias_scale must be a finite number >= 0"),
        ((5, 2), {"activation": "tangent"}, "activation must be one of"),
        ((5, 2), {"output_activation": "tangent"}, "activation must be one of"),
    ],
)
def test_network_errors(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        make_network(sizes, **options)


def test_bad_number_of_inputs():
    with pytest.raises(ValueError, match="n_inputs must be an integer >= 1, got 0"):
        make_pyramidal_network(0, 2, 2, 5)


def test_planted_shallow_is_its_network():
    X, y, W, v = make_planted_shallow(
        40, 5, 3, activation="softplus", sharpness=10.0, output_signs="mixed", coef=True, random_state=1
    )
    assert y == pytest.approx(np.log1p(np.exp(10.0 * (X @ W.T))) @ v / 10.0, rel=1e-12)
    assert set(v) <= {1.0, -1.0} and X.shape == (40, 5) and W.shape == (3, 5)
    assert np.array_equal(X, make_planted_shallow(40, 5, 3, random_state=1)[0])


def test_planted_shallow_labels_and_noise():
    exact, noisy, random = (
        make_planted_shallow(4000, 5, 3, random_state=2, **options)[1]
        for options in ({}, {"noise": 0.5}, {"labels": "random"})
    )
    assert np.std(noisy - exact) == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(random, exact)[0, 1]) < 0.06
    given = make_planted_shallow(10, 5, 2, output_signs=[2.0, -3.0], coef=True, random_state=2)[3]
    assert np.array_equal(given, [2.0, -3.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "none"}, "labels must be"),
        ({"noise": -1.0}, "noise must be a finite number >= 0"),
        ({"sharpness": 0.0}, "sharpness must be a finite number > 0"),
        ({"output_signs": "both"}, "output_signs must be"),
        ({"output_signs": [1.0]}, "must be 2 finite numbers"),
    ],
)
def test_planted_shallow_errors(options, message):
    with pytest.raises(ValueError, match=message):
        make_planted_shallow(10, 5, 2, **options)
