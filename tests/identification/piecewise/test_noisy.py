"""Two hidden ReLU layers from float32 outputs: positions, hyperplanes, signs, missing units, whole networks."""

from dataclasses import replace

import numpy as np
import pytest

from skident.identification.piecewise.kernel.output_error import DeepProbe
from skident.identification.piecewise.kernel.windows import locate_by_lines
from skident.identification.piecewise.noisy.assemble import TwoLayers, first_layer_signs, fold_linear_part, folds
from skident.identification.piecewise.noisy.hyperplanes import NoisyHyperplaneSearch
from skident.identification.piecewise.noisy.missing_units import find_missing_unit
from skident.identification.piecewise.noisy.network import find_noisy_deep_network
from skident.identification.piecewise.noisy.robust import robust_fit
from skident.identification.piecewise.noisy.sampling import on_rarer_sides
from skident.identification.piecewise.noisy.second_layer import SecondLayerSearch
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle


def planted(widths, seed):
    """A network with weights and biases of float32 numbers, as torch initializes them with larger biases."""
    rng = np.random.RandomState(seed)
    sizes = list(zip(widths[:-1], widths[1:], strict=True))
    weights = [(rng.standard_normal((a, c)) * np.sqrt(2.0 / a)).astype(np.float32) for a, c in sizes]
    biases = [(0.3 * rng.standard_normal(c)).astype(np.float32) for _, c in sizes]
    return FeedforwardNetwork(weights, biases, "relu")


def in_float32(network):
    """The same network in single precision."""
    weights = [W.astype(np.float32) for W in network.weights]
    biases = [b.astype(np.float32) for b in network.biases]

    def outputs(X):
        H = X.astype(np.float32)
        for W, b in zip(weights[:-1], biases[:-1], strict=True):
            H = np.maximum(H @ W + b, 0.0)
        return H @ weights[-1] + biases[-1]

    return outputs


def probe_of(network):
    """A `DeepProbe` of the network in single precision."""
    oracle, rng = Oracle(in_float32(network), network.n_inputs), np.random.RandomState(0)
    U = rng.standard_normal((200, network.n_inputs))
    oracle.standardize_outputs(oracle(U))
    accuracy = oracle.measure_accuracy(U, oracle(U), rng)
    return DeepProbe(oracle, 3.0 * accuracy.std, accuracy.output_std)


def test_positions_have_their_standard_errors():
    network = planted((6, 5, 1), 0)
    probe, rng = probe_of(network), np.random.RandomState(1)
    W, b = network.weights[0][:, 0].astype(float), float(network.biases[0][0])
    normal = W / np.linalg.norm(W)
    P = rng.standard_normal((400, 6))
    P -= (P @ normal + b / np.linalg.norm(W))[:, None] * normal
    there = locate_by_lines(probe, P + 1e-3 * normal, np.tile(normal, (400, 1)), 0.02)
    z = ((there.offset + 1e-3) / there.error)[there.found]
    assert there.found.mean() > 0.5
    assert 0.1 < np.median(np.abs(z)) < 1.5


def test_fits_resist_wrong_equations():
    rng = np.random.RandomState(0)
    A, x = rng.standard_normal((120, 10)), rng.standard_normal(10)
    y = A @ x
    y[:36] += rng.uniform(1.0, 5.0, 36)
    fit = robust_fit(A[20:], y[20:] + 1e-4 * rng.standard_normal(100), np.full(100, 1e-4))
    np.testing.assert_allclose(fit.solution, x, atol=1e-3)
    assert np.all(np.abs(fit.deviation[16:]) < 6.0)


def test_hyperplanes_of_float32_outputs():
    network = planted((8, 12, 6, 1), 1)
    first = NoisyHyperplaneSearch(probe_of(network), np.random.RandomState(0))
    first.search()
    T = np.vstack([network.weights[0], network.biases[0]]).T.astype(float)
    T /= np.linalg.norm(T[:, :-1], axis=1, keepdims=True)
    error = np.min([np.linalg.norm(first.planes[:, None] - sign * T, axis=2) for sign in (1.0, -1.0)], axis=0)
    assert error.min(axis=1).max() < 1e-3  # none is false
    assert np.sum(error.min(axis=0) < 1e-3) >= 11
    assert not first.add_plane(first.planes[0] + 1e-6)  # a copy is merged


def test_one_hyperplane_remains_of_an_inaccurate_copy():
    """A copy replaces one that is less accurate, even if that is off by more than its stated error."""
    network = planted((8, 12, 6, 1), 1)
    first = NoisyHyperplaneSearch(probe_of(network), np.random.RandomState(0))
    plane = np.append(network.weights[0][:, 0], network.biases[0][0]).astype(float)
    plane /= np.linalg.norm(plane[:-1])
    first.planes, first.errors = plane[None] + 1e-4, np.array([1e-5])
    assert not first.add_plane(plane + 1e-6)
    assert len(first.planes) == 1 and np.linalg.norm(first.planes[0] - plane) < 2e-5 and first.errors[0] < 1e-5


@pytest.mark.parametrize(("widths", "n_lines"), [((8, 6, 4, 1), 20), ((5, 10, 4, 2), 30)])
def test_units_behind_narrow_and_wide_first_layers_give_the_signs(widths, n_lines):
    network, rng = planted(widths, 3), np.random.RandomState(0)
    probe = probe_of(network)
    first = NoisyHyperplaneSearch(probe, rng)
    W, b = (part.astype(float) for part in (network.weights[0], network.biases[0]))
    first.planes, first.errors = np.vstack([W, b]).T / np.linalg.norm(W, axis=0)[:, None], np.full(widths[1], 1e-7)
    second = SecondLayerSearch(probe, first, rng)
    second.scan(n_lines)
    second.complete()
    second.drop_false_planes()
    signs, deviation = first_layer_signs(second.units, first.planes)
    assert len(first.planes) == widths[1] and np.all(signs > 0) and deviation < 1e-2
    for unit in second.units:
        ratio = (unit.coef / network.weights[1].T / np.linalg.norm(W, axis=0))[:, unit.known]
        assert np.min(np.std(ratio, axis=1) / np.abs(ratio.mean(axis=1))) < 1e-2  # those of one unit, up to a factor


def layers_of(seed, K1=8, K2=5, D=6, m=1):
    rng = np.random.RandomState(seed)
    return TwoLayers(
        rng.standard_normal((D, K1)),
        0.3 * rng.standard_normal(K1),
        rng.standard_normal((K1, K2)),
        0.3 * rng.standard_normal(K2),
        rng.standard_normal((K2, m)),
        np.zeros((K1, m)),
        rng.standard_normal(m),
    )


@pytest.mark.parametrize("seed", range(5))
def test_turned_units_fold_back_without_linear_part(seed):
    layers, rng = layers_of(seed, m=2), np.random.RandomState(seed)
    X = rng.standard_normal((4000, 6))
    turned = layers.turned(rng.randint(2, size=5).astype(float))
    np.testing.assert_allclose(turned(X), layers(X), atol=1e-12)
    folded, rest = fold_linear_part(turned, X)
    assert rest < 1e-9
    assert not folded.V.any()
    np.testing.assert_allclose(folded(X), layers(X), atol=1e-9)


@pytest.mark.parametrize("n_always", [1, 2])
def test_units_that_are_always_active_leave_a_linear_part_of_their_number(n_always):
    layers = layers_of(3, K1=20, K2=9, m=3)
    rng = np.random.RandomState(4)
    X = rng.standard_normal((2000, 6))
    w, o = rng.uniform(0.5, 1.0, (20, n_always)), rng.standard_normal((n_always, 3))
    whole = replace(layers, V=w @ o)
    for turned in rng.randint(2, size=(4, 9)).astype(float):
        folded, _ = fold_linear_part(whole.turned(turned), X)
        assert np.linalg.matrix_rank(folded.V, tol=1e-8) == n_always
        np.testing.assert_allclose(folded(X), whole(X), atol=1e-9 * np.abs(whole(X)).max())


def test_a_network_without_its_linear_part_is_offered_however_far_it_is_off():
    layers, X = layers_of(0, m=2), np.random.RandomState(0).standard_normal((4000, 6))
    whole = replace(layers, V=np.random.RandomState(1).standard_normal((8, 2)))
    without, likely = folds(whole, X)
    assert without.rank == 0
    assert np.median(np.abs(without(X) - whole(X))) > 0.1
    np.testing.assert_allclose(likely(X), whole(X), atol=1e-9)  # no unit explains the linear part


def layers_with_a_rare_unit():
    """Layers of which the first unit is active at about 1 % of the inputs, and the last one at none."""
    layers = layers_of(3)
    X = np.random.RandomState(2).standard_normal((20_000, 6))
    Z = layers.hidden(X) @ layers.W2
    b2 = layers.b2.copy()
    b2[0], b2[-1] = -np.quantile(Z[:, 0], 0.99), -1e6
    return replace(layers, b2=b2), X


def test_points_are_on_the_rarer_sides_of_units():
    layers, pool = layers_with_a_rare_unit()
    rng = np.random.RandomState(0)
    X = rng.standard_normal((50, 6))
    more = np.concatenate([X, on_rarer_sides(layers, X, pool[:1000], 40, rng)])
    active = layers.hidden(more) @ layers.W2 + layers.b2 > 0
    counts = np.minimum(active.sum(axis=0), (~active).sum(axis=0))
    assert counts[:-1].min() >= 30
    assert counts[-1] == 0


def test_units_without_outputs_are_taken_out():
    layers = layers_of(1)
    larger = layers.with_unit(np.ones(8), 0.5, 1e-12 * np.ones(1))
    X = np.random.RandomState(0).standard_normal((100, 6))
    size = larger.unit_outputs(X).max(axis=0)
    kept = larger.take(size > 1e-9)
    assert len(kept.b2) == 5
    np.testing.assert_array_equal(kept(X), layers(X))


def test_linear_part_becomes_units_and_returns():
    layers = layers_of(0).turned(np.array([1.0, 0.0, 1.0, 0.0, 0.0]))
    X = np.random.RandomState(0).standard_normal((300, 6))
    network, n_linear = layers.network(X, np.array([0.5]))
    assert n_linear == 1
    np.testing.assert_allclose(network(X), 0.5 * layers(X), atol=1e-10)
    np.testing.assert_allclose(TwoLayers.of(network, 1, np.array([0.5]))(X), layers(X), atol=1e-10)


def test_a_missing_unit_is_found_from_residuals():
    layers, rng = layers_of(3), np.random.RandomState(0)
    w, b = np.abs(rng.standard_normal(8)), -25.0
    full = layers.with_unit(w, b, np.array([1.5]))
    X = rng.standard_normal((20000, 6))
    active = layers.hidden(X) @ w + b > 1e-3
    assert 0 < active.mean() < 0.2

    def residual_at(P):
        return P, full(P) - layers(P), np.full(len(P), 1e-6)

    (weights, bias, output), points = find_missing_unit(layers, residual_at, X[active], X[~active], 12.0, rng)
    found = layers.with_unit(weights, bias, output)
    np.testing.assert_allclose(found(points), full(points), atol=1e-3)
    assert np.mean(np.abs(found(X) - full(X)) > 1e-3) < 0.1 * active.mean()


def test_networks_of_float32_outputs():
    right, wrong = 0, 0
    for seed in range(3):
        network = planted((8, 12, 6, 1), seed)
        probe = probe_of(network)
        found = find_noisy_deep_network(probe, rng=np.random.RandomState(0))
        X = np.random.RandomState(9).standard_normal((500, 8))
        Y = (network(X) - probe.oracle.output_center) / probe.oracle.output_scale
        close = np.quantile(np.abs(found.network(X) - Y), 0.99) < 3e-6
        right += close and found.network.layer_widths == (12, 6, 1)
        wrong += found.wrong_share == 0 and not close
    assert right >= 2
    assert wrong == 0
