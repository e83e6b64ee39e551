"""Networks of tanh units whose outputs are single precision numbers: widths, errors and standard errors."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident.identification import NetworkIdentifier
from skident.network import FeedforwardNetwork


def in_single_precision(network):
    """A callable that computes the outputs of a network in float32."""
    layers = list(zip(network.weights, network.biases, strict=True))
    layers = [(W.astype(np.float32), b.astype(np.float32)) for W, b in layers]
    exact = FeedforwardNetwork(*([part.astype(float) for part in parts] for parts in zip(*layers, strict=True)))

    def query(X):
        H = X.astype(np.float32)
        for k, (W, b) in enumerate(layers):
            H = H @ W + b if k == len(layers) - 1 else np.tanh(H @ W + b)
        return H

    return query, exact


def as_torch_initializes(sizes, seed):
    rng = np.random.RandomState(seed)
    bounds = [a**-0.5 for a in sizes[:-1]]
    shapes = zip(sizes[:-1], sizes[1:], bounds, strict=True)
    weights, biases = zip(*((rng.uniform(-c, c, (a, b)), rng.uniform(-c, c, b)) for a, b, c in shapes), strict=True)
    return FeedforwardNetwork(list(weights), list(biases), "tanh")


@pytest.mark.parametrize("sizes", [(6, 8, 1), (6, 8, 5, 3)])
def test_widths_and_outputs_are_right_and_standard_errors_honest(sizes):
    query, network = in_single_precision(as_torch_initializes(sizes, 1))
    X = np.random.RandomState(0).standard_normal((300, sizes[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it states the rounding of the outputs
        identifier = NetworkIdentifier(query, layer_widths="auto", activation="tanh", random_state=0).fit(X)
    assert identifier.layer_widths_ == sizes[1:] and identifier.report_.agrees and not identifier.report_.exact
    outputs = network(X)
    assert np.abs(identifier.predict(X).reshape(outputs.shape) - outputs).max() < 3e-6 * outputs.std(axis=0).min()
    aligned, found = network.align_to(identifier.network_), identifier.network_
    parts = zip([*found.weights, *found.biases], [*aligned.weights, *aligned.biases], strict=True)
    errors = [*identifier.stderr_[0], *identifier.stderr_[1]]
    z = np.concatenate([np.ravel((a - b) / e) for (a, b), e in zip(parts, errors, strict=True)])
    assert np.mean(np.abs(z) < 1.96) > 0.85


@pytest.mark.slow
def test_standard_errors_cover_the_weights_of_units_whose_outputs_are_rounded_to_float16():
    """Rounding repeats where other units are constant: as white errors, 0.85 of the weights were within 1.96."""
    z = []
    for seed in (40, 41):
        query, network = in_single_precision(as_torch_initializes((10, 16, 1), seed))
        X = np.random.RandomState(seed).standard_normal((300, 10))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            identifier = NetworkIdentifier(
                lambda X, query=query: query(X).astype(np.float16).astype(np.float32),
                layer_widths="auto",
                activation="tanh",
                random_state=0,
            ).fit(X)
        found = identifier.network_
        assert identifier.layer_widths_ == (16, 1) and not identifier.report_.exact
        aligned = network.align_to(found)
        errors = [*identifier.stderr_[0], *identifier.stderr_[1]]
        parts = zip([*found.weights, *found.biases], [*aligned.weights, *aligned.biases], errors, strict=True)
        z += [np.ravel((a - b) / e) for a, b, e in parts]
    assert np.mean(np.abs(np.concatenate(z)) < 1.96) > 0.9
