"""Fitted estimators that would be trained again: a warning with targets, an error without."""

import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skident import EntangledWeightExtractor, NetworkCompressor, NetworkIdentifier, NetworkVerifier
from skident.datasets import make_network
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle
from skident.oracle.black_box import known_network, resolve_black_box

# -- fitted estimators -------------------------------------------------------------------------------------------------


X = np.random.RandomState(0).standard_normal((30, 2))
Y = X @ [1.0, -2.0]
LABELS = (Y > 0).astype(int)

FITTED = [LinearRegression().fit(X, Y), make_pipeline(StandardScaler(), LinearRegression()).fit(X, Y)]


@pytest.mark.parametrize("estimator", FITTED)
def test_a_second_training_is_warned_of(estimator):
    with pytest.warns(UserWarning, match=r"is fitted already, .* leave out y, or pass FrozenEstimator\(regressor\)\."):
        box = resolve_black_box(estimator, X, 2 * Y, 0)
    np.testing.assert_allclose(box.predict(X), 2 * Y)  # trained again, as was said


def test_a_fitted_classifier():
    classifier = LogisticRegression().fit(X, LABELS)
    with pytest.warns(UserWarning, match=r"LogisticRegression is fitted .* pass FrozenEstimator\(classifier\)\."):
        resolve_black_box(classifier, X, LABELS, 0, classifiers=True)


@pytest.mark.parametrize("estimator", [None, clone(FITTED[0]), clone(FITTED[1]), FrozenEstimator(FITTED[0])])
def test_nothing_is_warned_of_otherwise(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve_black_box(estimator, X, Y, 0)


def test_an_unfitted_estimator_without_targets():
    with pytest.raises(ValueError, match=r"LinearRegression is not fitted and y is None: requires y to be passed"):
        resolve_black_box(LinearRegression(), X, None, 0)


FITTED_MLP = MLPRegressor(hidden_layer_sizes=(2,), activation="tanh", solver="lbfgs", max_iter=500, tol=1e-2)
FITTED_MLP = FITTED_MLP.set_params(random_state=0).fit(X, Y)
EVERY = [
    lambda model: NetworkIdentifier(model, random_state=0),
    lambda model: NetworkCompressor(model, tol=0.5, max_iter=2, random_state=0),
    lambda model: NetworkVerifier(model, random_state=0),
    lambda model: EntangledWeightExtractor(model, random_state=0),
]


@pytest.mark.parametrize("estimator", EVERY)
@pytest.mark.parametrize("wrap", [lambda model: model, FrozenEstimator])
def test_a_fitted_estimator_is_used_as_it_is_without_targets(estimator, wrap):
    """The first remedy of the warning that a fitted estimator is trained again, and its second one."""
    model = wrap(FITTED_MLP)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimator(model).fit(X).estimator_ is model


@pytest.mark.parametrize("estimator", EVERY)
def test_with_targets_a_fitted_estimator_is_trained_again(estimator):
    with pytest.warns(UserWarning, match="MLPRegressor is fitted already") as caught:
        fitted = estimator(FITTED_MLP).fit(X, Y)
    assert fitted.estimator_ is not FITTED_MLP
    assert estimator(FrozenEstimator(FITTED_MLP)).fit(X, Y).estimator_.estimator is FITTED_MLP
    assert caught[0].filename == __file__


@pytest.mark.parametrize("estimator", EVERY)
def test_what_the_message_for_missing_targets_recommends_runs(estimator):
    with pytest.raises(ValueError, match=r"Pass y, or a fitted regressor; .* as FrozenEstimator\(regressor\)"):
        estimator(clone(FITTED_MLP)).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator(clone(FITTED_MLP)).fit(X, Y)
    clone(estimator(FrozenEstimator(FITTED_MLP))).fit(X)


def test_a_model_that_scikit_learn_does_not_know_is_used_as_it_is():
    class Model:
        def fit(self, X, y):
            raise AssertionError

        def predict(self, X):
            return FITTED_MLP.predict(X)

    assert NetworkIdentifier(Model(), random_state=0).fit(X).report_.exact


# -- activations -------------------------------------------------------------------------------------------------------


def declaring(activation):
    return make_network((2, 3, 1), activation=activation, output_activation="identity", random_state=0)


DECLARING = {
    "torch": lambda network, path: network.to_torch(),
    "onnx": lambda network, path: network.to_onnx(path) and str(path),
    "network": lambda network, path: network,
    "sklearn": lambda network, path: network.to_sklearn(),
    "frozen": lambda network, path: FrozenEstimator(network.to_sklearn()),
}


@pytest.mark.parametrize("kind", DECLARING)
@pytest.mark.parametrize(("declared", "given"), [("tanh", "relu"), ("relu", "tanh"), ("sigmoid", "relu")])
def test_an_activation_that_contradicts_the_declared_one_is_named(kind, declared, given, tmp_path):
    model = DECLARING[kind](declaring(declared), tmp_path / "net.onnx")
    for estimator in (NetworkIdentifier, EntangledWeightExtractor):
        with pytest.raises(ValueError, match=rf"'{given}' contradicts the model: \w+ declares {declared}\. Leave out"):
            estimator(model, layer_widths=(3, 1), activation=given).fit(X)
    assert NetworkIdentifier(model, layer_widths=(3, 1), random_state=0).fit(X).report_.exact  # the remedy


def test_activations_whose_units_are_the_same_are_no_contradiction():
    model = declaring("sigmoid").to_torch()
    assert NetworkIdentifier(model, layer_widths=(3, 1), activation="tanh", random_state=0).fit(X).report_.exact


# -- onnx box ----------------------------------------------------------------------------------------------------------


NETWORK = make_network((4, 3, 2), bias_scale=0.5, output_activation="identity", random_state=0)
ROWS = np.random.RandomState(0).standard_normal((50, 4))


def session_of(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("kind", ["session", "path", "string"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_is_queried(dtype, kind, tmp_path):
    model = NETWORK.to_onnx(tmp_path / "net.onnx", dtype=dtype)
    box = {"session": session_of(model), "path": tmp_path / "net.onnx", "string": str(tmp_path / "net.onnx")}[kind]
    oracle = Oracle(box, 4)
    np.testing.assert_allclose(oracle(ROWS), NETWORK(ROWS), rtol=1e-12 if dtype == "float64" else 1e-5)
    assert oracle.n_queries == 50 and not oracle.exact


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_of_a_classifier(n_classes, zipmap):
    labels = np.digitize(ROWS[:, 0], [-0.3, 0.5][: n_classes - 1])
    mlp = MLPClassifier((3,), activation="tanh", solver="lbfgs", alpha=0.1, max_iter=1000, random_state=0)
    mlp.fit(ROWS, labels)
    session = session_of(to_onnx(mlp, ROWS[:1].astype(np.float32 if zipmap else float), options={"zipmap": zipmap}))
    logits = Oracle(session, 4, response="predict_proba")(ROWS)
    truth = FeedforwardNetwork.from_sklearn(mlp)(ROWS)
    truth -= truth.mean(axis=1, keepdims=True) if n_classes == 3 else 0.0
    np.testing.assert_allclose(logits, truth, atol=1e-3 if zipmap else 1e-9)  # of float32 the former, as it must be
    with pytest.raises(ValueError, match="is a classifier: its outputs are .*use response_method='predict_proba'"):
        Oracle(session, 4)


def flat_model(shape, names=("x",)):
    """A model that adds up the entries of a row."""
    flat = helper.make_node("Flatten", ["x"], ["f"], axis=min(1, len(shape) - 1))
    nodes = [flat, helper.make_node("MatMul", ["f", "W"], ["y"])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    W = numpy_helper.from_array(np.ones((4, 1), np.float32), "W")
    return helper.make_model(
        helper.make_graph(nodes, "sum", inputs, [output], [W]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


@pytest.mark.parametrize("shape", [("n", 4), (1, 4), (7, 4), ("n", 2, 2), (3, 1, 2, 2), ("n", "D"), (None, 4)])
def test_shapes_of_inputs(shape):
    """Rows are put into the shape of the input, and batches of a fixed size filled up."""
    np.testing.assert_allclose(
        Oracle(session_of(flat_model(shape)), 4)(ROWS)[:, 0], ROWS.sum(axis=1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("shape", "names", "message"),
    [
        (("D",), ["x"], r"'x' must have a batch axis followed by axes of fixed length, such as \(n, D\); its shape"),
        (("n", "h", 4), ["x"], "'x' must have a batch axis followed by axes of fixed length"),
        (("n", 4), ["x", "x1"], r"must have one input of real numbers, got \['x: tensor\(float\)', 'x1: tensor"),
    ],
)
def test_refused_shapes(shape, names, message):
    with pytest.raises(ValueError, match=message):
        Oracle(session_of(flat_model(shape, names)), 4)


def test_rows_of_another_width():
    with pytest.raises(ValueError, match="takes 4 inputs per row, got 5"):
        Oracle(session_of(NETWORK.to_onnx()), 5)(np.ones((2, 5)))


def test_files_that_cannot_be_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="net.onnx"):
        Oracle(tmp_path / "net.onnx", 4)
    (tmp_path / "net.onnx").write_bytes(NETWORK.to_onnx().SerializeToString()[:200])
    with pytest.raises(ValueError, match="is no ONNX model, or truncated"):
        Oracle(tmp_path / "net.onnx", 4)
    model = NETWORK.to_onnx()
    model.graph.node[1].op_type = "NoSuchOperator"
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(ValueError, match="onnxruntime cannot run .*net.onnx: .*NoSuchOperator"):
        Oracle(tmp_path / "net.onnx", 4)


def test_external_data_elsewhere_is_refused(tmp_path):
    model, folder = NETWORK.to_onnx(), tmp_path / "models"
    folder.mkdir()
    tensor = model.graph.initializer[0]
    (tmp_path / "weights.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.bin")
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="outside of the model's folder; refused, and nothing of it read"):
        Oracle(folder / "net.onnx", 4)


@pytest.mark.parametrize("kind", ["session", "path"])
def test_a_model_is_identified(kind, tmp_path):
    model = NETWORK.to_onnx(tmp_path / "net.onnx")
    box = session_of(model) if kind == "session" else tmp_path / "net.onnx"
    identifier = NetworkIdentifier(box, layer_widths=(3, 2), random_state=0).fit(ROWS)
    assert identifier.report_.exact and identifier.network_.layer_widths == (3, 2)


def test_a_file_tells_its_activation(tmp_path):
    network = make_network((4, 3, 2), activation="sigmoid", output_activation="identity", random_state=0)
    network.to_onnx(tmp_path / "net.onnx")
    identifier = NetworkIdentifier(tmp_path / "net.onnx", layer_widths=(3, 2), random_state=0).fit(ROWS)
    assert identifier.report_.exact and identifier.network_.activation == "sigmoid"


def test_a_file_is_a_network_with_known_weights(tmp_path):
    path = tmp_path / "net.onnx"
    NETWORK.to_onnx(path)
    assert known_network(path) == known_network(str(path)) == NETWORK
    compressor = NetworkCompressor(path, tol=0.5, random_state=0).fit(ROWS)
    assert compressor.layer_widths_[0] < 3 and compressor.error_ <= 0.5


def test_without_onnxruntime_the_extra_is_named(monkeypatch, tmp_path):
    NETWORK.to_onnx(tmp_path / "net.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "skident.oracle._onnx_box", raising=False)
    with pytest.raises(ImportError, match=r"needs onnxruntime.*pip install 'skident\[onnx\]'"):
        Oracle(tmp_path / "net.onnx", 4)
