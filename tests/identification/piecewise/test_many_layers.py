"""ReLU networks of many layers, from one set of critical points with their normals."""

import numpy as np
import pytest

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.piecewise.engine import find_piecewise_network, validate_relu_layers
from skident.identification.piecewise.many_layers.aimed_lines import aimed_lines
from skident.identification.piecewise.many_layers.consensus import grown, partial_units
from skident.identification.piecewise.many_layers.critical_set import CriticalSet, lines_between, straight_lines
from skident.identification.piecewise.many_layers.error_lines import ErrorLines
from skident.identification.piecewise.many_layers.handover import RecoveredLayer, as_relu_layers
from skident.identification.piecewise.many_layers.known_prefix import KnownPrefix
from skident.identification.piecewise.many_layers.network import find_layers
from skident.identification.piecewise.many_layers.signs import layer_signs
from skident.identification.piecewise.many_layers.spans import Spans
from skident.identification.piecewise.many_layers.unit_fit import fitted_unit, with_weights_at
from skident.identification.piecewise.many_layers.units import LayerSearch, Unit
from skident.identification.piecewise.several_outputs.shared_jacobians import Space

SHAPE = (10, 8, 7, 6, 4)
ERROR = 1e-14  # of outputs of order one


def random_network(shape, seed, shift=0.1):
    return make_network(shape, activation="relu", output_activation="identity", random_state=seed, bias_scale=shift)


def critical_set(network, seed, n_lines=20, error=ERROR):
    D, rng = network.n_inputs, np.random.RandomState(seed)
    critical = CriticalSet(Space(network, D, np.full(network.n_outputs, error), np.sqrt(D)), rng)
    critical.extend(n_lines)
    return critical


def prefix_of(network, n_layers):
    prefix = KnownPrefix(network.n_inputs)
    for W, b in zip(network.weights[:n_layers], network.biases[:n_layers], strict=True):
        prefix = prefix.extended(W, b, np.ones(W.shape, dtype=bool), np.zeros((len(W), 0)))
    return prefix


def labels(network, X):
    """Layer (n,) and unit (n,) whose boundary passes through critical points X (n, D)."""
    layer, unit = np.full(len(X), -1), np.full(len(X), -1)
    for k, (W, b) in enumerate(zip(network.weights[:-1], network.biases[:-1], strict=True)):
        Z = X @ W + b
        small = np.abs(Z) / (1.0 + np.abs(Z).max(axis=1, keepdims=True))
        new = (small.min(axis=1) < 1e-8) & (layer < 0)
        layer[new], unit[new] = k, small.argmin(axis=1)[new]
        X = np.maximum(Z, 0.0)
    return layer, unit


def cosine(one, other):
    return abs(one @ other) / np.linalg.norm(one) / np.linalg.norm(other)


@pytest.mark.parametrize("seed", range(3))
def test_critical_points_of_all_layers_have_their_normals(seed):
    network = random_network(SHAPE, seed)
    critical = critical_set(network, seed, 8)
    layer, unit = labels(network, critical.points)
    assert critical.reliable.mean() > 0.9 and (layer >= 0).mean() > 0.98
    for k in range(3):
        A = prefix_of(network, k).outputs_and_gradients(critical.points)[1]
        index = np.flatnonzero(critical.reliable & (layer == k))
        assert len(index) > 0
        normals = np.einsum("nmd,nm->nd", A[index], network.weights[k].T[unit[index]])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        assert np.all(np.abs(np.sum(normals * critical.normals[index], axis=1)) > 1.0 - 1e-9)


def test_outputs_show_whether_they_bend_at_a_point():
    network = random_network(SHAPE, 0)
    critical = critical_set(network, 0, 4)
    V = critical.lines.directions[critical.line]
    at, beside = critical.bends(critical.points, V), critical.bends(critical.points + 0.05 * V, V)
    assert np.nanmean(at == 1) > 0.95 and np.nanmean(beside == 1) < 0.05


def test_lines_between_points_pass_through_both():
    X, Y = np.random.RandomState(0).standard_normal((2, 3, 5))
    lines = lines_between(X, Y)
    half = 0.5 * np.linalg.norm(Y - X, axis=1)
    assert np.allclose(lines.at(np.arange(3), half), Y) and np.allclose(lines.at(np.arange(3), -half), X)
    assert np.all(lines.scales * lines.grid[-1] > half)


@pytest.mark.parametrize("seed", range(3))
def test_normals_of_known_units_need_no_jacobians(seed):
    network, prefix = random_network(SHAPE, seed), prefix_of(random_network(SHAPE, seed), 2)
    queries, found = [], []
    for known in (None, prefix):
        calls = []
        space = Space(lambda X, calls=calls: calls.append(len(X)) or network(X), 10, np.full(4, ERROR), np.sqrt(10.0))
        critical = CriticalSet(space, np.random.RandomState(seed))
        critical.extend_along(straight_lines(4, 10, np.random.RandomState(seed)), known)
        queries.append(sum(calls))
        found.append(critical)
    assert queries[1] < 0.9 * queries[0] and len(found[0]) == len(found[1])
    assert np.all(np.abs(np.sum(found[0].normals * found[1].normals, axis=1)) > 1.0 - 1e-9)
    layer, _ = labels(network, found[1].points)
    assert np.array_equal(found[1].explained(prefix, found[1].points)[0], (layer == 0) | (layer == 1))


def test_aimed_lines_meet_rare_units_more_often():
    n_aimed = n_random = 0
    for seed in range(4):
        network = random_network(SHAPE, seed)
        prefix, rng = prefix_of(network, 1), np.random.RandomState(seed)
        w = np.append(-1.0, np.full(len(network.biases[0]) - 1, 1.0))  # active unless the first input dominates
        for lines, aimed in ((aimed_lines(prefix, 8, rng), True), (straight_lines(8, 10, rng), False)):
            z = (prefix.outputs(lines.grid_points) @ w + 0.1).reshape(8, -1)
            crossed = np.sum(z[:, 1:] * z[:, :-1] < 0.0)
            n_aimed, n_random = n_aimed + crossed * aimed, n_random + crossed * (not aimed)
    assert n_aimed > 1.5 * n_random


@pytest.mark.parametrize("seed", range(3))
def test_normals_contradict_wrong_signs_and_missing_units(seed):
    network, rng = random_network((12, 10, 8, 8, 4), seed), np.random.RandomState(seed)
    critical = critical_set(network, seed)
    layer, _ = labels(network, critical.points)
    H, A = prefix_of(network, 1).outputs_and_gradients(critical.points)
    W, b, index = network.weights[1], network.biases[1], np.flatnonzero((layer > 1) & critical.reliable)
    spans = Spans.of(critical, H, A, index, (W, b), rng)
    flipped = np.where(np.eye(8, dtype=bool), -1.0, 1.0)
    wrong, able = spans.violations(np.vstack([np.ones(8), flipped]))
    assert wrong[0] == 0 and able[0] > 0 and np.all(wrong[1:] > 0)
    unsure = np.ones((len(index), 8), dtype=bool)
    unsure = Spans.of(critical, H, A, index, (W, b), rng, unsure).violations(flipped)[0]
    assert unsure.sum() < 0.1 * wrong.sum()  # those of points with no active unit
    fewer = Spans.of(critical, H, A, index, (W[:, 1:], b[1:]), rng)
    assert fewer.violations(np.ones((1, 7)))[0][0] > 0


def test_signs_of_many_units():
    right = 0
    for seed in range(3):
        network, rng = random_network((14, 14, 14, 12, 4), seed), np.random.RandomState(seed)
        critical = critical_set(network, seed)
        layer, _ = labels(network, critical.points)
        H, A = prefix_of(network, 1).outputs_and_gradients(critical.points)
        signs, index = rng.choice([-1.0, 1.0], 14), np.flatnonzero((layer > 1) & critical.reliable)
        fit = layer_signs(critical, H, A, index, (network.weights[1] * signs, network.biases[1] * signs), rng)
        right += np.array_equal(fit.signs, signs)
        assert np.array_equal(fit.signs, signs) or not fit.complete
    assert right >= 2


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_one_unit_agree_and_give_its_weights(seed):
    network = random_network(SHAPE, seed)
    critical = critical_set(network, seed)
    layer, unit = labels(network, critical.points)
    H, A = prefix_of(network, 1).outputs_and_gradients(critical.points)
    index = np.flatnonzero((layer == 1) & critical.reliable)
    w, b, inside, unique = partial_units(H[index], A[index], critical.normals[index])
    assert inside.all() and unique.mean() > 0.9
    active, free = H[index] != 0.0, unique.copy()
    start = int(np.argmax(active.sum(axis=1) * unique))
    w, _, mask, members = grown(w, b, active, 1.0, start, free)
    assert members.sum() > 1 and np.all(unit[index[members]] == unit[index[start]])
    assert cosine(w[mask], network.weights[1][mask, unit[index[start]]]) > 1.0 - 1e-9
    deeper = partial_units(*(part[layer == 2] for part in (H, A, critical.normals)))
    assert deeper[2].all()  # a deeper unit is linear in the outputs of the first layer, within a linear region


def test_a_unit_is_fitted_to_its_points_without_those_of_others():
    rng = np.random.RandomState(0)
    w, b, W = rng.standard_normal(5), 0.3, rng.standard_normal((5, 7))
    H = rng.standard_normal((30, 5))
    H[:, 4] = 0.0
    H[:, :4] -= ((H @ w + b) / (w[:4] @ w[:4]))[:, None] * w[:4]
    H[-2:, :4] += 1e-9
    A = np.broadcast_to(W * (np.arange(5) < 4)[:, None], (3, 5, 7))
    n = W[:4].T @ w[:4]
    found, bias, mask = fitted_unit(H, A, np.tile(n / np.linalg.norm(n), (3, 1)))
    assert mask.tolist() == [True] * 4 + [False] and cosine(found[:4], w[:4]) > 1.0 - 1e-14
    assert np.isclose(bias / found[0], b / w[0])
    h = np.append(H[5, :4], 2.0)
    h[:4] -= (h @ w + b) / (w[:4] @ w[:4]) * w[:4]
    n = W.T @ w
    value, known = with_weights_at(np.append(w[:4], 0.0), b, mask, (h, W, n / np.linalg.norm(n)))
    assert known.all() and np.isclose(value[4], w[4])
    assert with_weights_at(np.append(w[:4], 0.0), b, mask, (h, W, W[0] / np.linalg.norm(W[0]))) is None


@pytest.mark.parametrize("shape", [SHAPE, (12, 10, 8, 8, 4)], ids=str)
def test_signs_of_a_layer_follow_from_the_next_ones(shape):
    right = 0
    for seed in range(3):
        network, rng = random_network(shape, seed), np.random.RandomState(seed)
        critical = critical_set(network, seed)
        layer, _ = labels(network, critical.points)
        for k in range(2):
            H, A = prefix_of(network, k).outputs_and_gradients(critical.points)
            W, b = network.weights[k], network.biases[k]
            signs = rng.choice([-1.0, 1.0], len(b))
            index = np.flatnonzero((layer > k) & critical.reliable)
            fit = layer_signs(critical, H, A, index, (W * signs, b * signs), rng)
            right += np.array_equal(fit.signs, signs) and fit.complete
    assert right >= 5


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_units_of_a_layer_are_found_and_no_others(depth):
    n_found = n_units = 0
    for seed in range(3):
        network = random_network(SHAPE, seed)
        critical = critical_set(network, seed, 25)
        W, b = network.weights[depth], network.biases[depth]
        search = LayerSearch(critical, prefix_of(network, depth))
        for unit in search.run([]):
            x = np.append(unit.w[unit.mask], unit.b)
            true = np.vstack([W[unit.mask], b])
            assert max(cosine(x, true[:, k]) for k in range(len(b))) > 1.0 - 1e-8
        n_found, n_units = n_found + len(search.units), n_units + len(b)
    assert n_found >= 0.8 * n_units


def test_points_that_coincide_give_no_line():
    X = np.random.RandomState(0).standard_normal((3, 4))
    assert len(lines_between(X, np.vstack([X[:2], X[:1]]))) == 1


def test_a_model_without_boundaries_has_no_layers(planted):
    net = planted((4, 3, 3), 0)
    net.set([np.zeros((4, 3)), np.eye(3)], [np.ones(3), np.zeros(3)])
    assert find_layers(net.probe(), np.random.RandomState(0)) is None


def test_linear_units_become_relu_units_that_are_active():
    rng = np.random.RandomState(0)
    W, V, linear = rng.standard_normal((4, 3)), rng.standard_normal((5, 2)), rng.standard_normal((4, 2))
    prefix = KnownPrefix(4).extended(W, np.ones(3), np.ones(W.shape, dtype=bool), linear)
    prefix = prefix.extended(V, np.ones(2), np.ones(V.shape, dtype=bool), np.zeros((5, 0)))
    X = rng.standard_normal((50, 4))
    layers, lift = prefix.as_relu_layers(X)
    H = X
    for weights, bias in layers:
        H = np.maximum(H @ weights + bias, 0.0)
    assert np.allclose(H, prefix.outputs(X)) and not lift.any()
    assert np.all(X @ layers[0][0][:, 3:] + layers[0][1][3:] > 0.0)


def test_linear_units_that_pass_on_an_output_have_its_pre_activations():
    rng = np.random.RandomState(0)
    W, V = rng.standard_normal((4, 3)), rng.standard_normal((3, 2))
    prefix = KnownPrefix(4).extended(W, np.ones(3), np.ones(W.shape, dtype=bool), np.zeros((4, 0)))
    before, passed = prefix.pre_activations, np.eye(3)[:, [1]]
    prefix = prefix.extended(V, np.ones(2), np.ones(V.shape, dtype=bool), passed)
    X = rng.standard_normal((50, 4))
    for found, one in zip(prefix.pre_activations(X), before(X), strict=True):
        assert np.array_equal(found[:, 2], one[:, 1]) and found.shape[1] == 3
    assert np.allclose(prefix.pre_activations(X)[0][:, :2], np.maximum(before(X)[0], 0.0) @ V + 1.0)


def recovered_layers(network, units):
    """`RecoveredLayer`s of a network, the last one with some of its units only."""
    found, last = [], len(network.weights) - 2
    for k, (W, b) in enumerate(zip(network.weights[:-1], network.biases[:-1], strict=True)):
        chosen = units if k == last else range(len(b))
        known = np.ones(len(W), dtype=bool)
        one = [Unit(W[:, j], b[j], known, np.zeros(0, dtype=int), np.zeros((0, network.n_inputs))) for j in chosen]
        found.append(RecoveredLayer(prefix_of(network, k), one, W[:, chosen], b[chosen], np.zeros((len(W), 0))))
    return found


def test_lines_follow_where_a_missing_unit_makes_outputs_wrong(planted):
    net = planted(SHAPE, 0)
    network, probe = net.network, net.probe()
    options = {"n_rounds": 24, "floor": lambda r: 1e-3 * np.median(r) + 1e-12, "explained": 1e-7 / probe.resolution}
    errors = ErrorLines(probe, np.random.RandomState(0), options)
    assert errors.right_share(recovered_layers(network, np.arange(6))) == 1.0 and errors.beside(100) is None
    prefix, (w, b) = prefix_of(network, 2), (network.weights[2], network.biases[2])
    shares = (prefix.outputs(errors.samples.X) @ w + b > 0.0).mean(axis=0)
    rarer = np.minimum(shares, 1.0 - shares)
    rarest = int(np.argmin(np.where(rarer > 0.02, rarer, 1.0)))
    share = errors.right_share(recovered_layers(network, np.delete(np.arange(6), rarest)))
    assert 0.5 < share < 1.0
    lines, beside = errors.lines(), errors.beside(100)
    one, other = (np.sign(prefix.outputs(X) @ w[:, rarest] + b[rarest]) for X in errors.pairs)
    assert len(lines) > 6 and len(beside) > len(lines) and np.mean(one != other) > 0.5


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_unit_keeps_the_sign_of_its_candidate(sign):
    network = random_network(SHAPE, 0)
    critical = critical_set(network, 0, 25)
    search, w = LayerSearch(critical, prefix_of(network, 1)), sign * network.weights[1]
    for k, b in enumerate(sign * network.biases[1]):
        candidate = Unit(w[:, k], b, np.ones(8, dtype=bool), np.zeros(0, dtype=int), critical.points[:0])
        unit = search.tested(candidate)
        assert unit is None or unit.w @ w[:, k] > 0.0


def test_recovered_layers_are_validated_as_they_are(planted):
    net = planted(SHAPE, 0)
    network, probe, rng = net.network, net.probe(), np.random.RandomState(0)
    options = {"rng": rng, "n_validation": 1000, "inputs": np.zeros((0, 10))}
    found, validation = validate_relu_layers(
        probe, as_relu_layers(recovered_layers(network, np.arange(6)), rng), None, **options
    )
    X = rng.standard_normal((500, 10))
    assert found.wrong_share < 0.01 and np.allclose(found.network(X), net.oracle(X), atol=1e-9)
    errors = ErrorLines(probe, rng, {"explained": 1e-7 / probe.resolution})
    errors.take(validation)
    assert errors.wrong.mean() < 0.01 and len(errors.wrong) == len(errors.samples.X)
    x = errors.samples.X[:1]
    assert not errors._around(x, errors.samples.X[1:])[2].any()
    fewer, _ = validate_relu_layers(
        probe, as_relu_layers(recovered_layers(network, np.arange(1, 6)), rng), errors.samples, **options
    )
    assert fewer is None or fewer.wrong_share > 0.0


def test_the_layers_start_the_engine(planted):
    found = 0
    for seed in range(3):
        net = planted((10, 8, 7, 6, 4), seed)
        rng = np.random.RandomState(seed)
        probe = net.probe()
        start = find_layers(probe, rng)
        if start is None:
            continue
        recovered = start[0]
        assert len(recovered) > 1 and len(recovered[0][1]) == 8
        result = find_piecewise_network(probe, rng=rng, start=start)
        X = np.random.RandomState(9).standard_normal((2000, 10))
        Y = net.oracle(X)
        found += np.abs(result.network(X) - Y).max() < 1e-8 * np.abs(Y - Y.mean(axis=0)).max()
    assert found >= 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # units that never change their sign
def test_five_hidden_layers_are_recovered():
    right = 0
    for seed in (1, 2):
        network = random_network((20, 12, 10, 8, 8, 8, 4), seed)
        X = np.random.RandomState(seed).standard_normal((300, 20))
        identifier = NetworkIdentifier(network, random_state=0)
        try:
            identifier.fit(X)
        except ValueError:
            continue
        F = np.random.RandomState(9).standard_normal((4000, 20))
        Y = network(F)
        error = np.abs(identifier.network_(F) - Y).max() / Y.std(axis=0).max()
        assert error < 1e-6 or not identifier.report_.exact
        right += error < 1e-8
    assert right >= 1
