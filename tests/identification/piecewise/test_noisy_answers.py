"""Deep ReLU networks whose answers are rounded or single precision, and classifiers, from their answers."""

import numpy as np
import pytest
import torch

from skident import NetworkIdentifier
from skident.identification.piecewise.kernel.robust_fit import active_set_fit
from skident.network import FeedforwardNetwork


def _network(n_inputs, widths, seed):
    """Weights of the usual size, and biases."""
    rng, sizes = np.random.default_rng(seed), [n_inputs, *widths, 1]
    W = [rng.standard_normal((a, b)) / np.sqrt(a / (1 + (i > 0))) for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    return FeedforwardNetwork(W, [0.3 * rng.standard_normal(len(w.T)) for w in W], "relu")


def _identified(black_box, n_inputs):
    X = np.random.default_rng(0).standard_normal((300, n_inputs))
    return NetworkIdentifier(black_box, activation="relu", random_state=0).fit(X)


def _largest_error(found, truth, n_inputs):
    X = np.random.default_rng(1).standard_normal((5000, n_inputs))
    return np.abs(found.network_(X) - truth(X)).max()


@pytest.mark.filterwarnings("ignore:.*carry noise or rounding.*:UserWarning")
@pytest.mark.parametrize("decimals", [10, 8, 6])
def test_rounded_answers_of_two_hidden_layers_to_their_rounding(decimals):
    truth = _network(6, (6, 5), 3)
    found = _identified(lambda X: np.round(truth(X), decimals), 6)
    assert found.layer_widths_ == (6, 5, 1)
    assert _largest_error(found, truth, 6) < 10.0 * 10.0**-decimals


@pytest.mark.filterwarnings("ignore:.*carry noise or rounding.*:UserWarning")
def test_single_precision_arithmetic_of_two_hidden_layers():
    truth = _network(6, (6, 5), 3)
    single = [
        (torch.tensor(W, dtype=torch.float32), torch.tensor(b, dtype=torch.float32))
        for W, b in zip(truth.weights, truth.biases, strict=True)
    ]

    def black_box(X):
        H = torch.tensor(X, dtype=torch.float32)
        for i, (W, b) in enumerate(single):
            H = (torch.relu(H) if i else H) @ W + b
        return H.numpy()

    found = _identified(black_box, 6)
    assert found.layer_widths_ == (6, 5, 1)
    assert not found.report_.exact
    assert _largest_error(found, truth, 6) < 20.0 * 2.0**-23 * np.abs(truth(np.eye(6))).max() + 1e-6


def test_equations_of_something_else_are_left_out():
    rng = np.random.default_rng(0)
    A, x, errors = rng.standard_normal((40, 5)), np.arange(5.0), np.full(40, 1e-6)
    y = A @ x + errors * rng.uniform(-1.0, 1.0, 40)
    y[:6] += 1e-3
    fit = active_set_fit(A, y, errors)
    assert not fit.kept[:6].any() and fit.kept[6:].all()
    assert np.abs(fit.solution - x).max() < 1e-6
    assert np.sqrt(np.diag(fit.covariance)).max() < 1e-6


def test_no_fit_where_hardly_any_equations_agree():
    rng = np.random.default_rng(0)
    assert active_set_fit(rng.standard_normal((8, 5)), rng.standard_normal(8), np.full(8, 1e-9)) is None
