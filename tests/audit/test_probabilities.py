"""Audits of classifiers: float32 sigmoids, probabilities in all shapes, a missing softmax."""

import copy
import warnings

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.neural_network import MLPClassifier

from skident import verify_same
from skident.audit.links import CENTERED_LOGITS, Probabilities, logits_within
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError, probabilities_from_logits

SEEDS = range(5)


def network_of(seed, n_outputs=1, deviation=None):
    """Logits of a float32 network, of standard deviation 1 to 16."""
    rng = np.random.RandomState(seed)
    D, m, X = 3 + seed % 5, 4 + 2 * seed, rng.standard_normal((300, 3 + seed % 5))
    weights = [rng.standard_normal((D, m)) / np.sqrt(D), rng.standard_normal((m, n_outputs))]
    network = FeedforwardNetwork(
        weights, [0.3 * rng.standard_normal(m), np.zeros(n_outputs)], ("tanh", "relu")[seed % 2]
    )
    weights[1] = weights[1] * (2.0 ** (seed % 5) if deviation is None else deviation) / network(X).std()
    biases = [network.biases[0], -network.with_parameters(weights, network.biases)(X).mean(axis=0)]
    arrays = ([a.astype(np.float32) for a in part] for part in (weights, biases))
    return network.with_parameters(*arrays), X, rng


def changed(network, rng, factor=1.01):
    """One of the larger weights of the last layer times a factor."""
    weights = [np.array(W) for W in network.weights]
    row = np.argmax(np.abs(weights[1][:, 0]) * (rng.uniform(size=len(weights[1])) < 0.7))
    weights[1][row, 0] *= factor
    return network.with_parameters(weights, network.biases)


def by_torch(network):
    module = network.to_torch(torch.float32)

    def outputs(X):
        with torch.no_grad():
            Z = module(torch.as_tensor(X, dtype=torch.float32))
            return (torch.sigmoid(Z) if Z.shape[1] == 1 else torch.softmax(Z, dim=1)).numpy()

    return outputs


def half_plus(network):
    """As onnxruntime does: small probabilities are multiples of 2^-25, and wrong by some of them."""

    def outputs(X):
        r = (expit(network(X)) - 0.5).astype(np.float32) * np.float32(1.0 - 2.0**-23)
        return np.float32(0.5) + r - np.float32(2.0**-25)

    return outputs


class TestSinglePrecision:
    @pytest.mark.parametrize("runtime", [by_torch, half_plus])
    def test_sigmoids(self, runtime):
        """Some of `half_plus` are negative."""
        for seed in SEEDS:
            network, X, rng = network_of(seed)
            for method in ("auto", "predict_proba"):
                report = verify_same(runtime(network), network, X, response_method=method, random_state=seed)
                assert report.same is True and report.kind == "float32", (seed, report.excess)
                other = changed(network, rng)
                report = verify_same(runtime(other), network, X, response_method=method, random_state=seed)
                assert report.same is False, seed

    def test_files_of_onnxruntime_with_a_sigmoid(self, tmp_path):
        pytest.importorskip("onnxruntime")
        for seed in SEEDS:
            logits, X, rng = network_of(seed)
            for name, network in (("same", logits), ("changed", changed(logits, rng))):
                ends = FeedforwardNetwork(network.weights, network.biases, network.activation, "sigmoid")
                ends.to_onnx(tmp_path / f"{name}.onnx", dtype="float32")
            for reference in (logits, ends.with_parameters(logits.weights, logits.biases)):
                assert verify_same(tmp_path / "same.onnx", reference, X, random_state=seed).same is True
                assert verify_same(tmp_path / "changed.onnx", reference, X, random_state=seed).same is False

    def test_hidden_sigmoids_far_below_zero(self, tmp_path):
        pytest.importorskip("onnxruntime")
        rng = np.random.RandomState(0)
        weights = [4.0 * rng.standard_normal((4, 8)), 1e3 * rng.standard_normal((8, 2))]
        network = FeedforwardNetwork(weights, [-17.0 * np.ones(8), np.zeros(2)], "sigmoid")
        network.to_onnx(tmp_path / "model.onnx", dtype="float32")
        report = verify_same(tmp_path / "model.onnx", network, rng.standard_normal((200, 4)), random_state=0)
        assert report.same is True

    def test_a_classifier_that_is_always_certain_is_undecided(self):
        network, X, _ = network_of(1)
        certain = network.with_parameters(network.weights, [network.biases[0], network.biases[1] + 60.0])
        assert verify_same(by_torch(certain), certain, X, random_state=0).same is None
        uncertain = network.with_parameters(network.weights, [network.biases[0], network.biases[1] * 0])
        assert verify_same(by_torch(certain), uncertain, X, random_state=0).same is False


@pytest.fixture(scope="module", params=[(2, "relu"), (2, "tanh"), (3, "relu"), (3, "tanh")])
def classifier(request):
    n_classes, activation = request.param
    X = np.random.RandomState(n_classes).standard_normal((200, 4))
    y = np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [0.0] if n_classes == 2 else [-0.5, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MLPClassifier((6,), activation=activation, max_iter=100, random_state=0).fit(X, y), X


class TestProbabilities:
    def test_of_the_same_and_of_a_changed_classifier(self, classifier):
        model, X = classifier
        other = copy.deepcopy(model)
        other.coefs_[1][np.unravel_index(np.argmax(np.abs(other.coefs_[1])), other.coefs_[1].shape)] *= 1.01
        logits = FeedforwardNetwork.from_sklearn(model)
        for reference in (model, logits, logits.to_torch(torch.float64)):
            for method in ("auto", "predict_proba"):
                options = {"response_method": method, "random_state": 0}
                for box, same in ((model, True), (other, False)):
                    assert verify_same(box.predict_proba, reference, X, **options).same is same
                    single = by_torch(FeedforwardNetwork.from_sklearn(box))
                    assert verify_same(single, reference, X, **options).same is same
        assert verify_same(other, model, X, random_state=0).differences

    def test_two_logits_against_one_column(self, classifier):
        model, X = classifier
        if model.n_outputs_ == 1:
            network = FeedforwardNetwork.from_sklearn(model)
            W, b = network.weights[-1], network.biases[-1]
            two = network.with_parameters(
                [*network.weights[:-1], np.hstack([-0.5 * W, 0.5 * W])],
                [*network.biases[:-1], np.hstack([-0.5 * b, 0.5 * b])],
            )
            second = lambda X: model.predict_proba(X)[:, 1]  # noqa: E731
            for box in (second, model.predict_proba):
                assert verify_same(box, two, X, random_state=0).same is True

    def test_a_missing_softmax_is_named(self, classifier):
        model, X = classifier
        logits = FeedforwardNetwork.from_sklearn(model)
        report = verify_same(lambda X: logits(X), model, X, random_state=0)
        assert report.same is False and "cause: the softmax (or sigmoid) is missing" in str(report)
        options = {"response_method": "predict_proba", "random_state": 0}
        causes = verify_same(lambda X: logits(X), logits, X, **options).causes
        assert [cause.kind for cause in causes] == ["missing softmax"]
        assert verify_same(lambda X: logits(X), logits, X, random_state=0).same is True

    def test_a_missing_softmax_beside_a_file_that_has_it(self, classifier, tmp_path):
        convert, onnx = pytest.importorskip("skl2onnx").to_onnx, pytest.importorskip("onnx")
        model, X = classifier
        onnx.save(convert(model, X[:1].astype(np.float32), options={"zipmap": False}), tmp_path / "model.onnx")
        logits = FeedforwardNetwork.from_sklearn(model)
        assert verify_same(model.predict_proba, tmp_path / "model.onnx", X, random_state=0).same is True
        causes = verify_same(lambda X: logits(X), tmp_path / "model.onnx", X, random_state=0).causes
        assert [cause.kind for cause in causes] == ["missing softmax"]
        assert verify_same(tmp_path / "model.onnx", model, X, random_state=0).same is True

    def test_that_do_not_sum_to_one(self, classifier):
        model, X = classifier
        with pytest.raises(BlackBoxError, match="probabilities of the . classes sum to"):
            verify_same(lambda X: model.predict_proba(X) * np.linspace(0.8, 1.0, len(model.classes_)), model, X)

    def test_outputs_that_are_neither(self, classifier):
        model, X = classifier
        many = lambda X: 100.0 + X[:, :1] * np.ones(model.n_outputs_)  # noqa: E731
        with pytest.raises(BlackBoxError, match="expects probabilities, but outputs range from"):
            verify_same(many, model, X)


def test_regressors_with_outputs_between_0_and_1_stay_regressors():
    for seed in SEEDS:
        network, X, rng = network_of(seed, deviation=0.1)
        inside = network.with_parameters(network.weights, [network.biases[0], network.biases[1] + 0.5])
        assert verify_same(lambda X, f=inside: f(X), inside, X, random_state=seed).same is True
        other = changed(inside, rng)
        assert verify_same(lambda X, f=other: f(X), inside, X, random_state=seed).same is False


@pytest.mark.parametrize("n_logits", [1, 2, 4])
def test_slopes_of_probabilities(n_logits):
    rng = np.random.RandomState(n_logits)
    Z, S = rng.standard_normal((20, n_logits)), rng.standard_normal((20, n_logits, 3))
    link, step = Probabilities(max(2, n_logits)), 1e-6
    slopes = link.slopes(Z, S)
    for k in range(3):
        gap = link.values(Z + step * S[:, :, k]) - link.values(Z - step * S[:, :, k])
        assert np.allclose(gap / (2.0 * step), slopes[:, :, k], atol=1e-9)


@pytest.mark.parametrize("n_logits", [1, 2, 4])
def test_logits_within_a_tolerance(n_logits):
    rng = np.random.RandomState(n_logits)
    Z = 3.0 * rng.standard_normal((500, n_logits))
    P, tolerance = probabilities_from_logits(Z), 1e-3
    found, error = logits_within(P + tolerance * rng.uniform(-1, 1, P.shape), np.full(P.shape, tolerance), n_logits)
    known = Z if n_logits == 1 else CENTERED_LOGITS.values(Z)
    assert np.all(np.abs(found - known) <= 1.5 * error)  # to second order, up to half of a probability
