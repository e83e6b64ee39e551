"""Identification from labels alone: one and two hidden ReLU layers, linear classifiers, models that are refused."""

import time
import warnings
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.piecewise.boundary import engine
from skident.identification.piecewise.boundary.facets import Facet
from skident.identification.piecewise.boundary.growth import _places
from skident.identification.piecewise.boundary.logits import Logits
from skident.identification.piecewise.boundary.points import bisect
from skident.identification.piecewise.boundary.surfaces import Surface
from skident.identification.piecewise.boundary.units import Units
from skident.oracle import NotIdentified


def _planted(seed, D=6, m=3):
    """Logits of a network whose boundary passes the center."""
    rng = np.random.default_rng(seed)
    W, b, v = rng.standard_normal((m, D)) / np.sqrt(D), 0.5 * rng.standard_normal(m), rng.standard_normal(m)
    X = rng.standard_normal((2000, D))
    shift = np.median(np.maximum(X @ W.T + b, 0) @ v)
    return (W, b), X[:100], lambda X: np.maximum(X @ W.T + b, 0) @ v - shift


def _leaky(seed, slope, D=6, m=4):
    """Labels of a network with one hidden layer of leaky ReLU units, and samples."""
    rng = np.random.default_rng(seed)
    W, b, v = rng.standard_normal((m, D)) / np.sqrt(D), 0.5 * rng.standard_normal(m), rng.standard_normal(m)
    X = rng.standard_normal((2000, D))

    def logit(X):
        Z = X @ W.T + b
        return np.where(Z > 0, Z, slope * Z) @ v

    threshold = np.median(logit(X))
    return lambda X: (logit(X) > threshold).astype(int), X[:100]


def _identify(model, X, **options):
    return NetworkIdentifier(model, response_method="labels", random_state=0, **options).fit(X)


@pytest.mark.parametrize("names", [("no", "yes"), (-5, 3), (False, True)], ids=["text", "negative", "boolean"])
def test_hyperplanes_and_labels_of_a_planted_network(names):
    (W, b), X, logit = _planted(1)

    def model(X):
        return np.array(names)[(logit(X) > 0).astype(int)]

    found = _identify(model, X)
    assert found.report_.exact
    true = np.column_stack([W, b]) / np.linalg.norm(W, axis=1)[:, None]
    network = found.network_
    planes = np.column_stack([network.weights[0].T, network.biases[0]])
    planes /= np.linalg.norm(planes[:, :-1], axis=1)[:, None]
    apart = [min(np.abs(planes - t).max(axis=1).min(), np.abs(planes + t).max(axis=1).min()) for t in true]
    assert max(apart) < 1e-10
    np.testing.assert_array_equal(found.classes_, sorted(names))
    np.testing.assert_array_equal(found.predict(3 * X), model(3 * X))
    assert np.corrcoef(found.decision_function(X), logit(X))[0, 1] > 1 - 1e-12


@pytest.mark.parametrize(("D", "seed"), [(6, 3), (10, 1), (10, 2)])
def test_two_units_each_of_which_bends_the_boundary_once(D, seed):
    """Three facets have dependent normals; boundary points alone would leave a linear part undetermined."""
    (W, b), X, logit = _planted(seed, D, 2)
    found = _identify(lambda X: (logit(X) > 0).astype(int), X)
    assert found.report_.exact
    assert found.layer_widths_ == (2, 1)
    planes = np.column_stack([found.network_.weights[0].T, found.network_.biases[0]])
    planes, true = (H / np.linalg.norm(H[:, :-1], axis=1)[:, None] for H in (planes, np.column_stack([W, b])))
    assert max(np.abs(planes - t).max(axis=1).min() for t in true) < 1e-10


def test_a_scale_is_confirmed_at_another_point_than_it_was_measured_at():
    """Also where a known hyperplane lies so near the bend that both steps beyond it are cut short."""
    bend = np.array([1.0, 0.5, 0.0, 0.0]) / np.hypot(1.0, 0.5)
    units = Units(3)
    units.append(np.array([0.0, 1.0, 0.0, -0.05]))
    surface = Surface(Facet(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), (1, 0)), units)
    surface.coef[0] = 0.2
    places = _places(surface, surface.plane, Facet(np.array([-0.05, 0.1, 0.0]), bend, (1, 0)), np.ones(1))
    (first, _, _), (second, _, _) = places
    assert np.linalg.norm(first - second) > 0.01


@pytest.mark.parametrize("seed", range(3))
def test_units_that_few_points_determine_are_accurate_once_these_overdetermine_them(seed):
    """Errors of 3e-8 fall to rounding by one fit."""
    rng = np.random.default_rng(seed)
    (W, b), _, logit = _planted(seed)
    norms, far = np.linalg.norm(W, axis=1), 3 * rng.standard_normal((2000, 6))
    H = np.column_stack([W, b]) / norms[:, None]
    low, high = far[logit(far) < 0][:300], far[logit(far) > 0][:300]
    n = min(len(low), len(high))
    t, _, _ = bisect(lambda X: (logit(X) > 0).astype(int), low[:n], high[:n] - low[:n], 0.0, 1.0, 0)
    X = low[:n] + t[:, None] * (high[:n] - low[:n])
    units = Units(6)
    for h in H + 3e-8 * rng.standard_normal(H.shape):
        units.append(h / np.linalg.norm(h[:-1]))
    values = np.column_stack([np.abs(X @ H[:, :-1].T + H[:, -1]), X, np.ones(n)])
    column = np.linalg.svd(values)[2][-1]
    surface = Surface(Facet(X[0], column[3:], (1, 0)), units)
    surface.coef[:] = column[:3]
    surface.refine(X)
    assert np.abs(units.hyperplanes - H).max() < 1e-12


@pytest.mark.parametrize("slope", [0.01, 0.3])
def test_the_slope_of_leaky_relu_units(slope):
    model, X = _leaky(0, slope)
    found = _identify(model, X)
    assert found.report_.exact
    assert found.layer_widths_ == (4, 1)
    assert found.network_.activations[0].negative_slope == pytest.approx(slope, abs=1e-9)
    np.testing.assert_array_equal(found.predict(3 * X), model(3 * X))


def test_a_ghost_beside_a_unit_is_left_out(monkeypatch):
    """A unit that is recovered twice, 2e-6 apart, would be exact with one unit too many."""
    (W, b), X, logit = _planted(1)
    hypothesis, ghosts = engine._hypothesis, []

    def with_ghost(search):
        logits = hypothesis(search)
        H, m = logits.hyperplanes, len(logits.hyperplanes)
        if not m:
            return logits
        ghost = H[0] + 2e-6 * np.random.default_rng(0).standard_normal(H.shape[1])
        ghosts.append(ghost / np.linalg.norm(ghost[:-1]))
        coef = np.insert(logits.coef, m, 2e-5 * logits.coef[0], axis=0)
        return Logits(np.vstack([H, ghosts[-1]]), coef)

    monkeypatch.setattr(engine, "_hypothesis", with_ghost)
    found = _identify(lambda X: (logit(X) > 0).astype(int), X)
    assert ghosts
    assert found.report_.exact
    assert found.layer_widths_ == (3, 1)


def test_time_that_ends_within_a_search_names_the_units_recovered(own_seconds):
    (W, b), X, logit = _planted(1, D=40, m=12)
    calls = []

    def model(X):
        calls.append(len(X))
        if sum(calls) > 15_000:
            time.sleep(0.3)
        return (logit(X) > 0).astype(int)

    with pytest.raises(ValueError, match=r"max_seconds=\S+ .* after \d+ units and \d+ queries"):
        _identify(model, X, max_seconds=3)


def test_a_class_that_only_ties_is_no_class():
    _, X, logit = _planted(1)
    found = _identify(lambda X: np.argmax(np.column_stack([0 * logit(X), logit(X), logit(X)]), axis=1), X)
    assert found.report_.exact
    np.testing.assert_array_equal(found.classes_, [0, 1])


def test_rounded_logits_that_tie_are_not_exact_with_a_wrong_label():
    """Rounding moves the boundary of two classes by half a step: an exact network has it there."""
    _, X, logit = _planted(1)
    found = _identify(lambda X: (np.round(logit(X), 1) > 0).astype(int), X)
    assert found.report_.exact
    np.testing.assert_array_equal(found.predict(3 * X), (np.round(logit(3 * X), 1) > 0).astype(int))


def test_linear_classifiers_have_no_units():
    X = np.random.default_rng(0).standard_normal((150, 4))
    y = np.argmax(X[:, :3] + 0.3 * X[:, 1:], axis=1)
    model = LogisticRegression().fit(X, y)
    found = _identify(FrozenEstimator(model), X)
    assert found.layer_widths_ == (3,)
    np.testing.assert_array_equal(found.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (DecisionTreeClassifier(max_depth=4, random_state=0), "axis-parallel"),
        (RandomForestClassifier(10, random_state=0), "axis-parallel"),
        (SVC(gamma=0.5), "curved"),
    ],
    ids=["tree", "forest", "kernel"],
)
def test_other_models_are_refused(model, match):
    _, X, logit = _planted(2, D=4)
    with pytest.raises(NotIdentified, match=match):
        _identify(FrozenEstimator(model.fit(X, logit(X) > 0)), X)


@pytest.mark.slow
def test_nearest_neighbors_are_refused():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    with pytest.raises(NotIdentified, match="nearest neighbors"):
        _identify(KNeighborsClassifier(1).fit(X, y).predict, X)


def _deep(seed, widths=(10, 8, 6)):
    """Labels of a network with two hidden layers whose boundary passes the center, samples, its first layer."""
    rng = np.random.default_rng(seed)
    W = [rng.standard_normal((m, n)) * np.sqrt(2 / n) for n, m in pairwise((*widths, 1))]
    b = [0.5 * rng.standard_normal(m) for m in widths[1:]]

    def logit(X):
        return np.maximum(np.maximum(X @ W[0].T + b[0], 0) @ W[1].T + b[1], 0) @ W[2][0]

    X = rng.standard_normal((2000, widths[0]))
    threshold = np.median(logit(X))
    return lambda X: logit(X) > threshold, X[:200], np.column_stack([W[0], b[0]])


@pytest.mark.parametrize(("n", "least"), [(1, 1), pytest.param(3, 2, marks=pytest.mark.slow)])
def test_two_hidden_layers(n, least):
    """Most networks; none is exact with a wrong first layer or a wrong label."""
    exact = 0
    for seed in range(n):
        model, X, true = _deep(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = _identify(model, X)
        if found.report_.exact:
            exact += 1
            assert len(found.layer_widths_) == 3
            F = 3 * np.random.default_rng(1).standard_normal((20_000, 10))
            np.testing.assert_array_equal(found.predict(F), model(F))
            planes = np.column_stack([found.network_.weights[0].T, found.network_.biases[0]])
            planes, true = (H / np.linalg.norm(H[:, :-1], axis=1)[:, None] for H in (planes, true))
            assert max(np.abs(planes - t).max(axis=1).min() for t in true) < 1e-9
    assert exact >= least


def test_three_classes_that_meet():
    """Paths end where a third class appears: no bend is counted there."""
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MLPClassifier((10,), random_state=0).fit(X, y)
    found = _identify(model.predict, X)
    assert found.report_.exact
    assert found.report_.class_pairs == [(0, 1), (0, 2), (1, 2)]
    np.testing.assert_array_equal(found.predict(3 * X), model.predict(3 * X))


def _one_sided(seed):
    """Labels of three classes, of which the last one's boundary lies on one side of two of four units; samples."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    W, b = np.column_stack([Q[0], Q[0], Q[1] + 0.4 * Q[2], Q[2] - 0.5 * Q[3]]), np.array([1.0, -0.8, 0.2, 0.3])
    V = np.array([[0.0, 0.9, 0.0], [0.0, -2.0, 4.0], [0.0, 1.3, 0.0], [0.0, -1.1, 0.0]])

    def model(X):  # the last class is ahead of the first one beyond Q[0] @ x = 1.05 only
        return np.argmax(np.maximum(X @ W + b, 0) @ V + [0.0, -0.8, -1.0], axis=1)

    return model, 0.5 + rng.standard_normal((300, 5)) * [1.2, 0.9, 1.5, 1.2, 0.9]


def _beside_boundary(model, X, n, rng):
    """Inputs on both sides of the boundary, 1e-9 apart."""
    P, Q = np.split(X.mean(axis=0) + 2 * X.std(axis=0) * rng.standard_normal((2 * n, X.shape[1])), 2)
    P, Q = (A[model(P) != model(Q)] for A in (P, Q))
    below = model(P)
    for _ in range(34):
        middle = (P + Q) / 2
        same = (model(middle) == below)[:, None]
        P, Q = np.where(same, middle, P), np.where(same, Q, middle)
    return P, Q


def test_the_basis_of_undetermined_coefficients():
    """No label changes along it, others change along other directions, and it is complete, for most networks."""
    agree = 0
    for seed in range(3):
        model, X = _one_sided(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                found = _identify(model, X)
            except NotIdentified:
                continue
        assert not found.report_.exact
        if found.report_.agrees:
            agree += 1
            _check_basis(found, model, X, np.random.default_rng(seed))
    assert agree >= 2


def _check_basis(found, model, X, rng):
    basis, network = found.report_.undetermined, found.network_
    P, Q = _beside_boundary(model, X, 8000, rng)
    m, (W, b) = basis.shape[1] - X.shape[1] - 1, (network.weights[0], network.biases[0])

    def features(X):
        return np.column_stack([np.abs(X @ W + b)[:, :m], X, np.ones(len(X))])

    def changed(direction):
        step = 1e-5 * direction / np.linalg.norm(direction)  # far along it, another class may become the first one
        return np.mean(np.argmax(found.decision_function(B) + features(B) @ step, axis=1) != model(B))

    B = np.vstack([P, Q])
    B = B[np.argmax(found.decision_function(B), axis=1) == model(B)]
    assert len(B) > 1.9 * len(P)
    for direction in basis:
        assert changed(direction) < 0.01 and changed(-direction) < 0.01
    assert changed(rng.standard_normal(basis.shape[1:])) > 0.1

    F, pairs, rows = features((P + Q) / 2), np.column_stack([model(P), model(Q)]), np.arange(len(P))
    M = np.zeros((len(P), 3, F.shape[1]))
    M[rows, pairs[:, 0]], M[rows, pairs[:, 1]] = F, -F
    s = np.linalg.svd(M[:, 1:].reshape(len(P), -1), compute_uv=False)
    assert np.sum(s < 1e-6 * s[0]) == len(basis) + 1  # the coefficients themselves
    flat = (basis - basis[:, :, :1])[:, :, 1:].transpose(0, 2, 1).reshape(len(basis), -1)
    assert np.linalg.matrix_rank(flat, tol=1e-6) == len(basis)


def test_a_model_that_abstains_has_one_more_class():
    _, X, logit = _planted(4)
    found = _identify(lambda X: np.where(np.abs(logit(X)) < 0.2, -1, (logit(X) > 0).astype(int)), X)
    assert found.report_.agrees
    np.testing.assert_array_equal(found.classes_, [-1, 0, 1])


def test_a_boundary_outside_the_input_range():
    _, X, logit = _planted(4)
    with pytest.raises(NotIdentified, match="no decision boundary is within reach"):
        _identify(lambda X: X[:, 0] > 100.0, X, input_range=(-3.0, 3.0))


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (lambda X: np.zeros(len(X)), "the label is 0.0 at all"),
        (lambda X: 1 / (1 + np.exp(-X[:, 0])), "no class labels but values"),
        (lambda X: np.column_stack([X[:, 0], -X[:, 0]]), "one label per input"),
        (lambda X: (X[:, 0] > X[:, 0].mean()).astype(int), "depend on the batch"),
    ],
    ids=["one class", "probabilities", "columns", "batch"],
)
def test_bad_labels(model, match):
    X = np.random.default_rng(0).standard_normal((60, 3))
    with pytest.raises(ValueError, match=match):
        _identify(model, X)


@pytest.mark.parametrize("seed", range(2))
def test_a_model_that_lies_at_random_is_never_exact(seed, own_seconds):
    """One label of 1,000 is wrong: some 20 of those queried; those off the boundary contradict the network."""
    network = make_network(
        (6, 4, 1), activation="relu", output_activation="identity", random_state=seed, bias_scale=0.3
    )
    X, rng = np.random.RandomState(0).standard_normal((300, 6)), np.random.RandomState(seed)
    threshold = np.median(network(X))

    def model(U):
        labels = network(U).ravel() > threshold
        return np.where(rng.random_sample(len(labels)) < 1e-3, ~labels, labels)

    identifier = NetworkIdentifier(model, response_method="labels", random_state=0, max_seconds=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            identifier.fit(X)
        except ValueError:
            return
    assert not identifier.report_.exact and not identifier.report_.agrees
