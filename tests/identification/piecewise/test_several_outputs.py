"""Two hidden ReLU layers with several outputs, from Jacobians that critical points share."""

import numpy as np
import pytest

from skident import NetworkIdentifier, config_context
from skident.datasets import make_network
from skident.identification.piecewise.several_outputs import network as several_outputs
from skident.identification.piecewise.several_outputs.eliminated_layers import solved_by_elimination
from skident.identification.piecewise.several_outputs.first_layer import points_off_boundaries
from skident.identification.piecewise.several_outputs.jacobian_polish import Linearized, polished_on_jacobians
from skident.identification.piecewise.several_outputs.lines_across import line_across_missing
from skident.identification.piecewise.several_outputs.network import find_network
from skident.identification.piecewise.several_outputs.orthant import SecondLayer
from skident.identification.piecewise.several_outputs.planes import PlaneSearch
from skident.identification.piecewise.several_outputs.rare_units import rare_units
from skident.identification.piecewise.several_outputs.roomy_points import active_units, roomy_points
from skident.identification.piecewise.several_outputs.second_layer_signs import determined, second_layer_signs
from skident.identification.piecewise.several_outputs.shared_jacobians import Space, good, normals_on_line, scanned
from skident.identification.piecewise.several_outputs.unit_equations import SecondLayerUnit, determined_weights
from skident.identification.piecewise.several_outputs.unseen_weights import UnseenWeights
from skident.identification.piecewise.several_outputs.wide_layers import WideLayers
from skident.optim import bisect
from skident.oracle import NotIdentified

ERROR = 1e-14  # of outputs of order one


def planted(shape, seed):
    return make_network(shape, activation="relu", output_activation="identity", random_state=seed, bias_scale=0.3)


def line_of(network, rng):
    D = network.n_inputs
    space = Space(network, D, np.full(network.n_outputs, ERROR), np.sqrt(D))
    origin, direction = rng.standard_normal((2, D))
    direction /= np.linalg.norm(direction)
    return space, scanned(space, origin, direction, -100.0, 100.0, rng, length_scale=np.sqrt(D), max_boundaries=1000)


@pytest.mark.parametrize("seed", range(4))
def test_normals_of_the_critical_points_of_a_line(seed):
    """The jump of the Jacobian at each critical point is ``u n^T``, as differences of the true Jacobians show."""
    network, rng = planted((12, 10, 8, 4), seed), np.random.RandomState(seed)
    space, line = line_of(network, rng)
    normals_on_line(space, line, rng)
    edges = np.concatenate([[line.low], line.positions, [line.high]])
    middle = line.origin + (0.5 * (edges[1:] + edges[:-1]))[:, None] * line.direction
    jumps = np.diff(network.jacobian(middle), axis=0)
    reliable = np.flatnonzero(good(line))
    assert len(reliable) > 0.5 * len(line.positions)
    for i in reliable:
        found = np.outer(line.units[i], line.normals[i])
        assert np.linalg.norm(found - jumps[i]) < 1e-5 * np.linalg.norm(jumps[i])
    assert len(line.jacobians) < len(line.positions)  # shared


def test_hyperplanes_are_confirmed_by_a_second_line():
    """All hyperplanes of the first layer that are confirmed are true ones, and most are."""
    network, rng = planted((12, 10, 8, 4), 0), np.random.RandomState(0)
    search = PlaneSearch(np.sqrt(12), False, 12, 4)
    for _ in range(3):
        space, line = line_of(network, rng)
        search.confirm(line)
        which = search.explained(line)
        search.insert_known(line, which)
        normals_on_line(space, line, rng)
        search.add_candidates(line, which)
    true = network.weights[0] / np.linalg.norm(network.weights[0], axis=0)
    cosines = np.abs(search.normals @ true).max(axis=1)
    assert len(search) >= 7 and np.all(cosines > 1.0 - 1e-10)


@pytest.mark.parametrize(("same_jumps", "residual", "n"), [(True, 3e-6, 1), (False, 3e-6, 0), (True, 1e-3, 0)])
def test_jumps_confirm_less_accurate_normals_of_the_last_layer(same_jumps, residual, n):
    """Normals of a weak unit are less accurate; it is taken if another line has its jump where it is predicted."""
    network, rng = planted((12, 10, 8, 4), 0), np.random.RandomState(0)
    space, line = line_of(network, rng)
    normals_on_line(space, line, rng)
    one = line.only([np.flatnonzero(good(line))[0]])
    one.residuals[:] = residual
    search = PlaneSearch(np.sqrt(12), same_jumps, 12, 4)
    search.add_candidates(one, np.full(1, -1))
    assert len(search.candidates) == n
    if n:
        search.confirm(line)
        assert len(search) == 1


def test_a_line_far_out_shows_no_more_boundaries_than_there_are():
    """Outputs have larger errors there, which are not taken for boundaries."""
    network, rng = planted((16, 12, 10, 5), 0), np.random.RandomState(0)
    n_queries, W = [0], network.weights[0]

    def query(X):
        n_queries[0] += len(X)
        return network(X)

    sizes = np.linalg.norm(W, axis=0)
    second = SecondLayer(Space(query, 16, np.full(5, ERROR), 4.0), W / sizes, network.biases[0] / sizes, [], rng)
    for _ in range(3):
        second._scan(aim=False)
    lengths = []
    for distance in (1.0, 1e3, 1e6):
        second.aim_through(distance * rng.standard_normal((1, 16)))
        before = n_queries[0]
        second._scan(aim=False)
        lengths.append(n_queries[0] - before)
    assert max(lengths) < 12 * 10 + 10 * (12 + 12)  # 12 per boundary, and a Jacobian for each at most


@pytest.mark.parametrize("shape", [(12, 10, 8, 4), (20, 12, 12, 5), (30, 16, 10, 3)])
def test_rate_of_networks(shape):
    n_found = 0
    for seed in range(6):
        network = planted(shape, seed)
        try:
            found = find_network(network, shape[0], np.full(shape[-1], ERROR), np.random.RandomState(seed))
        except NotIdentified:
            continue
        X = np.random.RandomState(99).standard_normal((500, shape[0]))
        error = np.abs(found(X) - network(X)).max() / network(X).std()
        # Rarely active units and inputs without weight on any boundary cost digits.
        n_found += found.layer_widths == network.layer_widths and error < 1e-6
    assert n_found >= 5


def test_units_of_the_second_layer_that_are_inactive_near_the_center():
    """Outputs of the first layer with few large entries activate them: 94 % of 348 units, 90 % without these."""
    n_found = 0
    for seed in range(5):
        network = planted((36, 36, 12, 5), seed)
        V, c = network.weights[1].copy(), network.biases[1].copy()
        V[:, :3] -= 0.7 * V[:, :3].std(axis=0)
        c[:3] = -0.7 * np.linalg.norm(V[:, :3], axis=0)
        network = network.with_parameters(
            [network.weights[0], V, network.weights[2]], [network.biases[0], c, network.biases[2]]
        )
        found = find_network(network, 36, np.full(5, ERROR), np.random.RandomState(seed), least_units=36)
        X = np.random.RandomState(99).standard_normal((500, 36))
        assert np.abs(found(X) - network(X)).max() < 1e-9
        n_found += found.layer_widths[1]
    assert n_found >= 55


def probabilities_of(network):
    def model(X):
        Z = network(X)
        P = np.exp(Z - Z.max(axis=1, keepdims=True))
        return P / P.sum(axis=1, keepdims=True)

    return model


@pytest.mark.parametrize("shape", [(16, 12, 8, 5), (12, 12, 12, 4), (12, 20, 16, 5)])
def test_fit_to_jacobians_removes_errors_of_all_parameters(shape):
    """Two quadratic steps from relative errors of 1e-7 reach the rounding of the Jacobians."""
    network, rng = planted(shape, 0), np.random.RandomState(0)
    wrong = network.with_parameters(
        [W * (1.0 + 1e-7 * rng.standard_normal(W.shape)) for W in network.weights],
        [b + 1e-7 * rng.standard_normal(b.shape) for b in network.biases],
    )
    space = Space(network, shape[0], np.full(shape[-1], ERROR), np.sqrt(shape[0]))
    found, X = polished_on_jacobians(space, wrong, rng), 3.0 * rng.standard_normal((1000, shape[0]))
    before, after = (np.abs(one(X) - network(X)).max() for one in (wrong, found))
    assert before > 1e-7 and after < 1e-10


@pytest.mark.parametrize("shape", [(16, 12, 8, 5), (12, 12, 12, 4), (9, 7, 10, 3)])
def test_elimination_of_layers_is_a_least_squares_step(shape):
    """The residual is that of one dense matrix of all weights, also with a unit that is never active."""
    network, rng = planted(shape, 0), np.random.RandomState(0)
    biases = [network.biases[0], np.append(-1e3, network.biases[1][1:]), network.biases[2]]
    weights = [W * (1.0 + 1e-7 * rng.standard_normal(W.shape)) for W in network.weights]
    network, wrong = (network.with_parameters(W, biases) for W in (network.weights, weights))
    splits = np.cumsum([W.size for W in weights])[:-1]
    X, sizes = 10.0 * rng.standard_normal((60, shape[0])), rng.uniform(0.1, 1.0, (60, 1, 1))
    J, step = network.jacobian(X), Linearized(wrong, X, sizes)
    R = sizes * (J - step.jacobians)

    def changed(flat):
        parts = zip(np.split(flat, splits), wrong.weights, strict=True)
        d1, d2, d3 = (part.reshape(W.shape) for part, W in parts)
        return step.change(d2, d3) @ step.W1.T + step.M @ d1.T

    dense = np.array([changed(one).ravel() for one in np.eye(sum(W.size for W in weights))]).T
    least = R.ravel() - dense @ np.linalg.lstsq(dense, R.ravel(), rcond=1e-12)[0]
    after = solved_by_elimination(step, J)
    moves = np.concatenate([(new - old).ravel() for new, old in zip(after, wrong.weights, strict=True)])
    assert np.linalg.norm(R.ravel() - dense @ moves) < np.linalg.norm(least) + 1e-5 * np.linalg.norm(R)


def test_fit_to_jacobians_is_left_out_without_memory():
    """A network that is found is not lost because its fit needs more than `max_memory`."""
    network, rng = planted((60, 50, 40, 5), 0), np.random.RandomState(0)
    space = Space(network, 60, np.full(5, ERROR), 60**0.5)
    with config_context(max_memory="1MiB"):
        assert polished_on_jacobians(space, network, rng) is network


def test_units_that_are_rarely_active_are_so_at_some_roomy_points():
    """A unit that no random point activates has six points of its own."""
    network, rng = planted((12, 10, 8, 4), 0), np.random.RandomState(0)
    biases = [network.biases[0], np.append(-1e4, network.biases[1][1:]), network.biases[2]]
    network = network.with_parameters(network.weights, biases)
    X, room = roomy_points(network, 30, rng, lambda points: points)
    n_active = np.sum(
        np.maximum(X @ network.weights[0] + biases[0], 0.0) @ network.weights[1] + biases[1] > 0.0, axis=0
    )
    assert n_active.min() >= 6 and room.min() > 0.0


def test_units_that_are_rarely_active_are_as_accurate():
    """A unit of the second layer with a large negative bias, active for less than 1 % of the inputs."""
    network = planted((24, 10, 8, 4), 1)
    b = [v.copy() for v in network.biases]
    b[1][0] = -4.0 * np.linalg.norm(network.weights[1][:, 0])
    network = network.with_parameters(network.weights, b)
    X = np.random.RandomState(99).standard_normal((20_000, 24))
    H = np.maximum(X @ network.weights[0] + b[0], 0.0)
    active = H @ network.weights[1][:, 0] + b[1][0] > 0.0
    assert active.mean() < 0.01
    found = find_network(network, 24, np.full(4, ERROR), np.random.RandomState(0))
    F = 10.0 * X[:2000]
    assert found.layer_widths == network.layer_widths
    assert np.abs(found(F) - network(F)).max() < 1e-10 * network(F).std()


def test_jumps_of_the_size_of_rounding_are_left_out():
    """A line has no critical points where jumps are a millionth of the largest one, as those of nearly lost logits."""
    U = np.array([[1.0, -2.0, 3.0], [0.5, 1.0, 2.0]])

    def query(X):
        return np.abs(X[:, :1]) * U[0] + 1e-8 * np.abs(X[:, :1] - 3.0) * U[1]

    space = Space(query, 2, np.full(3, 1e-15), np.sqrt(2.0))
    line = scanned(
        space, np.array([-0.5, 0.0]), np.array([1.0, 0.0]), -50.0, 50.0, np.random.RandomState(0), length_scale=1.0
    )
    np.testing.assert_allclose(line.positions, [0.5], atol=1e-9)


def test_rate_from_probabilities():
    """Logits of probabilities in double precision, within the distance up to which these do not underflow."""
    n_exact = 0
    for seed in range(4):
        network = planted((20, 10, 8, 5), seed)
        model = probabilities_of(network)
        identifier = NetworkIdentifier(model, response_method="predict_proba", random_state=seed)
        identifier.fit(np.random.RandomState(seed).standard_normal((100, 20)))
        n_exact += identifier.report_.exact and identifier.layer_widths_ == network.layer_widths
    assert n_exact >= 3


@pytest.mark.parametrize(
    ("shape", "least"),
    [
        ((5, 12, 6, 4), 2),  # with few inputs, other methods have to recover the rest
        pytest.param((20, 30, 30, 10), 5, marks=pytest.mark.slow),
        pytest.param((10, 20, 15, 3), 5, marks=pytest.mark.slow),
        ((12, 14, 18, 6), 5),
    ],
)
def test_rate_of_networks_whose_first_layer_is_wider_than_the_input(shape, least):
    n_found = 0
    for seed in range(6):
        network = planted(shape, seed)
        try:
            found = find_network(network, shape[0], np.full(shape[-1], ERROR), np.random.RandomState(seed))
        except NotIdentified:
            continue
        X = 3.0 * np.random.RandomState(99).standard_normal((500, shape[0]))
        error = np.abs(found(X) - network(X)).max() / network(X).std()
        assert error < 1e-6  # a network is returned only if it explains further outputs
        n_found += found.layer_widths == network.layer_widths
    assert n_found >= least


def unit_with_critical_points(W, b, v, c, n, rng):
    """A unit with n critical points and normals; its jump is the first axis."""
    one, other = rng.standard_normal((2, 50 * n, len(W)))

    def active(X):
        return np.maximum(X @ W + b, 0.0) @ v + c > 0.0

    apart = np.flatnonzero(active(one) & ~active(other))[:n]
    one, other = one[apart], other[apart]
    for _ in range(60):
        middle = 0.5 * (one + other)
        on = active(middle)[:, None]
        one, other = np.where(on, middle, one), np.where(on, other, middle)
    assert len(one) == n
    return SecondLayerUnit(one, (W * (one @ W + b > 0.0)[:, None]) @ v, np.ones(one.shape), np.eye(4)[0])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_wrong", [0, 1, 2])
def test_critical_points_that_contradict_others_are_left_out(seed, n_wrong):
    """Wrong normals or points of a unit leave its weights as they are."""
    rng = np.random.RandomState(seed)
    W, b, v = rng.standard_normal((10, 14)), 0.3 * rng.standard_normal(14), rng.standard_normal(14)
    unit = unit_with_critical_points(W, b, v, 0.1, 8, rng)
    unit.points[:n_wrong] += rng.standard_normal((n_wrong, 10))
    found, unseen, _, part = determined_weights(W, b, unit)
    assert len(part.points) == 8 - n_wrong and unseen.sum() <= 2
    true = np.append(v, 0.1) * ~unseen  # inputs that are inactive at all points
    true /= np.linalg.norm(true)
    assert min(np.linalg.norm(found - true), np.linalg.norm(found + true)) < 1e-8


def test_weights_that_new_critical_points_contradict_are_measured_again():
    rng = np.random.RandomState(0)
    W, b, v = rng.standard_normal((10, 14)), 0.3 * rng.standard_normal(14), rng.standard_normal(14)
    layers = WideLayers(None, [], rng)
    layers.first = W, b
    unit = unit_with_critical_points(W, b, v, 0.1, 3, rng)
    unseen = np.ones(15, dtype=bool)
    true, wrong = np.append(v, 0.1), rng.standard_normal(15)
    layers.completed = [(unit.direction, true / np.linalg.norm(true))]
    assert not layers._completed(unit, None, unseen)[1].any() and len(layers.completed) == 1
    layers.completed = [(unit.direction, wrong / np.linalg.norm(wrong))]
    assert layers._completed(unit, None, unseen)[0] is None and layers.completed == []


@pytest.mark.parametrize("seed", range(3))
def test_further_lines_complete_a_wide_first_layer(seed):
    """A first layer with a unit less, which the first lines have missed, is replaced."""
    network, rng = planted((6, 9, 5, 4), seed), np.random.RandomState(seed)
    layers = WideLayers(Space(network, 6, np.full(4, ERROR), np.sqrt(6)), [], rng)
    for _ in range(12):
        layers.extend()
        try:
            layers._find_first()
        except NotIdentified:
            continue
        if layers.first[0].shape[1] == 9:
            break
    W, b = layers.first
    layers.first, layers.n_done = (W[:, 1:], b[1:]), min(layers.n_done, 12)
    layers._find_first()
    assert layers.first[0].shape == (6, 9)
    cosines = (layers.first[0].T / np.linalg.norm(layers.first[0], axis=0)[:, None]) @ network.weights[0]
    assert np.all((cosines / np.linalg.norm(network.weights[0], axis=0)).max(axis=0) > 1.0 - 1e-8)


def test_few_outputs_that_a_fit_leaves_show_a_missing_unit(monkeypatch):
    """A unit that is active at few inputs is not fitted by the others: the inputs are returned."""
    monkeypatch.setattr(several_outputs, "_MAX_POLISHED", 0)
    network = planted((16, 12, 8, 5), 0)
    weights = [*network.weights[:2], network.weights[2].copy()]
    biases = [network.biases[0], network.biases[1].copy(), network.biases[2]]
    weights[2][0] *= 1e-6
    biases[1][0] = -6.0
    network = network.with_parameters(weights, biases)
    (W, V, U), (b, c, d) = network.weights, biases
    less = network.with_parameters([W, V[:, 1:], U[1:]], [b, c[1:], d])
    space, rng = Space(network, 16, np.full(5, ERROR), 4.0), np.random.RandomState(0)
    found, missed = several_outputs._fitted_again(space, less, [], rng, 30_000)
    assert found.layer_widths == less.layer_widths and 0 < len(missed) <= 30
    assert np.all(np.maximum(missed @ W + b, 0.0) @ V[:, 0] + c[0] > 0.0)
    assert len(several_outputs._fitted_again(space, network, [], rng, 30_000)[1]) == 0


def test_units_of_a_wide_first_layer_whose_weights_no_random_line_shows():
    """A unit with a large negative bias is rarely active at the boundaries of the second layer's units."""
    network = planted((12, 18, 10, 5), 0)
    b = [v.copy() for v in network.biases]
    b[0][0] = -2.5 * np.linalg.norm(network.weights[0][:, 0])
    network = network.with_parameters(network.weights, b)
    found = find_network(network, 12, np.full(5, ERROR), np.random.RandomState(0))
    X = 5.0 * np.random.RandomState(99).standard_normal((2000, 12))
    assert found.layer_widths == network.layer_widths
    assert np.abs(found(X) - network(X)).max() < 1e-9 * network(X).std()


class _Unit:
    """A unit of the second layer of a network, as far as short lines need it."""

    def __init__(self, network, j, rng):
        (W, V, U), (b, c, _) = network.weights, network.biases
        X = rng.standard_normal((20_000, len(W)))
        Z = np.maximum(X @ W + b, 0.0) @ V[:, j] + c[j]
        low, high = X[Z < 0.0][:20], X[Z > 0.0][:20]
        self.points, _ = bisect(lambda X: np.maximum(X @ W + b, 0.0) @ V[:, j] + c[j] > 0.0, low, high, 60)
        self.direction = U[j] / np.linalg.norm(U[j])


def without(network, units, rng):
    """The second layer of a network but for some units, with random signs: W, b, V, c, U, and those signs."""
    (W, V, U), (b, c, _) = network.weights, network.biases
    kept = np.setdiff1d(np.arange(len(c)), units)
    return W, b, V[:, kept], c[kept], U[kept], rng.choice([-1.0, 1.0], len(kept))


@pytest.mark.parametrize("n_missing", [0, 1, 3])
def test_signs_of_the_second_layer_though_units_are_missing(n_missing):
    """The first units lost are those that are nearly always active, or nearly never."""
    for seed in range(4):
        network, rng = planted((16, 24, 24, 8), seed), np.random.RandomState(seed)
        X = rng.standard_normal((300, 16))
        H = np.maximum(X @ network.weights[0] + network.biases[0], 0.0)
        share = np.mean(H @ network.weights[1] + network.biases[1] > 0.0, axis=0)
        lost = np.argsort(-np.abs(share - 0.5))[:n_missing]
        _, _, V, c, U, signs = without(network, lost, rng)
        Z = (H @ V + c) * signs
        found = second_layer_signs(Z, 2.0 * network(X) - np.abs(Z) @ U, U, np.empty((0, 8)))
        assert determined(found)
        np.testing.assert_array_equal(np.sign(found), signs)


@pytest.mark.parametrize(("n_missing", "least"), [(0, 6), (1, 4), (2, 2)])
def test_rare_units_follow_from_what_other_units_leave(n_missing, least):
    """A rate: in small networks both units may be active at most of the samples that show one."""
    n_found = 0
    for seed in range(6):
        network, rng = planted((16, 24, 24, 8), seed), np.random.RandomState(seed)
        X = np.array([0.5, 1.0, 2.0, 3.0])[np.arange(600) % 4, None] * rng.standard_normal((600, 16))
        H = np.maximum(X @ network.weights[0] + network.biases[0], 0.0)
        share = np.mean(H @ network.weights[1] + network.biases[1] > 0.0, axis=0)
        order = np.argsort(-np.abs(share - 0.5))
        lost = order[(np.abs(share[order] - 0.5) < 0.49)][:n_missing]  # the others are no part of the function here
        W, b, V, c, U, _ = without(network, lost, rng)

        def left(X, W=W, b=b, V=V, c=c, U=U, network=network):
            return network(X) - np.maximum(np.maximum(X @ W + b, 0.0) @ V + c, 0.0) @ U

        units = rare_units((W, b), U, X, left(X), left, rng)
        if units is None:
            continue
        v, d, u = units
        further = rng.standard_normal((500, 16))
        errors = left(further) - np.maximum(np.maximum(further @ W + b, 0.0) @ v + d, 0.0) @ u
        n_found += np.abs(errors - np.median(errors, axis=0)).max() < 1e-4 and len(d) == n_missing
    assert n_found >= least


def test_errors_of_known_units_are_no_further_units():
    network, rng = planted((16, 24, 24, 8), 0), np.random.RandomState(0)
    W, b, V, c, U, _ = without(network, [], rng)
    V = V.copy()
    V[3, 5] += 0.01  # an error along the outgoing weights of unit 5
    X = rng.standard_normal((600, 16))

    def left(X):
        return network(X) - np.maximum(np.maximum(X @ W + b, 0.0) @ V + c, 0.0) @ U

    assert len(rare_units((W, b), U, X, left(X), left, rng)[1]) == 0


def test_pairs_of_units_that_are_rarely_active_together_are_so_at_some_roomy_points():
    network, rng = planted((8, 14, 12, 4), 1), np.random.RandomState(0)
    known = rng.standard_normal((6, 8))
    X, _ = roomy_points(network, 4, rng, lambda points: points, known=known)

    def together(X):
        return (X @ network.weights[0] + network.biases[0] > 0.0).T.astype(float) @ active_units(network, X)

    possible = together(10.0 * rng.standard_normal((20_000, 8))) > 200.0
    assert together(known)[possible].min() == 0.0
    assert together(np.concatenate([known, X]))[possible].min() >= 1.0


def test_an_unknown_normal_is_measured_next_to_its_critical_point():
    """Errors of other normals of the line do not add to it."""
    network, rng = planted((12, 10, 8, 4), 0), np.random.RandomState(0)
    space, line = line_of(network, rng)
    normals_on_line(space, line, rng)
    i = int(np.flatnonzero(good(line))[len(line.positions) // 2])
    true = line.normals[i].copy()
    line.normals *= 1.0 + 1e-4 * rng.standard_normal(line.normals.shape)
    line.normals[i] = np.nan
    before = len(line.jacobians)
    normals_on_line(space, line, rng)
    assert len(line.jacobians) == before + 2
    # One of 16 known neighbours on each side is next to it at most.
    assert np.linalg.norm(line.normals[i] - true) < 1e-2 * np.linalg.norm(true)


def test_short_lines_determine_single_weights():
    network, rng = planted((12, 16, 8, 5), 1), np.random.RandomState(0)
    space = Space(network, 12, np.full(5, ERROR), np.sqrt(12))
    (W, V, _), (b, c, _) = network.weights, network.biases
    truth, unseen = np.append(V[:, 0], c[0]), np.zeros(17, dtype=bool)
    unseen[[2, 5, 11]] = True
    weights = UnseenWeights(space, (W, b), _Unit(network, 0, rng), np.where(unseen, 0.0, truth), unseen, rng)
    weights.measure(1e-7)
    assert not weights.unseen.any()
    np.testing.assert_allclose(weights.v, truth, atol=1e-8)


@pytest.mark.parametrize("bias", [-1.0, 0.0, 4.0])
def test_a_line_crosses_the_boundary_of_a_missing_unit(bias):
    """A unit that is active at few, half, or all samples."""
    rng = np.random.RandomState(0)
    W, b, v = rng.standard_normal((8, 10)), rng.standard_normal(10), rng.standard_normal(10)
    X = rng.standard_normal((200, 8))
    z = np.maximum(X @ W + b, 0.0) @ v
    q = bias * np.abs(z).max() if bias > 0.0 else -np.quantile(z, 0.5 - 0.45 * bias)
    origin, direction = line_across_missing(W, b, X, np.maximum(z + q, 0.0)[:, None] * [1.0, -2.0, 0.5], rng)
    on_line = origin + np.linspace(0.0, 1.0, 1000)[:, None] * direction
    active = np.maximum(on_line @ W + b, 0.0) @ v + q > 0.0
    assert active.any() and not active.all()


def test_critical_points_of_a_missing_unit_are_on_no_boundary():
    network, rng = planted((10, 8, 6, 4), 0), np.random.RandomState(0)
    _, line = line_of(network, rng)
    search = PlaneSearch(np.sqrt(10), False, 10, 4)
    W, b = network.weights[0], network.biases[0]
    for w, offset in zip((W / np.linalg.norm(W, axis=0)).T, b / np.linalg.norm(W, axis=0), strict=True):
        search._add((w, offset, 0.0, np.zeros(4), 1.0))
    assert len(points_off_boundaries(search, [line], network)) == 0
    less = network.with_parameters(
        [W, network.weights[1][:, 1:], network.weights[2][1:]], [b, network.biases[1][1:], network.biases[2]]
    )
    Z = np.maximum(line.points @ W + b, 0.0) @ network.weights[1] + network.biases[1]
    assert len(points_off_boundaries(search, [line], less)) == np.sum(np.abs(Z[:, 0]) < 1e-6)


@pytest.mark.parametrize(
    ("shape", "reason"), [((10, 8, 4), "shallow"), ((5, 12, 6, 6, 4), None), ((10, 8, 8, 8, 4), None)]
)
def test_other_networks_are_left_to_other_methods(shape, reason):
    network = planted(shape, 0)
    with pytest.raises(NotIdentified, match="layer") as raised:
        find_network(network, shape[0], np.full(shape[-1], ERROR), np.random.RandomState(0))
    assert reason is None or raised.value.reason in (reason, "layers")


def test_three_hidden_layers_are_left_to_other_methods_after_the_first_lines():
    network, n_queries = planted((16, 10, 8, 8, 5), 0), [0]

    def query(X):
        n_queries[0] += len(X)
        return network(X)

    with pytest.raises(NotIdentified, match="three layers or more") as raised:
        find_network(query, 16, np.full(5, ERROR), np.random.RandomState(0))
    assert raised.value.reason == "deep"
    assert n_queries[0] < 20_000  # 9,000; three attempts at two layers took 120,000


def test_a_wide_layer_with_a_unit_that_is_never_active_near_the_center():
    """Its size follows from its critical points, not from outputs near the center."""
    network = planted((12, 18, 10, 5), 1)
    b = [v.copy() for v in network.biases]
    b[1][0] = -8.0 * np.linalg.norm(network.weights[1][:, 0])
    network = network.with_parameters(network.weights, b)
    found = find_network(network, 12, np.full(5, ERROR), np.random.RandomState(0))
    X = 20.0 * np.random.RandomState(99).standard_normal((2000, 12))
    assert found.layer_widths == network.layer_widths
    assert np.abs(found(X) - network(X)).max() < 1e-8 * network(X).std()


def test_a_wide_first_layer_in_the_default_call():
    network = planted((12, 20, 10, 5), 0)
    identifier = NetworkIdentifier(lambda U: network(U), random_state=0)
    identifier.fit(np.random.RandomState(0).standard_normal((100, 12)))
    assert identifier.report_.exact and identifier.layer_widths_ == network.layer_widths
    assert "layers (shared Jacobians)" in [stage.name for stage in identifier.report_.stages]


def test_default_call():
    network = planted((30, 16, 10, 4), 1)
    X = np.random.RandomState(0).standard_normal((100, 30))
    identifier = NetworkIdentifier(lambda U: network(U), random_state=0).fit(X)
    assert identifier.report_.exact and identifier.layer_widths_ == (16, 10, 4)
    assert "layers (shared Jacobians)" in [stage.name for stage in identifier.report_.stages]


@pytest.mark.parametrize("seed", range(3))
def test_two_equal_units_are_one(seed):
    """Two identical units are recovered as one with the sum of their outgoing weights."""
    network = planted((12, 8, 6, 4), seed)
    W, b = [w.copy() for w in network.weights], [v.copy() for v in network.biases]
    W[0][:, 1], b[0][1] = W[0][:, 0], b[0][0]
    network = network.with_parameters(W, b)
    found = find_network(network, 12, np.full(4, ERROR), np.random.RandomState(0))
    X = np.random.RandomState(99).standard_normal((500, 12))
    assert found.layer_widths == (7, 6, 4) and np.abs(found(X) - network(X)).max() < 1e-6 * network(X).std()


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_unit_is_left_out(seed):
    network = planted((12, 8, 6, 4), seed)
    W = [w.copy() for w in network.weights]
    W[1][2] = 0.0
    network = network.with_parameters(W, network.biases)
    found = find_network(network, 12, np.full(4, ERROR), np.random.RandomState(0))
    assert found.layer_widths == (7, 6, 4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layer", [0, 1])
def test_a_dead_layer_is_reported_before_the_budget_is_spent(layer, seed):
    network = planted((12, 8, 6, 4), seed)
    W, b = [w.copy() for w in network.weights], [v.copy() for v in network.biases]
    W[layer], b[layer] = -np.abs(W[layer]) * (layer > 0), -1.0 - np.abs(b[layer])
    dead, n_queries = network.with_parameters(W, b), 0

    def model(X):
        nonlocal n_queries
        n_queries += len(X)
        return dead(X)

    with pytest.raises(ValueError, match="is constant"):
        NetworkIdentifier(model, random_state=0).fit(np.random.RandomState(0).standard_normal((100, 12)))
    assert n_queries < 1000


@pytest.mark.parametrize("seed", range(3))
def test_too_little_memory_is_an_error_with_the_memory_needed(seed):
    network = planted((200, 64, 32, 10), seed)
    X = np.random.RandomState(0).standard_normal((100, 200))
    identifier = NetworkIdentifier(lambda U: network(U), random_state=0)
    with config_context(max_memory="2MB"), pytest.raises(ValueError, match=r"max_memory=2MB .* bytes are needed"):
        identifier.fit(X)
    with config_context(max_memory="16MB"):
        assert identifier.fit(X).report_.exact


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_model_is_queried_in_large_batches(seed):
    """At 0.05 s per call, 1,200 calls take a minute."""
    network, calls = planted((64, 32, 16, 10), seed), []

    def model(X):
        calls.append(len(X))
        return network(X)

    identifier = NetworkIdentifier(model, random_state=0).fit(np.random.RandomState(0).standard_normal((100, 64)))
    assert identifier.report_.exact
    assert len(calls) < 1200 and np.mean(calls) > 10.0
