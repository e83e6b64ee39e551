"""Weights of models that compute in float32 come back to the last bit from float32 outputs alone."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from skident import IdentifierOptions, NetworkIdentifier
from skident.identification.exact_bits.integers import bootstrapped
from skident.identification.exact_bits.single_precision import BLOCK
from skident.identification.exact_bits.summation import BIAS, find_summation, leaf_order, rounded_to_single
from skident.network import FeedforwardNetwork

WIDTHS = (4, 6, 1)


def float32_module(seed, activation=torch.nn.Tanh):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = torch.nn.Sequential(torch.nn.Linear(*WIDTHS[:2]), activation(), torch.nn.Linear(*WIDTHS[1:]))
    return module.requires_grad_(False)


def outputs_of(module):
    return lambda X: module(torch.from_numpy(np.asarray(X, dtype=np.float32))).numpy()


def added_in_order(network, X, step=1):
    """Outputs (n, m_L) in float32, terms added one by one: no matrix product, whose order depends on the processor.

    With step -1 the last unit comes first; the bias is the first term always.
    """
    H = np.float32(X)
    for W, b, activation in zip(network.weights, network.biases, network.activations, strict=True):
        total = np.tile(np.float32(b), (len(H), 1))
        for unit in range(len(W))[::step]:
            total = total + H[:, [unit]] * np.float32(W[unit])
        H = np.tanh(total) if activation.name == "tanh" else total
    return H.astype(float)


def added_backwards(network, X):
    return added_in_order(network, X, step=-1)


def outputs_in_order(module, order=added_in_order):
    network = FeedforwardNetwork.from_torch(module)
    return lambda X: order(network, np.asarray(X)).astype(np.float32)


def fitted(model, emulate="torch", **options):
    X = np.random.RandomState(0).standard_normal((300, WIDTHS[0]))
    identifier = NetworkIdentifier(
        model, weight_dtype="float32", random_state=0, options=IdentifierOptions(emulate=emulate), **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return identifier.fit(X)


def in_standard_order(state):
    """Parameters of a state dictionary, with units by their biases and positive ones."""
    W, b, a, c = (state[name].numpy() for name in ("0.weight", "0.bias", "2.weight", "2.bias"))
    sign = np.where(b < 0, np.float32(-1), np.float32(1))
    order = np.argsort(b * sign)
    return (W * sign[:, None])[order], (b * sign)[order], (a * sign)[:, order], c


def test_correlated_estimates_are_rounded_together(rng):
    """Single values are uncertain by 40 spacings, and their sum by a hundredth of one: it decides."""
    digits, n_right = 24, 0
    for _ in range(50):
        true = rounded_to_single(rng.uniform(0.5, 1.0, 2))
        step = 2.0**-24
        covariance = step**2 * np.array([[1e-4, 4e-2], [4e-2, 1600.0]])
        error = np.linalg.cholesky(covariance + 1e-12 * step**2 * np.eye(2)) @ rng.standard_normal(2)
        covariance[1, 1] = covariance[0, 1] ** 2 / covariance[0, 0] + 1e-4 * step**2
        error[1] = error[0] * covariance[0, 1] / covariance[0, 0] + 1e-2 * step * rng.standard_normal()
        n_right += np.array_equal(bootstrapped(true + error, covariance, digits), true)
    assert n_right == 50  # errors of a hundredth of a spacing, given the first value


@pytest.mark.parametrize("seed", range(5))
def test_order_of_summation_is_read_off_outputs(seed):
    """Terms added in a random order are added in the same one at new inputs."""
    rng = np.random.default_rng(seed)
    m = 9
    a, b = rounded_to_single(rng.standard_normal(m)), rounded_to_single(rng.standard_normal(1))[0]
    H = rounded_to_single(np.tanh(rng.standard_normal((2 * BLOCK, m))))
    order = rng.permutation(m)

    def added(rows):
        products = np.float32(H[rows]) * np.float32(a)
        lanes = [products[:, order[k]] + products[:, order[k + 3]] + products[:, order[k + 6]] for k in range(3)]
        return ((lanes[0] + lanes[1]) + lanes[2] + np.float32(b)).astype(float)

    summation = find_summation(H[:BLOCK], a, b, added(slice(0, BLOCK)))
    new = slice(BLOCK, None)
    assert np.array_equal(summation(H[new], a, b), added(new))


def test_leaves_in_the_same_places():
    one, other = ((0, (1, 2)), BIAS), (BIAS, ((7, 8), 9))
    assert leaf_order(((0, (1, 2)), BIAS), (BIAS, ((2, 1), 0))).tolist() == [0, 2, 1]
    assert leaf_order(one, ((0, 1), (2, BIAS))) is None
    assert sorted(leaf_order(one, other).tolist()) == [7, 8, 9]
    assert leaf_order(((0, (1,)), BIAS), (((0,), 1), BIAS)).tolist() == [1, 0]  # the unrounded product


def test_all_bits_from_float32_outputs():
    """Of five networks four at least; what is called complete is, and its file holds the same numbers."""
    n_complete = 0
    for seed in range(5):
        module = float32_module(seed)
        identifier = fitted(outputs_in_order(module), added_in_order)
        bits = identifier.report_.bits
        assert bits.certain in (0, bits.total)
        if bits.complete:
            n_complete += 1
            found = identifier.network_.to_torch(dtype=torch.float32).state_dict()
            pairs = zip(in_standard_order(found), in_standard_order(module.state_dict()), strict=True)
            assert all(np.array_equal(np.abs(one), np.abs(other)) for one, other in pairs)
            assert identifier.n_queries_ < 500_000
    assert n_complete >= 4


@pytest.mark.slow
def test_another_order_of_summation_needs_an_emulation():
    """As on other machines, libraries and thread counts: no bits with torch's order, all with the model's own."""
    model = outputs_in_order(float32_module(3), added_backwards)
    bits = fitted(model).report_.bits
    assert bits.certain == 0 and "equal to the last bit" in bits.reasons[0]
    assert fitted(model, added_backwards).report_.bits.complete


def test_no_bits_of_other_weights():
    """Weights of double precision, with outputs rounded to float32."""
    module = float32_module(1).double()
    W = [p + 1e-9 for p in module.parameters()]
    network = FeedforwardNetwork([W[0].numpy().T, W[2].numpy().T], [W[1].numpy(), W[3].numpy()], "tanh")
    bits = fitted(lambda X: network(np.asarray(X, dtype=float)).astype(np.float32)).report_.bits
    assert bits.certain == 0 and "equal to the last bit" in bits.reasons[0]


@pytest.mark.parametrize(
    ("activation", "emulate", "options", "reason"),
    [
        (torch.nn.Tanh, None, {}, "emulate='torch'"),
        (torch.nn.ReLU, "torch", {}, "scales of ReLU units"),
        (torch.nn.Tanh, "torch", {"max_queries": 40_000}, "bits were searched for"),
    ],
)
def test_reason_for_no_bits(activation, emulate, options, reason):
    identifier = fitted(outputs_of(float32_module(0, activation)), emulate, **options)
    assert identifier.report_.bits.certain == 0 and reason in identifier.report_.bits.reasons[0]
