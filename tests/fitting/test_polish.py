import time

import numpy as np
import pytest

from skident.base.progress import StageLog
from skident.budget import time_limit
from skident.datasets import make_network
from skident.fitting.design import design_points, points_for_deep_units
from skident.fitting.polish import polish_from_oracle, polish_network
from skident.fitting.standard_errors import standard_errors
from skident.metrics import parameter_error, relative_max_error
from skident.network import FeedforwardNetwork, change_inputs
from skident.oracle import Oracle


def bent(network, size, rng):
    """A network whose parameters are off by about `size`."""
    noise = lambda A: A + size * rng.standard_normal(A.shape)  # noqa: E731
    weights, biases = [noise(W) for W in network.weights], [noise(b) for b in network.biases]
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


CASES = {
    "linear output": make_network((5, 4, 2), bias_scale=0.5, output_activation="identity", random_state=0),
    "two layers": make_network((5, 6, 2), bias_scale=0.5, random_state=0),
    "three layers": make_network((6, 5, 4, 2), bias_scale=0.3, activation="erf", random_state=0),
}


LIMITS = {
    "dense": {"dense_limit": 3000},
    "factored": {"dense_limit": 0, "factor_limit": 3000},
    "conjugate gradients": {"dense_limit": 0, "factor_limit": 0},
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("name", CASES)
def test_to_rounding_error(name, limits, rng):
    network = CASES[name]
    U = rng.standard_normal((4 * network.n_parameters, network.n_inputs))
    found, misfit, n_iter = polish_network(bent(network, 1e-2, rng), U, network(U), **limits)
    assert misfit < 1e-13 and 1 <= n_iter <= 60
    assert parameter_error(network, found) < 1e-10


def test_callback_counts_steps(rng):
    network, steps = CASES["two layers"], []
    U = rng.standard_normal((100, 5))
    *_, n_iter = polish_network(bent(network, 1e-2, rng), U, network(U), callback=steps.append)
    assert steps == list(range(1, n_iter + 1))


def test_a_hopeless_start_ends_soon(rng):
    network = make_network((5, 8, 5, 2), random_state=0)
    U = rng.standard_normal((200, 5))
    *_, misfit, n_iter = polish_network(bent(network, 3.0, rng), U, rng.standard_normal((200, 2)), max_iter=400)
    assert misfit > 0.1 and n_iter < 150


@pytest.mark.parametrize("name", CASES)
def test_from_an_oracle(name, rng):
    network = CASES[name]
    oracle, log = Oracle(network, network.n_inputs), StageLog()
    found, misfit, _ = polish_from_oracle(oracle, bent(network, 1e-2, rng), np.random.RandomState(0), log)
    U = 3.0 * rng.standard_normal((500, network.n_inputs))
    assert misfit < 1e-12 and relative_max_error(network(U), found(U)) < 1e-12
    assert sum(stage.queries for stage in log.stages) == oracle.n_queries
    assert len(log.stages) == (1 if name == "linear output" else 2)


@pytest.mark.parametrize(("size", "n_stages"), [(1e-5, 2), (1e-1, 3)])
def test_a_close_start_of_many_parameters_has_one_round(size, n_stages, monkeypatch, rng):
    """40 rows tell how close it is; then it has about 1.5 answers a parameter."""
    monkeypatch.setattr("skident.fitting.polish._FRUGAL_PARAMETERS", range(10, 100))
    network = make_network((8, 10, 8, 3), output_activation="identity", bias_scale=0.3, random_state=0)
    oracle, log = Oracle(network, 8), StageLog()
    found, misfit, _ = polish_from_oracle(oracle, bent(network, size, rng), np.random.RandomState(0), log)
    assert misfit < 1e-14 and parameter_error(network, found) < 1e-10
    assert [stage.queries for stage in log.stages][0] == 40 and len(log.stages) == n_stages
    assert sum(stage.queries for stage in log.stages) == oracle.n_queries
    assert oracle.n_queries * 3 / network.n_parameters < (1.7 if size == 1e-5 else 2.7)


def test_many_parameters_from_an_oracle(rng):
    network = make_network((12, 48, 46, 3), output_activation="identity", bias_scale=0.3, random_state=0)
    oracle = Oracle(network, 12)
    found, misfit, _ = polish_from_oracle(oracle, bent(network, 1e-5, rng), np.random.RandomState(0), StageLog())
    assert misfit < 1e-14 and parameter_error(network, found) < 1e-10


@pytest.mark.parametrize("few", [range(10), range(600, 3001)])
def test_answers_that_are_all_the_same(few, monkeypatch, rng):
    """With few parameters, and as if they were many."""
    monkeypatch.setattr("skident.fitting.polish._FRUGAL_PARAMETERS", few)
    network = make_network((4, 5, 1), output_activation="identity", random_state=0)
    oracle = Oracle(lambda X: np.zeros((len(X), 1)), 4)
    found, misfit, _ = polish_from_oracle(oracle, network, np.random.RandomState(0), StageLog())
    assert np.isfinite(found(rng.standard_normal((5, 4)))).all() and misfit >= 0.0


def test_change_of_inputs_and_back(rng):
    network, center, scale = CASES["three layers"], rng.standard_normal(6), rng.uniform(0.1, 10, 6)
    U = rng.standard_normal((20, 6))
    changed = change_inputs(network, center, scale)
    np.testing.assert_allclose(changed(U), network(center + scale * U), atol=1e-13)
    back = change_inputs(changed, -center / scale, 1.0 / scale)
    assert max(np.abs(a - b).max() for a, b in zip(back.weights, network.weights)) < 1e-14


def test_design_points_show_every_unit():
    """Also one whose hyperplane is far away, and one of tiny weights."""
    rng = np.random.RandomState(0)
    W, b = rng.standard_normal((6, 5)), np.array([0.0, 0.1, -0.2, 60.0, 0.0])
    U = design_points(W, b, 100, 1.0, rng)
    Z = np.abs(U @ W + b)
    assert U.shape[1] == 6 and len(U) >= 100
    assert np.all(np.sum(Z < 2.5, axis=0) >= 12)


def test_points_for_deep_units_show_units_that_hardly_ever_move():
    """A second-layer unit is saturated at all but one in a thousand inputs near the data."""
    rng = np.random.RandomState(0)
    weights = [rng.standard_normal((4, 6)), 3.0 * rng.standard_normal((6, 3)), rng.standard_normal((3, 2))]
    biases = [rng.standard_normal(6), np.array([0.0, 14.0, 0.5]), np.zeros(2)]
    network = FeedforwardNetwork(weights, biases, "tanh", "identity")

    def moving(U):
        return np.mean(np.abs(np.tanh(U @ weights[0] + biases[0]) @ weights[1] + biases[1]) < 2.5, axis=0)

    U = points_for_deep_units(network, 90, rng)
    assert moving(rng.standard_normal((2000, 4)))[1] < 2e-3
    assert U.shape[1] == 4 and 45 <= len(U) <= 90 and moving(U).min() > 0.2


def test_a_thorough_polish_shows_what_a_usual_one_leaves_open():
    """A steep second layer: fewer answers are explained by a network that is wrong elsewhere."""
    network = make_network((4, 8, 4, 2), bias_scale=0.5, output_activation="identity", random_state=0)
    truth = FeedforwardNetwork([W * s for W, s in zip(network.weights, (3.0, 6.0, 1.0))], network.biases, "tanh")
    start, oracle = bent(truth, 1e-6, np.random.default_rng(0)), Oracle(lambda X: truth(X), 4)
    log = StageLog(False, "test")
    found, misfit, _ = polish_from_oracle(oracle, start, np.random.RandomState(0), log, thorough=True)
    assert misfit < 1e-13 and oracle.n_queries >= 10 * truth.n_parameters // 2
    assert parameter_error(truth, found) < 1e-9


def test_design_points_without_moves():
    """Around the point where all units are at their inflection point, wherever that is."""
    U = design_points(np.eye(3), np.full(3, 50.0), 40, 0.5, np.random.RandomState(0), near=0.0)
    assert U.shape == (40, 3) and 0.3 < U.std() < 0.7
    np.testing.assert_allclose(U.mean(axis=0), -50, atol=0.5)


# -- noise -------------------------------------------------------------------------------------------------------------


def parameters(weights, biases):
    return np.concatenate([A.ravel() for A in (*weights, *biases)])


@pytest.mark.parametrize("size", [1e-6, 1e-3])
@pytest.mark.parametrize("name", CASES)
def test_standard_errors_are_those_of_repeated_fits(name, size, rng):
    """z-scores over 30 draws; some 1000 of them, in correlated lots, so their sd is known to a tenth or so."""
    network, noise = CASES[name], size * np.array([0.5, 2.0])
    U = rng.standard_normal((5 * network.n_parameters, network.n_inputs))
    start, truth = bent(network, 1e-3, rng), parameters(network.weights, network.biases)
    given = []
    for _ in range(30):
        Y = network(U) + noise * rng.standard_normal((len(U), 2))
        found, misfit, _ = polish_network(start, U, Y, noise=noise)
        error = parameters(found.weights, found.biases) - truth
        given.append(error / parameters(*standard_errors(found, U, noise)))
        assert 0.1 * size < misfit < 10 * size
    assert 0.8 < np.std(given) < 1.2


@pytest.mark.parametrize("size", [1e-6, 1e-3])
def test_standard_errors_of_relu_are_those_of_networks_in_standard_form(size, rng):
    shape = {"activation": "relu", "output_activation": "identity", "bias_scale": 0.3, "random_state": 0}
    network = make_network((4, 5, 2), **shape).canonical()
    U, truth, given = rng.standard_normal((600, 4)), parameters(network.weights, network.biases), []
    for _ in range(30):
        Y = network(U) + size * rng.standard_normal((len(U), 2))
        found = polish_network(network, U, Y, noise=size)[0].canonical()
        given.append((parameters(found.weights, found.biases) - truth) / parameters(*standard_errors(found, U, size)))
    assert 0.8 < np.std(given) < 1.2


def test_outputs_are_weighted_by_their_noise():
    """One output is a thousand times as noisy as the other: what the clean one tells of the first layer is kept."""
    noise, gains = np.array([1e-6, 1e-3]), []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        network = make_network((5, 6, 2), bias_scale=0.5, random_state=seed)
        U = rng.standard_normal((1000, 5))
        Y = network(U) + noise * rng.standard_normal((1000, 2))
        start, truth = bent(network, 1e-3, rng), network.weights[0]
        weighted, even = (polish_network(start, U, Y, noise=sigma)[0].weights[0] for sigma in (noise, 1e-3))
        gains.append(np.abs(weighted - truth).max() / np.abs(even - truth).max())
    assert np.median(gains) < 1e-2


@pytest.mark.parametrize("size", [1e-6, 1e-3])
@pytest.mark.parametrize("name", CASES)
def test_from_a_noisy_oracle(name, size, rng):
    """With 20 outputs per parameter the error is below the noise on inputs of the fit, ten times that elsewhere.

    Half of them come last, when their standard deviations and the inputs where units vary are known.
    """
    network = CASES[name]
    box = lambda X: network(X) + size * rng.standard_normal((len(X), 2))  # noqa: E731
    oracle, log = Oracle(box, network.n_inputs), StageLog()
    found, misfit, _ = polish_from_oracle(oracle, bent(network, 1e-2, rng), np.random.RandomState(0), log, noise=size)
    U = rng.standard_normal((500, network.n_inputs))
    assert misfit < 5 * size and relative_max_error(network(U), found(U)) < 10 * size
    answers = 2 * oracle.n_queries / network.n_parameters
    assert 10 <= answers < 24


def test_noise_below_rounding_is_none(rng):
    """The same fit, the same queries."""
    network = CASES["two layers"]
    start, results = bent(network, 1e-2, rng), []
    for noise in (None, 0.0, 1e-18):
        oracle = Oracle(network, 5)
        found, *_ = polish_from_oracle(oracle, start, np.random.RandomState(0), StageLog(), noise=noise)
        results.append((oracle.n_queries, parameter_error(network, found)))
    assert results[0] == results[1] == results[2] and results[0][1] < 1e-12
    assert oracle.n_queries < 3 * network.n_parameters / 2


UNDETERMINED = {
    "too few inputs": (CASES["two layers"], 10, "do not determine all"),
    "relu": (
        make_network((4, 3, 2), activation="relu", output_activation="identity", bias_scale=1e3, random_state=0),
        500,
        "never move",
    ),
}


@pytest.mark.parametrize("name", UNDETERMINED)
def test_standard_errors_of_what_is_not_determined(name, rng):
    network, n, message = UNDETERMINED[name]
    with pytest.raises(ValueError, match=message):
        standard_errors(network, rng.standard_normal((n, network.n_inputs)), 1e-3)


def test_a_matrix_to_be_factored_is_given_up_in_time():
    truth = make_network((4, 6, 3), random_state=0)
    rough = truth.with_parameters([W + 0.01 for W in truth.weights], truth.biases)
    U = np.random.default_rng(0).standard_normal((60, 4))
    options = {"dense_limit": 0, "factor_limit": 1000}
    with time_limit(time.perf_counter(), "over"):
        network, _, n_iter = polish_network(rough, U, truth(U), **options)
    assert n_iter <= 1
    np.testing.assert_allclose(network.weights[0], rough.weights[0], rtol=1e-12)
    _, misfit, _ = polish_network(rough, U, truth(U), callback=lambda n_iter: False, **options)
    assert misfit < 1e-14
