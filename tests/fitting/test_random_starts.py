"""Networks fitted from random starts and from small ones, by variable projection."""

import time

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident.datasets import make_network
from skident.fitting import small_starts
from skident.fitting.least_squares import Stopping, fit_network
from skident.fitting.pruning import prune_to, prune_to_smallest
from skident.fitting.random_starts import StartLimits, fit_from_random_starts, fit_smallest_network, random_network
from skident.fitting.small_starts import (
    HiddenLayerProblem,
    fit_from_small_starts,
    fit_hidden_layers,
    small_starts_apply,
)
from skident.metrics import parameter_error
from skident.network import Architecture, FeedforwardNetwork
from skident.network.calculus import forward


def sampler(network, rng, n_rows=4000):
    """Answers of a network; remembers how many rows were taken."""
    U = rng.standard_normal((n_rows, network.n_inputs))
    Y, taken = network(U), []

    def sample(n):
        taken.append(n)
        return U[:n], Y[:n]

    sample.taken = taken
    return sample


def padded(network, layer, n, rng, size=1e-3):
    """A network with n more units that do next to nothing."""
    weights, biases = list(network.weights), list(network.biases)
    a, c = weights[layer].shape[0], weights[layer + 1].shape[1]
    weights[layer] = np.column_stack([weights[layer], rng.standard_normal((a, n))])
    biases[layer] = np.append(biases[layer], rng.standard_normal(n))
    weights[layer + 1] = np.vstack([weights[layer + 1], size * rng.standard_normal((n, c))])
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


@pytest.mark.parametrize("output", ["tanh", "identity"])
@pytest.mark.parametrize("sizes", [(5, 3), (5, 4, 1), (6, 5, 4, 2)])
def test_a_network_through_answers(sizes, output, rng):
    network = make_network(sizes, bias_scale=0.5, output_activation=output, random_state=0)
    sample, starts = sampler(network, rng), []
    found, misfit = fit_from_random_starts(
        sample,
        sizes[0],
        Architecture(sizes[1:], "tanh", output),
        np.random.RandomState(0),
        limits=StartLimits(progress=starts.append),
    )
    assert misfit < 1e-9 and found.layer_widths == sizes[1:]
    assert starts == list(range(1, len(starts) + 1))
    U = rng.standard_normal((100, sizes[0]))
    np.testing.assert_allclose(found(U), network(U), atol=1e-6)


def test_answers_of_no_network_use_up_the_budget(rng):
    Y = rng.standard_normal((4000, 2))
    U = rng.standard_normal((4000, 4))
    starts = []
    _, misfit = fit_from_random_starts(
        lambda n: (U[:n], Y[:n]),
        4,
        Architecture((2, 2), "tanh", "tanh"),
        np.random.RandomState(0),
        limits=StartLimits(5, progress=starts.append),
    )
    assert misfit > 0.5 and starts == [1, 2, 3, 4, 5]


def test_no_time_left_is_one_start(rng):
    Y, U = rng.standard_normal((4000, 2)), rng.standard_normal((4000, 4))
    starts = []
    network, misfit = fit_from_random_starts(
        lambda n: (U[:n], Y[:n]),
        4,
        Architecture((2, 2), "tanh", "tanh"),
        np.random.RandomState(0),
        limits=StartLimits(50, deadline=0.0, progress=starts.append),
    )
    assert starts == [1] and network.layer_widths == (2, 2) and misfit > 0.5


def test_wide_starts_that_get_nowhere_leave_something(rng):
    """Also where no start has the widths asked for."""
    Y, U = rng.standard_normal((4000, 2)), rng.standard_normal((4000, 4))
    network, misfit = fit_from_random_starts(
        lambda n: (U[:n], Y[:n]),
        4,
        Architecture((2, 2), "tanh", "tanh"),
        np.random.RandomState(0),
        limits=StartLimits(50, deadline=0.0),
        rounds=((1.5, 2),),
    )
    assert network.layer_widths == (2, 2) and misfit > 0.5


def test_jobs_do_not_change_the_result(rng):
    network = make_network((5, 4, 1), bias_scale=0.5, random_state=3)
    found = [
        fit_from_random_starts(
            sampler(network, np.random.default_rng(0)),
            5,
            Architecture((4, 1), "tanh", "tanh"),
            np.random.RandomState(1),
            limits=StartLimits(20, n_jobs=n_jobs),
        )[0]
        for n_jobs in (1, 2)
    ]
    assert found[0] == found[1]


def test_from_a_stem(rng):
    network = make_network((5, 6, 3, 2), bias_scale=0.3, random_state=0)
    stem = network.weights[0], network.biases[0] + 0.1
    found, misfit = fit_from_random_starts(
        sampler(network, rng), 5, Architecture((6, 3, 2), "tanh", "tanh"), np.random.RandomState(0), stem=stem
    )
    assert misfit < 1e-9
    assert parameter_error(network, found) < 1e-5


@pytest.mark.parametrize(("layer", "n"), [(0, 3), (1, 2)])
def test_pruning_to_given_and_to_smallest_widths(layer, n, rng):
    network = make_network((6, 5, 4, 2), bias_scale=0.3, random_state=0)
    U = rng.standard_normal((600, 6))
    start = padded(network, layer, n, rng)
    for found, misfit in (
        prune_to(start, U, network(U), network.layer_widths),
        prune_to_smallest(start, U, network(U), [1, 1], tol=1e-9),
    ):
        assert misfit < 1e-9 and found.layer_widths == network.layer_widths


def test_pruning_below_what_is_needed_says_so(rng):
    network = make_network((6, 5, 2), random_state=0)
    U = rng.standard_normal((300, 6))
    found, misfit = prune_to(network, U, network(U), (3, 2))
    assert misfit > 1e-3


@pytest.mark.parametrize(("at_least", "exact"), [((1, 2), ()), ((5, 2), (0,))])
def test_smallest_network(at_least, exact, rng):
    network = make_network((6, 5, 2), bias_scale=0.3, random_state=0)
    found, misfit = fit_smallest_network(
        sampler(network, rng), 6, Architecture(at_least, "tanh", "tanh"), np.random.RandomState(0), exact=exact
    )
    assert misfit < 1e-9 and found.layer_widths == (5, 2)


def test_no_smallest_network_within_bounds(rng):
    network = make_network((6, 12, 2), bias_scale=0.3, random_state=0)
    found, misfit = fit_smallest_network(
        sampler(network, rng), 6, Architecture((1, 2), "tanh", "tanh"), np.random.RandomState(0), max_neurons=8
    )
    assert found is None and misfit > 1e-6


def test_wide_layers_without_a_deadline_are_warned_of(rng, monkeypatch):
    monkeypatch.setattr("skident.fitting.random_starts._SLOW_SIZE", 8)
    options = {"min_architecture": Architecture((1, 2), "tanh", "tanh"), "max_neurons": 8}
    sample = sampler(make_network((4, 2, 2), bias_scale=0.3, random_state=0), rng)
    with pytest.warns(ConvergenceWarning, match="minutes to hours: max_seconds bounds the search"):
        found, _ = fit_smallest_network(sample, 4, rng=np.random.RandomState(0), **options)
    assert found.layer_widths == (2, 2)
    in_time = StartLimits(8, deadline=time.perf_counter() + 100.0)
    fit_smallest_network(sample, 4, rng=np.random.RandomState(0), limits=in_time, **options)


def test_random_start(rng):
    network = random_network(7, Architecture((6, 2), "sigmoid"), np.random.RandomState(0))
    assert network.layer_widths == (6, 2) and network.n_inputs == 7 and network.activation == "sigmoid"


def test_one_fit_stops_when_good_enough(rng):
    network = make_network((5, 3), random_state=0)
    U = rng.standard_normal((100, 5))
    start = FeedforwardNetwork([network.weights[0] + 0.05], network.biases, "tanh", "tanh")
    misfits = [fit_network(start, U, network(U), Stopping(target=good))[1] for good in (1e-3, 1e-12)]
    assert misfits[1] < 1e-12 < misfits[0] < 1e-3


def planted(sizes, seed, activation="tanh"):
    rng = np.random.RandomState(seed)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    return FeedforwardNetwork(weights, [0.3 * rng.standard_normal(b) for _, b in pairs], activation)


def in_a_cube(network, seed=0, n_rows=3000):
    """Answers in the cube of first-layer outputs."""
    U = np.random.RandomState(seed).uniform(-1.0, 1.0, size=(n_rows, network.n_inputs))
    return lambda n: (U[:n], network(U[:n]))


def test_two_hidden_layers_below_one_output():
    """Both are found, in few starts."""
    starts = []
    for seed in range(2):
        truth = planted((6, 5, 4, 1), seed)
        found, misfit = fit_from_small_starts(
            in_a_cube(truth),
            6,
            Architecture.of(truth),
            np.random.RandomState(seed),
            limits=StartLimits(12, progress=starts.append),
        )
        assert misfit < 1e-9 and parameter_error(truth, found) < 1e-6
    assert len(starts) <= 20


def test_answers_of_no_network(rng):
    """Something of the widths asked for, with its misfit, also where there is no time."""
    Y = rng.standard_normal((3000, 1))
    U = rng.standard_normal((3000, 4))
    for n_starts, deadline in ((2, np.inf), (50, 0.0)):
        starts = []
        search = StartLimits(n_starts, deadline=deadline, progress=starts.append)
        found, misfit = fit_from_small_starts(
            lambda n: (U[:n], Y[:n]), 4, Architecture((3, 2, 1)), np.random.RandomState(0), limits=search
        )
        assert found.layer_widths == (3, 2, 1) and misfit > 0.5
        assert max(starts) <= (n_starts if deadline else 1)


@pytest.mark.parametrize(
    ("widths", "output", "serves"),
    [
        ((10, 8, 1), "identity", True),
        ((16, 16, 16, 1), "identity", True),
        ((8, 1), "identity", False),
        ((10, 8, 1), "tanh", False),
        ((64, 64, 1), "identity", False),
    ],
)
def test_what_small_starts_serve(widths, output, serves):
    assert small_starts_apply(12, Architecture(widths, "tanh", output)) == serves


def test_outputs_that_are_not_linear_are_refused():
    with pytest.raises(ValueError, match="output_activation='tanh': only linear outputs"):
        fit_from_small_starts(None, 4, Architecture((3, 2, 1), "tanh", "tanh"), np.random.RandomState(0))


RIDGE = 1e-7


@pytest.fixture(params=[((4, 5, 3, 1), "tanh"), ((3, 4, 2), "sigmoid"), ((3, 4, 2, 3), "erf")], ids=str)
def case(request, rng):
    """A network, inputs, and answers of no such network."""
    sizes, activation = request.param
    network = make_network(sizes, activation=activation, output_activation="identity", bias_scale=0.3, random_state=0)
    return network, rng.standard_normal((40, sizes[0])), rng.standard_normal((40, sizes[-1]))


def slow_cost(problem, theta, U, Y):
    """The ridge regression on what the output layer reads, as one stacked least-squares problem."""
    network = problem.network(theta)
    H = np.column_stack(
        [forward(network.weights[:-1], network.biases[:-1], network.activations[:-1], U), np.ones(len(U))]
    )
    stacked = np.vstack([H, np.sqrt(RIDGE * len(U)) * np.eye(H.shape[1])])
    wanted = np.vstack([Y, np.zeros((H.shape[1], Y.shape[1]))])
    readout = np.linalg.lstsq(stacked, wanted, rcond=None)[0]
    return np.sum((stacked @ readout - wanted) ** 2)


def test_the_cost_is_least_over_the_output_layer(case):
    network, U, Y = case
    problem = HiddenLayerProblem(network, U, Y)
    theta = problem.flatten(network)
    np.testing.assert_allclose(problem.cost(theta), slow_cost(problem, theta, U, Y), rtol=1e-10)


def test_gradient_by_differences(case):
    network, U, Y = case
    problem = HiddenLayerProblem(network, U, Y)
    theta, h = problem.flatten(network), 1e-5
    steps = h * np.eye(len(theta))
    slopes = [(problem.cost(theta + e) - problem.cost(theta - e)) / (4.0 * h) for e in steps]  # of half the cost
    model = problem.linearize(theta)
    np.testing.assert_allclose(model.gradient, slopes, atol=1e-6 * np.abs(slopes).max())


def test_blocks_of_rows_do_not_change_the_model(case, monkeypatch):
    network, U, Y = case
    problem = HiddenLayerProblem(network, U, Y)
    theta = problem.flatten(network)
    one = problem.linearize(theta)
    monkeypatch.setattr(small_starts, "chunks", lambda n, _: [slice(k, min(k + 7, n)) for k in range(0, n, 7)])
    other = problem.linearize(theta)
    np.testing.assert_allclose(one.matrix, other.matrix, atol=1e-10)
    np.testing.assert_allclose(one.gradient, other.gradient, atol=1e-10 * np.abs(one.gradient).max())


def test_a_cost_that_is_not_finite_is_infinite(case):
    network, U, Y = case
    problem = HiddenLayerProblem(network, U, Y)
    assert problem.cost(np.full(problem.n_parameters, np.nan)) == np.inf


def test_a_fit_from_nearby_and_one_without_time(rng):
    truth = make_network((4, 5, 3, 2), output_activation="identity", bias_scale=0.3, random_state=1)
    rough = truth.with_parameters([W + 0.1 * rng.standard_normal(W.shape) for W in truth.weights], truth.biases)
    U = rng.standard_normal((300, 4))
    Y = 100.0 + truth(U) * [1.0, 1e-3]
    fitted, misfit = fit_hidden_layers(rough, U, Y)
    late, misfit_of_late = fit_hidden_layers(rough, U, Y, deadline=0.0)
    errors = (fitted(U) - Y) / Y.std(axis=0)
    np.testing.assert_allclose(misfit, np.sqrt(np.mean(errors**2)), rtol=1e-6)
    assert misfit < 5e-3 and misfit < 0.3 * misfit_of_late and late.layer_widths == truth.layer_widths
