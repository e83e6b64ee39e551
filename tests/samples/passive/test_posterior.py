"""Networks of the posterior mean: fresh noise, choice of the prior, errors against those of the best minimum."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import PassiveNetworkIdentifier
from skident.datasets import make_network
from skident.fitting.batched_fits import (
    BatchedNetworkFits,
    PenalizedNetworkFits,
    Prior,
    WeightedSamples,
    network_of,
    parameters_of,
)
from skident.fitting.width_search import SearchLimits, search_weights
from skident.network import Architecture
from skident.optim import Ending, WorkBudget, batched_levenberg_marquardt
from skident.samples.passive.final_fit import network_of_mean, sample_posterior
from skident.samples.passive.minima import Minima, minima_within_noise, resampled
from tests.rates import fewest_successes

SEEDS = range(10)


def samples_of(truth, seed, noise, per_parameter=10, scale=1.0):
    """Whitened rows of standardized noisy values, and the deviation of the noise in these units."""
    rng = np.random.default_rng(seed + 100)
    X = rng.standard_normal((per_parameter * truth.n_parameters, truth.weights[0].shape[0]))
    Y = truth(X)
    Y = (Y - Y.mean()) / Y.std()
    return WeightedSamples(X, Y + noise * rng.standard_normal(Y.shape))


def planted(widths, activation, seed):
    return make_network(widths, bias_scale=0.3, activation=activation, output_activation="identity", random_state=seed)


def test_the_mean_of_fits_to_fresh_noise_is_the_minimum_if_the_model_is_linear():
    """Without hidden layers the posterior is Gaussian: its mean is the penalized fit, its spread the inverse matrix."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    rows = WeightedSamples(X, X @ np.ones((3, 1)) + 0.5 * rng.standard_normal((60, 1)))
    architecture = Architecture((1,), "tanh")
    prior = Prior((1.0,), (1.0,), 0.25)
    fits = PenalizedNetworkFits(architecture, rows, prior)
    best = batched_levenberg_marquardt(fits, np.zeros((1, 4)), Ending(max_iter=20, ftol=1e-12)).x
    found = resampled(Minima(architecture, best, prior), 0.25, rows, 400, WorkBudget(), rng)
    x = np.array([parameters_of(one) for one in found])
    assert np.allclose(x.mean(axis=0), best[0], atol=1e-6)
    exact = np.linalg.inv(fits.normal_equations(best)[0][0] / 0.25)
    # Variances of 400 draws are known to 7 %.
    assert np.allclose(np.var(x, axis=0) / np.diagonal(exact), 1.0, atol=0.3)


@pytest.mark.slow
def test_the_network_of_the_mean_has_smaller_errors_than_the_best_minimum():
    """With noise of 10 %: the mean ratio of the errors, and in how many of ten networks it is smaller."""
    ratios = []
    for seed in SEEDS:
        truth = planted((6, 5, 1), "softplus", seed)
        rows = samples_of(truth, seed, 0.1)
        architecture, rng = Architecture.of(truth), np.random.RandomState(seed)
        start = parameters_of(truth)[None]
        minima = minima_within_noise(architecture, start, 0.01, rows, SearchLimits(4), rng, 4.0)
        samples = sample_posterior([minima], 0.1, rows, WorkBudget(), rng)
        mean = network_of_mean(samples, minima, WorkBudget())
        X = np.random.default_rng(seed + 200).standard_normal((2000, 6))
        values = truth(X)
        shift, unit = truth(rows.U).mean(), truth(rows.U).std()
        wanted = (values - shift) / unit
        best = network_of(minima.x[0], 6, architecture)
        ratios.append(np.mean((mean(X) - wanted) ** 2) / np.mean((best(X) - wanted) ** 2))
    assert np.mean(ratios) < 1.0
    assert np.sum(np.array(ratios) <= 1.05) >= fewest_successes(len(SEEDS), 9, 10)


@pytest.mark.parametrize(("scale", "variance"), [(1.0, 1.0), (3.0, 4.0)])
def test_the_evidence_chooses_the_variance_of_the_prior(scale, variance):
    truth = planted((4, 4, 1), "tanh", 0)
    truth = truth.with_parameters([scale * truth.weights[0], truth.weights[1]], truth.biases)
    rows = samples_of(truth, 0, 0.05)
    minima = minima_within_noise(
        Architecture.of(truth), parameters_of(truth)[None], 0.0025, rows, SearchLimits(4), np.random.RandomState(0)
    )
    assert minima.prior.biases[0] == variance


@pytest.mark.slow
def test_gelu_networks_with_two_hidden_layers_are_found_in_noise():
    """The residual is at most that of least squares from the true network, over seeds."""
    found = []
    for seed in range(4):
        truth = planted((5, 4, 3, 1), "gelu", seed)
        rows, architecture = samples_of(truth, seed, 0.02), Architecture.of(truth)
        result = search_weights(rows, architecture, SearchLimits(8), np.random.RandomState(seed))
        values = truth(rows.U)
        start = truth.with_parameters(
            [*truth.weights[:-1], truth.weights[-1] / values.std()],
            [*truth.biases[:-1], (truth.biases[-1] - values.mean()) / values.std()],
        )
        fits = BatchedNetworkFits(architecture, rows)
        from_truth = batched_levenberg_marquardt(fits, parameters_of(start)[None], Ending(max_iter=200, ftol=1e-9))
        found.append(result.fitted.cost <= 1.02 * from_truth.cost[0])
    assert sum(found) >= fewest_successes(4, 9, 10)


def test_large_tables_keep_the_best_minimum(monkeypatch):
    monkeypatch.setattr("skident.samples.passive.final_fit._SEARCHED", 100)
    truth = planted((2, 2, 1), "tanh", 1)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((400, 2))
    y = truth(X)[:, 0] + 0.1 * rng.standard_normal(400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = PassiveNetworkIdentifier((2, 1), n_starts=4, max_seconds=None, random_state=0).fit(X, y)
    assert found.report_.n_resampled == 24 and found.score(X, y) > 0.5
