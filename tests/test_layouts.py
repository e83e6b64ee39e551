"""The layout of X and y in memory changes no bit of what an estimator learns or predicts."""

import warnings

import numpy as np
import pandas
import pytest
from sklearn.exceptions import DataConversionWarning
from sklearn.neural_network import MLPRegressor

import skident
from skident import (
    EntangledWeightExtractor,
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    IdentifierOptions,
    NetworkCompletion,
    NetworkCompressor,
    NetworkIdentifier,
    NetworkVerifier,
    PassiveNetworkIdentifier,
    QuadraticNetClassifier,
    QuadraticNetRegressor,
    SaddleEscapeAnalyzer,
    SaddleToSaddleClassifier,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
)
from skident.datasets import make_network

NETWORK = make_network((5, 3, 2), output_activation="identity", random_state=1)
KNOWN = make_network((5, 3, 2), output_activation="identity", random_state=2)
W, B = NETWORK.weights[0], NETWORK.biases[0]
FEW = {"max_iter": 20, "record_every": 20}


def box(Z):
    """A model whose bits depend on the layout of its inputs, as those of most do."""
    return np.tanh(np.asarray(Z) @ W + B) @ NETWORK.weights[1] + NETWORK.biases[1]


# Estimator, and whether its targets are one number, a row of two, or labels.
ESTIMATORS = {
    "identifier": (NetworkIdentifier(box, layer_widths=(3, 2), activation="tanh", random_state=0), "rows"),
    "identifier, relu": (
        NetworkIdentifier(lambda Z: np.maximum(np.asarray(Z) @ W + B, 0) @ NETWORK.weights[1], random_state=0),
        "rows",
    ),
    "identifier, trained": (
        NetworkIdentifier(
            MLPRegressor(hidden_layer_sizes=(2,), activation="tanh", solver="lbfgs", max_iter=30, random_state=0),
            options=IdentifierOptions(n_starts=1),
            random_state=0,
        ),
        "rows",
    ),
    "extractor": (EntangledWeightExtractor(box, layer_widths=(3, 2), random_state=0), "rows"),
    "completion": (NetworkCompletion(max_iter=20, random_state=0), "rows"),
    "compressor": (NetworkCompressor(NETWORK, tol=0.3, max_iter=5, random_state=0), "rows"),
    "verifier": (NetworkVerifier(box, network=KNOWN, max_queries=40, random_state=0), "rows"),
    "passive": (PassiveNetworkIdentifier((2, 2), n_starts=1, random_state=0), "rows"),
    "tensor": (TensorReLURegressor(2, n_candidates=1, random_state=0), "numbers"),
    "hierarchical": (HierarchicalQuadraticNet(widths=(2,), max_iter=5, random_state=0), "rows"),
    "hierarchical, auto": (HierarchicalQuadraticNet(max_iter=5, random_state=0), "numbers"),
    "hierarchical, adam": (HierarchicalQuadraticNet(widths=(2,), solver="adam", max_iter=3, random_state=0), "rows"),
    "hierarchical, labels": (HierarchicalQuadraticNetClassifier(widths=(2,), max_iter=5, random_state=0), "labels"),
    "quadratic": (QuadraticNetRegressor(random_state=0), "rows"),
    "quadratic, labels": (QuadraticNetClassifier(random_state=0), "labels"),
    "escape": (SaddleEscapeAnalyzer(n_starts=1, max_iter=20, random_state=0), "rows"),
    "saddle": (SaddleToSaddleRegressor(width=10, random_state=0, **FEW), "rows"),
    "saddle, labels": (SaddleToSaddleClassifier(width=10, random_state=0, **FEW), "labels"),
}
X = np.random.RandomState(0).standard_normal((80, 5)) @ np.random.RandomState(1).standard_normal((5, 5))
Y = box(X) + 0.01 * np.random.RandomState(2).standard_normal((80, 2))
TARGETS = {"rows": Y, "numbers": Y[:, 0], "labels": np.digitize(Y[:, 0], [-0.5, 0.5])}


def strided(A):
    """The same numbers in every third entry of a larger array."""
    wide = np.zeros((3 * len(A), *A.shape[1:]), dtype=A.dtype)
    wide[::3] = A
    return wide[::3]


LAYOUTS = {
    "F order": np.asfortranarray,
    "strided": lambda A: strided(np.asfortranarray(A)),
    "DataFrame": lambda A: (
        pandas.DataFrame(A, columns=list("abcdefg")[: A.shape[1]]) if A.ndim == 2 else pandas.Series(A)
    ),
    "list": lambda A: A.tolist(),
}


def bits(estimator, X, y):
    """All numbers that a fitted estimator has learned and returns for X, as bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, y)
        returned = [
            getattr(estimator, name)(X)
            for name in ("predict", "predict_proba", "decision_function", "transform")
            if hasattr(estimator, name)
        ]
    learned = [getattr(estimator, name, None) for name in ("network_", "components_", "directions_", "report_")]
    arrays = [np.asarray(A) for A in returned]
    for part in learned:
        if hasattr(part, "weights"):
            arrays += [*part.weights, *part.biases]
        elif isinstance(part, np.ndarray):
            arrays.append(part)
        elif hasattr(part, "excesses"):
            arrays += [part.excesses, np.asarray(part.largest)]
    assert arrays
    return [A.tobytes() for A in arrays]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_layouts_give_the_same_bits(name):
    estimator, kind = ESTIMATORS[name]
    # y of a model that is not trained plays no part.
    expected, different = bits(estimator, X, TARGETS[kind]), []
    for layout, laid in LAYOUTS.items():
        if bits(estimator, laid(X), laid(TARGETS[kind])) != expected:
            different.append(layout)
    assert different == []


def test_every_estimator_is_covered():
    public = {getattr(skident, name) for name in skident.__all__}
    estimators = {value for value in public if isinstance(value, type) and hasattr(value, "fit")}
    assert estimators == {type(estimator) for estimator, _ in ESTIMATORS.values()}


def test_one_column_or_row():
    """Strides of an axis of length one are any numbers; they reach BLAS."""
    one = np.asfortranarray(np.random.RandomState(0).standard_normal((50, 6)))[:, 2:3]
    model = QuadraticNetRegressor(random_state=0)
    assert bits(model, one, one[:, 0]) == bits(model, one.copy(), one[:, 0].copy())


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name.startswith(("hierarchical", "saddle"))])
def test_the_order_of_rows_changes_no_bit(name):
    """Splits and batches are drawn from sorted rows; rows that are equal are the same in any order."""
    estimator, kind = ESTIMATORS[name]
    rows, targets = np.vstack([X, X[:10]]), np.concatenate([TARGETS[kind], TARGETS[kind][:10][::-1]])
    targets = np.array(["low", "middle", "high"])[targets] if kind == "labels" else targets
    order = np.random.RandomState(0).permutation(len(rows))
    expected = bits(estimator, rows, targets)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(rows[order], targets[order])
    assert estimator.predict(rows).tobytes() == expected


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_column_of_targets_is_a_vector_to_the_tensor_method():
    model = TensorReLURegressor(1, n_candidates=1, random_state=0)
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        column = model.fit(X, Y[:, :1]).predict(X)
    assert np.array_equal(column, model.fit(X, Y[:, 0]).predict(X)) and column.shape == (80,)
