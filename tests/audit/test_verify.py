"""An audit: what differs is found and named, what is the same raises no alarm, and bad boxes end in clear errors."""

import copy
import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skident import NetworkVerifier, verify_same
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError

ACTIVATIONS = ("tanh", "relu", "sigmoid", "erf", "gelu", "softplus", "silu", "elu", "sin", "quadratic")


def random_network(seed, activation=None, sizes=None):
    rng = np.random.RandomState(seed)
    activation = ACTIVATIONS[seed % len(ACTIVATIONS)] if activation is None else activation
    if sizes is None:
        sizes = [rng.randint(2, 12), *rng.randint(2, 15, size=rng.randint(1, 4)), rng.randint(1, 4)]
    weights = [rng.standard_normal((n, m)) / np.sqrt(n) for n, m in zip(sizes, sizes[1:])]
    network = FeedforwardNetwork(weights, [0.3 * rng.standard_normal(m) for m in sizes[1:]], activation)
    return network, rng.standard_normal((200, sizes[0])), rng


def with_weights(network, change):
    """The network after ``change(weights, biases)`` of copies."""
    weights, biases = [np.array(W) for W in network.weights], [np.array(b) for b in network.biases]
    change(weights, biases)
    return network.with_parameters(weights, biases)


def test_one_weight_changed_by_a_millionth_is_found_and_located():
    """Of 40 networks of eight activations; units that hardly show may leave two candidates, 2 of 40 at most."""
    located = 0
    for seed in range(40):
        network, X, rng = random_network(seed)
        layer = rng.randint(network.n_layers)
        row, unit = (rng.randint(k) for k in network.weights[layer].shape)

        def change(weights, biases, place=(layer, row, unit)):
            weights[place[0]][place[1:]] *= 1 + 1e-6

        report = verify_same(with_weights(network, change), network, X, random_state=seed)
        assert report.same is False
        assert report.n_queries <= len(X) + max(24, 2 * network.n_parameters / network.n_outputs + 1)
        named = {(d.layer, d.row, d.unit) for d in (*report.differences, *report.instead)}
        assert not report.differences or (layer, row, unit) in named
        located += [(d.layer, d.row, d.unit) for d in report.differences] == [(layer, row, unit)]
    assert located >= 38


def test_what_is_the_same_raises_no_alarm():
    """60 boxes: as it is, units permuted with signs or scales, in single precision, rounded."""
    for seed in range(60):
        network, X, rng = random_network(seed, ("tanh", "relu")[seed % 2])
        kind = seed % 4
        if kind == 0:
            box = network.canonical()
        elif kind == 1:
            module = network.to_torch(dtype=torch.float32)

            def box(X, module=module):
                with torch.no_grad():
                    return module(torch.as_tensor(X, dtype=torch.float32)).numpy()

        elif kind == 2:
            digits = 3 + seed % 6
            box = lambda X, network=network, digits=digits: network(X).round(digits)  # noqa: E731
        else:
            order = [rng.permutation(m) for m in network.layer_widths[:-1]]

            def permuted(weights, biases, order=order):
                for k, p in enumerate(order):
                    weights[k], biases[k], weights[k + 1] = weights[k][:, p], biases[k][p], weights[k + 1][p]

            box = with_weights(network, permuted)
        report = verify_same(box, network, X, random_state=seed)
        assert report.same is True, (seed, report.excess)
        assert report.differences == []


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_module_in_single_precision_is_the_same_as_the_network_in_double(activation):
    """A torch box is queries in double precision, with weights rounded to single."""
    network, X, _ = random_network(7, activation, (6, 9, 8, 2))
    module = network.to_torch(torch.float32)
    for box in (module, FeedforwardNetwork.from_torch(module)):
        report = verify_same(box, network, X, random_state=0)
        assert report.same is True and report.kind == "float32"
    rounded = FeedforwardNetwork.from_torch(module)
    assert verify_same(module, rounded, X, random_state=0).kind == "float64"  # and as sharp as that
    with torch.no_grad():
        module[2].weight[3, 4] *= 1.01
    assert [d.name for d in verify_same(module, network, X, random_state=0).differences] == ["weights[1][4, 3]"]


def test_the_same_file_against_the_same_function():
    """Outputs of double precision would show every last bit of float32 weights, those of single precision would not."""
    network, X, _ = random_network(7, "tanh", (6, 9, 8, 2))
    module = network.to_torch(torch.float32)
    rounded = FeedforwardNetwork.from_torch(module)
    report = verify_same(module, rounded, X, random_state=0)
    assert report.bits == (rounded.n_parameters, rounded.n_parameters) and "the same file" in str(report)

    def single(X):
        with torch.no_grad():
            return module(torch.from_numpy(X).float()).numpy()

    report = verify_same(single, rounded, X, random_state=0)
    assert report.same is True and report.bits[0] < 0.1 * report.bits[1] and "same function" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["bits"] == list(report.bits)
    assert verify_same(network, network, X, random_state=0).bits is None  # weights of double precision
    pruned = with_weights(rounded, lambda weights, biases: weights[0].__setitem__((0, 0), 0.0))
    assert verify_same(pruned, pruned, X, random_state=0).bits[1] == rounded.n_parameters - 1


@pytest.mark.parametrize("seed", range(10))
def test_a_changed_last_bit_is_another_file(seed):
    network, X, rng = random_network(seed, "tanh", (6, 9, 8, 2))
    rounded = FeedforwardNetwork.from_torch(network.to_torch(torch.float32))
    layer = rng.randint(3)
    place = tuple(rng.randint(k) for k in rounded.weights[layer].shape)

    def change(weights, biases):
        weights[layer][place] = np.nextafter(np.float32(weights[layer][place]), np.float32(9.0))

    assert verify_same(with_weights(rounded, change), rounded, X, random_state=0).same is False


def test_a_callable_with_weights_in_single_precision_takes_a_tolerance():
    """It does not tell that its weights are rounded, and computes in double."""
    network, X, _ = random_network(7, "tanh", (6, 9, 8, 2))
    rounded = FeedforwardNetwork.from_torch(network.to_torch(torch.float32))
    box = lambda X: rounded(X)  # noqa: E731
    assert verify_same(box, network, X, random_state=0).same is False
    assert verify_same(box, network, X, tol=1e-5, random_state=0).same is True


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_removed_unit_is_named(activation, layer):
    network, X, _ = random_network(3, activation, (6, 9, 8, 2))

    def remove(weights, biases):
        weights[layer + 1][5] = 0.0

    report = verify_same(with_weights(network, remove), network, X, random_state=0)
    assert [(d.layer, d.unit, d.removed) for d in report.differences] == [(layer, 5, True)]
    assert f"unit 5 of hidden layer {layer + 1}: without effect" in str(report)


def test_rounded_weights_are_all_listed():
    network, X, rng = random_network(11, "tanh", (8, 20, 15, 2))
    truth = set()

    def rounded(weights, biases):
        for layer, W in enumerate(weights):
            for row, unit in zip(*np.nonzero(rng.uniform(size=W.shape) < 0.02)):
                W[row, unit] = np.float16(W[row, unit])
                truth.add((layer, int(row), int(unit)))

    box = with_weights(network, rounded)
    report = verify_same(box, network, X, random_state=0)
    assert {(d.layer, d.row, d.unit) for d in report.differences} == truth
    for d in report.differences:
        assert d.found == pytest.approx(box.weights[d.layer][d.row, d.unit], rel=1e-8)


def test_changed_weights_of_one_unit():
    network, X, rng = random_network(5, "tanh", (10, 6, 6, 1))

    def change(weights, biases):
        weights[1][:, 2] += 0.1 * rng.standard_normal(6)
        biases[1][2] += 0.1

    report = verify_same(with_weights(network, change), network, X, random_state=0)
    assert {(d.layer, d.unit) for d in report.differences} == {(1, 2)}
    assert len(report.differences) == 7


def test_another_model_is_different_and_nothing_is_named():
    network, X, rng = random_network(2, "relu", (4, 6, 1))
    forest = RandomForestRegressor(10, random_state=0).fit(X, network(X)[:, 0])
    report = verify_same(forest, network, X, random_state=0)
    assert report.same is False and report.differences == []
    assert "no change of one unit" in str(report)
    assert network(report.input[None])[0, 0] != pytest.approx(forest.predict(report.input[None])[0], abs=1e-3)


def test_noise_is_measured_and_larger_changes_are_found():
    network, X, rng = random_network(0, "tanh", (5, 8, 2))
    noisy = lambda box: lambda X: box(X) + 1e-4 * rng.standard_normal((len(X), 2))  # noqa: E731
    report = verify_same(noisy(network), network, X, random_state=0)
    assert report.same is True and report.kind == "noise"

    def change(weights, biases):
        weights[1][3, 1] += 0.05

    assert verify_same(noisy(with_weights(network, change)), network, X, random_state=0).same is False


class TestFewOrShortNumbers:
    """Outputs that are few different ones, or numbers of 16 bits, are taken as what they are."""

    network, X, _ = random_network(3, "tanh", (6, 10, 8, 3))

    def changed(self):
        def change(weights, biases):
            biases[2][1] += 3.0

        return with_weights(self.network, change)

    @pytest.mark.parametrize(
        ("kind", "shortened", "same"),
        [
            ("float16", lambda Y: Y.astype(np.float16), True),
            ("bfloat16", lambda Y: torch.from_numpy(Y).bfloat16().double().numpy(), True),
            ("decimals", lambda Y: Y.round(0), None),
            ("decimals", lambda Y: Y.round(1), None),
        ],
    )
    def test_answers_of_few_digits(self, kind, shortened, same):
        """With one decimal no change of a weight by 1 % shows: agreement decides nothing."""
        report = verify_same(lambda X: shortened(self.network(X)), self.network, self.X, random_state=0)
        assert report.same is same and report.kind == kind
        report = verify_same(lambda X: shortened(self.changed()(X)), self.network, self.X, random_state=0)
        assert report.same is False and report.kind == kind

    def test_an_offset_beside_which_single_precision_has_one_answer(self):
        def far(weights, biases):
            biases[2] += 1e8

        network = with_weights(self.network, far)
        report = verify_same(lambda X: network(X).astype(np.float32), network, self.X, random_state=0)
        assert report.same is None and report.kind == "float32" and report.missed(0.01) > 0.9

    def test_one_unit_in_single_precision(self):
        network, X, _ = random_network(0, "tanh", (1, 1, 1))
        report = verify_same(lambda X: network(X).astype(np.float32), network, X, random_state=0)
        assert report.same is True and report.kind == "float32"

    def test_constant_answers_are_not_taken_as_rounded(self):
        small = with_weights(self.network, lambda weights, biases: weights[2].__imul__(0.01))
        assert verify_same(lambda X: np.zeros((len(X), 3)), small, self.X, random_state=0).same is False


def test_a_tolerance_of_ones_own():
    network, X, _ = random_network(0, "tanh", (5, 8, 2))

    def change(weights, biases):
        weights[1][3, 1] += 1e-4

    box = with_weights(network, change)
    assert verify_same(box, network, X, tol=1e-2, random_state=0).same is True
    assert verify_same(box, network, X, tol=1e-9, random_state=0).same is False


def test_units_that_never_move_are_said_to_be_unseen():
    network, X, _ = random_network(1, "relu", (3, 5, 1))

    def rest(weights, biases):
        biases[0][2] = -100.0

    resting = with_weights(network, rest)

    def unseen(weights, biases):
        weights[0][:, 2] *= 2.0

    report = verify_same(with_weights(resting, unseen), resting, X, random_state=0)
    assert report.same is True and report.unseen_units == [(0, 2)]
    assert "unseen: 1 units (2 of layer 1)" in str(report)
    X = np.column_stack([X[:, :2], np.full(len(X), 0.3)])
    assert list(verify_same(resting, resting, X, random_state=0).constant_columns) == [2]


def test_the_chance_that_a_change_is_missed_is_the_one_seen():
    """Changes of single weights by the factor 1 + s, in single precision, where many do not show."""
    network, X, rng = random_network(4, "tanh", (6, 10, 1))
    size, missed = 1e-5, 0
    single = lambda box: lambda X: np.float32(box(X))  # noqa: E731
    chance = verify_same(single(network), network, X, random_state=0).missed(size)
    places = [(k, *np.unravel_index(i, W.shape)) for k, W in enumerate(network.weights) for i in range(W.size)]
    for layer, row, unit in places:

        def change(weights, biases, layer=layer, row=row, unit=unit):
            weights[layer][row, unit] *= 1 + size

        missed += bool(verify_same(single(with_weights(network, change)), network, X, random_state=0).same)
    assert missed / len(places) <= chance  # which is on the careful side


def test_classifiers_are_compared_by_their_logits():
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), MLPClassifier((12,), max_iter=300, tol=1e-2, random_state=0)).fit(X, y)
    assert verify_same(model, model, X, random_state=0).same is True
    known = FeedforwardNetwork.from_sklearn(model)
    model[-1].coefs_[0][2, 3] *= 1 + 1e-5
    report = verify_same(model, known, X, random_state=0)
    assert report.same is False
    assert {(d.layer, d.row, d.unit) for d in (*report.differences, *report.instead)} >= {(0, 2, 3)}


class TestClassifier:
    """What is named are weights of the network as it was given, though probabilities tell logits up to their mean."""

    X, y = load_iris(return_X_y=True)
    model = make_pipeline(
        StandardScaler(), MLPClassifier((12,), activation="tanh", max_iter=300, tol=1e-2, random_state=0)
    ).fit(X, y)
    known = FeedforwardNetwork.from_sklearn(model)

    def audited(self, change):
        other = copy.deepcopy(self.model)
        change(other[-1].coefs_, other[-1].intercepts_)
        return verify_same(other, self.known, self.X, random_state=0)

    def test_an_outgoing_weight(self):
        report = self.audited(lambda coefs, intercepts: coefs[1].__setitem__((3, 0), 1.001 * coefs[1][3, 0]))
        assert [d.name for d in report.differences] == ["weights[1][3, 0]"]
        assert report.differences[0].known == self.model[-1].coefs_[1][3, 0]
        assert report.differences[0].found == pytest.approx(1.001 * self.model[-1].coefs_[1][3, 0], rel=1e-8)

    def test_a_shift(self):
        report = self.audited(lambda coefs, intercepts: intercepts[1].__setitem__(0, intercepts[1][0] + 1e-4))
        assert [d.name for d in report.differences] == ["biases[1][0]"]

    def test_the_same_shift_of_all_logits_is_none(self):
        report = self.audited(lambda coefs, intercepts: intercepts[1].__iadd__(1e-4))
        assert report.same is True

    def test_a_weight_behind_a_scaler_is_one_and_a_shift(self):
        """Of which the effects nearly cancel, so that neither alone goes with the differences."""
        report = self.audited(lambda coefs, intercepts: coefs[0].__setitem__((1, 2), 1.001 * coefs[0][1, 2]))
        assert [d.name for d in report.differences] == ["weights[0][1, 2]", "biases[0][2]"]

    def test_all_outgoing_weights_of_a_unit(self):
        """Those of the three whose mean is left."""
        report = self.audited(lambda coefs, intercepts: coefs[1].__setitem__(3, [0.1, 0.2, -0.4] + coefs[1][3]))
        assert {(d.layer, d.row) for d in report.differences} == {(1, 3)} and len(report.differences) == 2


def test_the_report_is_made_of_plain_numbers():
    network, X, _ = random_network(0, "tanh", (5, 8, 2))

    def change(weights, biases):
        biases[0][1] += 1e-3

    report = verify_same(with_weights(network, change), network, X, random_state=0)
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["differences"][0]["name"] == "biases[0][1]" and told["same"] is False


def test_the_same_seed_asks_the_same():
    network, X, _ = random_network(0, "tanh", (5, 8, 2))
    queries = []
    for _ in range(2):
        verify_same(lambda X: (queries.append(X.copy()), network(X))[1], network, X, random_state=7)
    half = len(queries) // 2
    assert all(np.array_equal(a, b) for a, b in zip(queries[:half], queries[half:]))


class TestBadInput:
    network, X, _ = random_network(0, "tanh", (5, 8, 2))

    @pytest.mark.parametrize("before", [3, 4, 5])  # calls: rows of X, inputs chosen, queried again
    def test_a_box_that_drifts(self, before):
        calls = []

        def drifting(X):
            calls.append(len(X))
            return self.network(X) + 1e-6 * (len(calls) > before)

        with pytest.raises(BlackBoxError, match="changed while it was audited"):
            verify_same(drifting, self.network, self.X, random_state=0)

    def test_rows_of_another_width(self):
        with pytest.raises(ValueError, match="X has 4 features, but the network has 5 inputs"):
            verify_same(self.network, self.network, self.X[:, :4])

    def test_another_number_of_outputs(self):
        with pytest.raises(ValueError, match="gives 1 output"):
            verify_same(lambda X: self.network(X)[:, 0], self.network, self.X)

    def test_a_box_that_raises_or_answers_nan(self):
        with pytest.raises(BlackBoxError, match="raised ZeroDivisionError"):
            verify_same(lambda X: 1 / 0, self.network, self.X)
        with pytest.raises(BlackBoxError, match="not finite|NaN|nan"):
            verify_same(lambda X: np.full((len(X), 2), np.nan), self.network, self.X)

    @pytest.mark.parametrize("tol", [0, 0.0, -1.0, np.nan, np.inf])
    def test_refused_tolerances(self, tol):
        with pytest.raises(ValueError, match="tol must be positive and finite, got"):
            verify_same(self.network, self.network, self.X, tol=tol)
        with pytest.raises(ValueError, match="tol"):
            NetworkVerifier(self.network, network=self.network, tol=tol).fit(self.X)

    def test_swapped_arguments(self):
        for known in (self.network, self.network.to_torch()):
            with pytest.raises(TypeError, match=r"swapped. Call verify_same\(black_box, network, X\)"):
                verify_same(known, lambda X: self.network(X), self.X)

    def test_no_known_weights(self):
        with pytest.raises(TypeError, match="must have known weights"):
            verify_same(self.network, lambda X: X, self.X)

    def test_too_few_queries(self):
        with pytest.raises(ValueError, match="max_queries must be at least 16"):
            verify_same(self.network, self.network, self.X, max_queries=3)

    def test_budgets_hold(self):
        for most in (16, 30, 100):
            assert verify_same(self.network, self.network, self.X, max_queries=most).n_queries <= most


class TestVerifier:
    def test_an_estimator_is_fitted_and_compared_with_what_it_shows(self):
        rng = np.random.RandomState(0)
        X = rng.standard_normal((80, 3))
        verifier = NetworkVerifier(random_state=0).fit(X, X[:, 0] ** 2)
        assert verifier.same_ is True and verifier.differences_ == []
        assert verifier.n_queries_ == verifier.report_.n_queries

    def test_a_frozen_model_against_a_file(self, tmp_path):
        rng = np.random.RandomState(0)
        X = rng.standard_normal((80, 3))
        mlp = MLPRegressor(hidden_layer_sizes=(7,), activation="tanh", tol=1e-2, max_iter=1000, random_state=0)
        mlp.fit(X, X[:, 0] ** 2)
        FeedforwardNetwork.from_sklearn(mlp).save(tmp_path / "known.safetensors")
        known = FeedforwardNetwork.load(tmp_path / "known.safetensors")
        assert NetworkVerifier(FrozenEstimator(mlp), network=known, random_state=0).fit(X).same_ is True
        mlp.coefs_[1][4, 0] *= 1.001
        verifier = NetworkVerifier(FrozenEstimator(mlp), network=known, random_state=0).fit(X)
        assert [d.name for d in verifier.differences_] == ["weights[1][4, 0]"]
        assert verifier.differences_[0].found == pytest.approx(mlp.coefs_[1][4, 0], rel=1e-9)
