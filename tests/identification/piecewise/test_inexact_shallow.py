"""One hidden ReLU layer in single precision: candidates by vote, faint and redundant units, standard errors."""

import warnings

import numpy as np
import pytest
import torch

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.piecewise.kernel.output_error import Probe, probe_of
from skident.identification.piecewise.shallow.candidates import CandidateUnits
from skident.identification.piecewise.shallow.distant import find_from_distant_outputs, serves_distant_outputs
from skident.identification.piecewise.shallow.inexact import find_from_inexact_outputs
from skident.identification.piecewise.shallow.line_search import LineSearch
from skident.identification.piecewise.shallow.signs import signs_of_linear_part
from skident.identification.piecewise.shallow.units import ReLUUnits
from skident.network import FeedforwardNetwork, change_outputs
from skident.oracle import NotIdentified, Oracle


def torch_model(widths, seed, faint=1.0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = torch.nn.Sequential(
            torch.nn.Linear(widths[0], widths[1]), torch.nn.ReLU(), torch.nn.Linear(widths[1], widths[2])
        ).requires_grad_(False)
        module[2].weight[:, 0] *= faint
    return lambda X: module(torch.tensor(X, dtype=torch.float32)).numpy(), FeedforwardNetwork.from_torch(module)


def search_of(box, D, seed):
    rng = np.random.RandomState(seed)
    oracle = Oracle(box, D)
    U = rng.standard_normal((200, D))
    oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
    probe = Probe(oracle, 3.0 * oracle.accuracy.std, exact=False)
    return LineSearch(probe, 1e3 * probe.length_scale, 1000, rng)


def test_candidates_are_the_hyperplanes_that_several_lines_cross():
    n_right = 0
    for seed in range(3):
        box, truth = torch_model((6, 12, 1), seed)
        candidates = CandidateUnits(search_of(box, 6, seed))
        candidates.scan(8)
        units = candidates.units()
        cosines = np.abs(units.weights.T @ (truth.weights[0] / np.linalg.norm(truth.weights[0], axis=0)))
        assert cosines.max(axis=1).min() > 0.99
        n_right += len(units) == 12
    assert n_right >= 2


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_faint_units_are_found_in_what_the_others_leave_over(seed, n_outputs):
    box, truth = torch_model((6, 12, n_outputs), seed, faint=1e-3)
    search = search_of(box, 6, seed)
    network, sample = find_from_inexact_outputs(search)
    assert network.layer_widths == (12, n_outputs)
    residual = (network(sample.inputs) - sample.outputs) / sample.std
    assert 0.5 < np.median(np.abs(residual)) * 1.48 < 2.0


def test_standard_errors_cover():
    z = []
    for seed in range(4):
        box, truth = torch_model((6, 12, 1), seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = NetworkIdentifier(box, activation="relu", layer_widths="auto", random_state=0)
            fitted.fit(np.random.RandomState(seed).standard_normal((200, 6)))
        assert fitted.layer_widths_ == (12, 1) and fitted.report_.agrees
        truth = truth.align_to(fitted.network_)
        found = [*fitted.network_.weights, *fitted.network_.biases]
        errors = [*fitted.stderr_[0], *fitted.stderr_[1]]
        true = [*truth.weights, *truth.biases]
        z += [((a - b) / s).ravel() for a, b, s in zip(found, true, errors, strict=True)]
    assert 0.85 < np.mean(np.abs(np.concatenate(z)) < 1.96) < 0.99


def test_units_grow_from_noisy_outputs():
    box, truth = torch_model((4, 6, 1), 0)
    scale, rng = float(truth(np.random.RandomState(1).standard_normal((500, 4))).std()), np.random.RandomState(2)
    search = search_of(lambda X: box(X) + 1e-2 * scale * rng.standard_normal((len(X), 1)), 4, 0)
    network, _ = find_from_inexact_outputs(search)
    oracle, U = search.probe.oracle, np.random.RandomState(3).standard_normal((500, 4))
    Y = (truth(U) - oracle.output_center) / oracle.output_scale
    assert network.layer_widths == (6, 1)
    assert np.abs(network(U) - Y).max() < 1e-2 * Y.std()


def with_close_units(D, distance, rng):
    """A network with eight units, of which the first two are at a distance."""
    W, b, c = rng.standard_normal((D, 8)), 0.5 * rng.standard_normal(8), rng.uniform(0.5, 1.5, (8, 1))
    W[:, 1], b[1] = W[:, 0] + distance * rng.standard_normal(D), b[0] + distance
    return FeedforwardNetwork([W, c], [b, np.zeros(1)], "relu")


@pytest.mark.slow
def test_close_units_are_two_in_half_precision():
    """Of four networks with two units 0.02 rad apart and more in bfloat16, at least three have the right widths."""
    n_right = 0
    for seed in range(450, 454):
        truth = with_close_units(5, 0.04, np.random.RandomState(seed))
        box = lambda X, truth=truth: torch.tensor(truth(X)).bfloat16().float().numpy()  # noqa: E731
        network, _ = find_from_inexact_outputs(search_of(box, 5, seed))
        n_right += network.layer_widths == (8, 1)
    assert n_right >= 3


def test_signs_are_determined_by_the_accurate_directions_of_the_linear_part():
    """One input of which the linear part is known to 1 only leaves the signs to the others, known to 1e-3."""
    rng = np.random.RandomState(0)
    W, signs = rng.standard_normal((4, 12)), rng.choice([-1.0, 1.0], 12)
    units = ReLUUnits(W, np.zeros(12), np.ones((12, 1)), np.zeros(12))
    std = np.array([1.0, 1e-3, 1e-3, 1e-3])
    target = (W @ signs + std * rng.standard_normal(4))[None]
    found, deviation = signs_of_linear_part(units, target, 8.0, np.diag(std**2))
    np.testing.assert_array_equal(found, signs[None])
    assert deviation[0] < 4.0
    assert len(signs_of_linear_part(units, target, 8.0 * std.max())[0]) > 1


@pytest.mark.parametrize(("widths", "deeper"), [((8, 16, 1), False), ((8, 24, 2), False), ((8, 16, 8, 1), True)])
@pytest.mark.parametrize("seed", [430, 431])
def test_boundaries_of_deeper_layers_are_on_no_other_line(widths, deeper, seed):
    network = make_network(widths, activation="relu", output_activation="identity", random_state=seed)
    oracle, rng = Oracle(lambda X: np.float32(network(X)), widths[0]), np.random.RandomState(seed)
    U = rng.standard_normal((40, widths[0]))
    oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
    probe = probe_of(oracle, rng)
    candidates = CandidateUnits(LineSearch(probe, 1e3 * probe.length_scale, 100, rng))
    candidates.scan(10)
    assert (candidates.unshared() > 0.14) == deeper


def test_nearly_parallel_units_are_split():
    """Of eight networks with two units 0.005 rad apart, at least six are recovered, and none is trusted that is not."""
    n_right = 0
    for seed in range(440, 448):
        rng = np.random.RandomState(seed)
        exact = with_close_units(6, 0.005, rng)
        parameters = [[np.float32(part).astype(float) for part in parts] for parts in (exact.weights, exact.biases)]
        network = exact.with_parameters(*parameters)
        box = lambda X, network=network: np.float32(network(np.float32(X)))  # noqa: E731
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = NetworkIdentifier(box, activation="relu", random_state=0).fit(rng.standard_normal((100, 6)))
        right = found.layer_widths_ == (8, 1)
        n_right += right
        assert right or not found.report_.agrees
    assert n_right >= 6


def noisy_oracle(truth, error_of, seed):
    """An oracle whose outputs have errors ``error_of(Y, rng)``, after measuring them."""
    rng = np.random.RandomState(seed)
    oracle = Oracle(lambda X: (lambda Y: Y + error_of(Y, rng))(truth(X)), truth.n_inputs)
    U = rng.standard_normal((400, truth.n_inputs))
    oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
    return oracle


ERRORS = {
    "noise": lambda Y, rng: 0.01 * rng.standard_normal(Y.shape),
    "decimals": lambda Y, rng: Y.round(2) - Y,
}


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_of_constant_size_vanish_far_out(kind):
    n_right = 0
    for seed in range(3):
        truth = make_network((5, 8, 1), activation="relu", output_activation="identity", random_state=seed)
        oracle = noisy_oracle(truth, ERRORS[kind], seed)
        assert serves_distant_outputs(oracle)
        network, _ = find_from_distant_outputs(oracle, np.random.RandomState(seed))
        network = change_outputs(network, oracle.output_center, oracle.output_scale)
        if network.layer_widths == truth.layer_widths:
            aligned = truth.align_to(network)
            scale = np.linalg.norm(network.weights[0], axis=0) / np.linalg.norm(aligned.weights[0], axis=0)
            # 1 % of noise over a distance of 3,000 standard deviations, and a margin for few rows per weight
            np.testing.assert_allclose(network.weights[0], aligned.weights[0] * scale, atol=1e-4)
            off = (network.biases[0] - aligned.biases[0] * scale) * network.weights[1][:, 0]
            np.testing.assert_allclose(off, 0.0, atol=0.01)  # one error of an output
            n_right += 1
    assert n_right >= 2


def test_errors_that_grow_with_the_outputs_do_not_vanish_far_out():
    truth = make_network((5, 8, 1), activation="relu", output_activation="identity", random_state=0)
    oracle = noisy_oracle(truth, lambda Y, rng: 0.01 * np.hypot(1.0, Y) * rng.standard_normal(Y.shape), 0)
    with pytest.raises(NotIdentified, match="unexplained|hyperplane|piece|boundar|outputs"):
        find_from_distant_outputs(oracle, np.random.RandomState(0))


def own_units(search, truth):
    oracle = search.probe.oracle
    return truth.weights[0] * oracle.scale[:, None], truth.biases[0] + oracle.center @ truth.weights[0]


ROUNDED = {
    "digits": lambda Y, X, f: np.array([float(f"{y:.9g}") for y in Y.ravel()]).reshape(Y.shape),
    "decimals": lambda Y, X, f: Y.round(9),
    "cast inputs": lambda Y, X, f: f(np.float32(X).astype(float)),
}


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("widths", [(4, 6, 1), (6, 12, 3)])
def test_networks_behind_fine_rounding_are_recovered(kind, widths, rng):
    """To ten times the rounding, which is 1e-7 of cast inputs; and not exact, since outputs elsewhere are rounded."""
    network = make_network(widths, activation="relu", bias_scale=0.5, output_activation="identity", random_state=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NetworkIdentifier(lambda X: ROUNDED[kind](network(X), X, network), random_state=0)
        model.fit(rng.standard_normal((200, widths[0])))
    U = rng.standard_normal((500, widths[0]))
    error = np.abs(model.network_(U) - network(U)).max() / np.abs(network(U)).max()
    assert model.layer_widths_ == widths[1:] and error < (1e-6 if kind == "cast inputs" else 1e-8)
    assert not model.report_.exact
