"""Small units behind noisy outputs are found, and units that are not there are not."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.batched_fits import WeightedSamples, parameters_of
from skident.fitting.scored_pruning import Scoring
from skident.fitting.width_search import SearchLimits, WidthSearchResult
from skident.network import Architecture, FeedforwardNetwork
from skident.optim import WorkBudget
from skident.samples.passive.width_selection import units_above_noise


def noisy(seed, noise=0.1, hidden=(3,)):
    truth = make_network((4, *hidden, 1), bias_scale=0.3, output_activation="identity", random_state=seed)
    rng = np.random.RandomState(seed)
    U = rng.standard_normal((300, 4))
    Y = truth(U)
    unit = Y.std()
    Y = Y + noise * unit * rng.standard_normal(Y.shape)
    return truth, WeightedSamples(U, Y / unit), unit


def found(network, rows, settled=True):
    fitted = Scoring(rows, 0.0).refit(Architecture.of(network), parameters_of(network)[None])
    return WidthSearchResult(fitted, settled, [])


def smaller(truth, unit):
    """Without the unit that speaks least."""
    j = int(np.argmin(np.abs(truth.weights[1][:, 0])))
    W, a = np.delete(truth.weights[0], j, axis=1), np.delete(truth.weights[1], j, axis=0)
    return FeedforwardNetwork([W, a / unit], [np.delete(truth.biases[0], j), truth.biases[1] / unit])


@pytest.mark.parametrize(("hidden", "n"), [((3,), 8), ((3, 2), 2)])
def test_no_units_come_out_of_noise(hidden, n):
    wider = []
    for seed in range(n):
        truth, rows, unit = noisy(seed, 0.03, hidden)
        scaled = [*truth.weights[:-1], truth.weights[-1] / unit]
        start = truth.with_parameters(scaled, [*truth.biases[:-1], truth.biases[-1] / unit])
        ended = units_above_noise(found(start, rows), rows, SearchLimits(4), np.random.RandomState(seed)).fitted
        wider.append(np.any(np.array(ended.widths) > truth.layer_widths))
    assert np.mean(wider) <= 0.125


def test_a_unit_that_was_left_out_comes_back():
    truth, rows, unit = noisy(1, 0.01)
    before = found(smaller(truth, unit), rows)
    after = units_above_noise(before, rows, SearchLimits(4), np.random.RandomState(0)).fitted
    assert before.fitted.widths == (2, 1) and after.widths == (3, 1)


def test_what_is_exact_stays():
    truth, rows, unit = noisy(2, 0.0)
    exact = found(truth.with_parameters([truth.weights[0], truth.weights[1] / unit], truth.biases), rows)
    assert units_above_noise(exact, rows, SearchLimits(4), np.random.RandomState(0)) is exact


def test_it_is_settled_where_no_further_unit_explains_more_and_there_was_time():
    truth, rows, unit = noisy(1, 0.01)
    rough = found(smaller(truth, unit), rows, settled=False)
    assert units_above_noise(rough, rows, SearchLimits(4), np.random.RandomState(0)).settled
    assert not units_above_noise(rough, rows, SearchLimits(4, budget=WorkBudget(0.0)), np.random.RandomState(0)).settled
