"""ONNX models to and from networks: the converters' own, every operator that is read, and what is refused."""

import io
import math
import sys
import warnings

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from torch import nn

from skident.datasets import make_network
from skident.network import ACTIVATIONS, Activation, FeedforwardNetwork, bounded, leaky_relu, with_linear_skip
from skident.network.tabulated import tabulate

X = np.random.default_rng(0).normal(size=(40, 4))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
NOT_IN_FLOAT64 = {"softplus", "erf", "gelu", "gelu_tanh", "elu", "selu", "hardswish"}  # of onnxruntime
EPS32 = float(np.finfo(np.float32).eps)


def random_network(widths, activation="tanh", output_activation="identity", seed=0):
    rng = np.random.default_rng(seed)
    sizes = (4, *widths)
    weights = [rng.normal(size=pair) for pair in zip(sizes, sizes[1:])]
    return FeedforwardNetwork(weights, [rng.normal(size=m) for m in widths], activation, output_activation)


def name_of(activation):
    return activation if isinstance(activation, str) else f"leaky_relu({activation.negative_slope})"


def in_onnxruntime(model, rows=X):
    """The last output of a model, in its own precision."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64}[given.type]
    return session.run(None, {given.name: rows.astype(dtype)})[-1]


def exported(module, rows, **options):
    """What torch.onnx.export makes of a module; its newer exporter needs onnxscript, and this one is enough."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(module.eval(), (rows,), file, dynamo=False, **options)
    return onnx.load_from_string(file.getvalue())


def assert_close(one, other, dtype):
    """Equal to rounding, relative to the largest entry."""
    tolerance = 1e-12 if dtype in (np.float64, torch.float64) else 16.0 * EPS32
    assert np.abs(np.asarray(one, dtype=float) - other).max() <= tolerance * np.abs(other).max()


# -- there and back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["identity", "tanh"])
@pytest.mark.parametrize("widths", [(3,), (6, 2), (6, 5, 2)], ids=len)
@pytest.mark.parametrize("activation", [*ACTIVATIONS, leaky_relu(0.3), leaky_relu(1.7), leaky_relu(-0.2)], ids=name_of)
def test_round_trip(activation, widths, output):
    network = random_network(widths, activation, output)
    again = FeedforwardNetwork.from_onnx(network.to_onnx())
    assert again == network or len(widths) == 1  # whose hidden activation is that of no layer
    np.testing.assert_array_equal(again(X), network(X))
    single = FeedforwardNetwork.from_onnx(network.to_onnx(dtype="float32"))
    rounded = network.with_parameters(
        *([a.astype(np.float32) for a in arrays] for arrays in (network.weights, network.biases))
    )
    np.testing.assert_allclose(single(X), rounded(X), rtol=1e-6, atol=2e-6)  # slopes are rounded as well


def test_tables_round_trip():
    """A table is read if all of its nodes and constants are those that `to_onnx` writes."""
    table = tabulate(lambda z: np.maximum(z, 0.0) + np.exp(-z * z), -8.0, 8.0, (0.0, 1.0), 1e-13)
    network = random_network((6, 5, 2), table, "identity")
    again = FeedforwardNetwork.from_onnx(network.to_onnx())
    assert again == network
    np.testing.assert_array_equal(again(X), network(X))
    single = FeedforwardNetwork.from_onnx(network.to_onnx(dtype="float32"))
    np.testing.assert_allclose(single(X), network(X), rtol=1e-5, atol=1e-5)
    edited = network.to_onnx()
    tensor = next(one for one in edited.graph.initializer if one.name == "layer_1_table_4")
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + 0.1, tensor.name))
    with pytest.raises(ValueError, match="cannot read node 'layer_1_table_greaterorequal"):
        FeedforwardNetwork.from_onnx(edited)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", [*ACTIVATIONS, leaky_relu(0.3), leaky_relu(1.7)], ids=name_of)
def test_onnxruntime_outputs_as_the_network(activation, dtype):
    network = random_network((6, 5, 2), activation, "tanh")
    if activation == "quadratic":  # whose fourth powers are far beyond where tanh still shows them
        network = network.with_parameters([0.3 * W for W in network.weights], network.biases)
    if dtype == np.float64 and network.activation in NOT_IN_FLOAT64:
        pytest.skip("onnxruntime has no such operator in float64")
    answers = in_onnxruntime(network.to_onnx(dtype=dtype))
    assert answers.dtype == dtype and answers.shape == (40, 2)
    assert_close(answers, network(X), dtype)


def test_models_are_written_to_files(tmp_path):
    network = random_network((6, 2))
    model = network.to_onnx(tmp_path / "net.onnx", dtype=np.float64)
    assert FeedforwardNetwork.from_onnx(tmp_path / "net.onnx") == network
    assert onnx.load(tmp_path / "net.onnx") == model
    network.to_onnx(str(tmp_path / "net.onnx"), dtype="float32")
    assert FeedforwardNetwork.from_onnx(str(tmp_path / "net.onnx")) != network


@pytest.mark.parametrize(
    ("network", "dtype", "message"),
    [
        (random_network((3, 2), Activation("cube", np.tanh)), "float64", "got a custom 'cube'"),
        (random_network((3, 2)), "float16", r"dtype must be one of \['float32', 'float64'\], got 'float16'"),
        (random_network((3, 2)), "no such", "dtype must be one of .* got 'no such'"),
        (FeedforwardNetwork([[[1e300]]], [[0.0]]), "float32", "weights_1 has an entry of magnitude 1.0e.300, too"),
    ],
)
def test_to_onnx_refuses(network, dtype, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        network.to_onnx(tmp_path / "net.onnx", dtype=dtype)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        random_network((3, 2)).to_onnx(tmp_path / "missing" / "net.onnx")
    assert not list(tmp_path.iterdir())


# -- scikit-learn ------------------------------------------------------------------------------------------------------


def fitted(mlp, y, *before):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_pipeline(*before, mlp.set_params(hidden_layer_sizes=(6, 5), max_iter=5, random_state=0)).fit(X, y)


SCALERS = [(), (StandardScaler(),), (MinMaxScaler(), PCA(3), RobustScaler())]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("before", SCALERS, ids=len)
@pytest.mark.parametrize("activation", ["tanh", "logistic", "relu", "identity"])
def test_regressors_through_skl2onnx(activation, before, dtype):
    pipeline = fitted(MLPRegressor(activation=activation), Y, *before)
    model = to_onnx(pipeline, X[:1].astype(dtype))
    network = FeedforwardNetwork.from_onnx(model)
    assert_close(network(X)[:, 0], pipeline.predict(X), dtype)
    assert_close(in_onnxruntime(model)[:, 0], network(X)[:, 0], dtype)
    widths = (6, 5, 1) if activation != "identity" or len(before) < 2 else (3, 6, 5, 1)  # a PCA is linear, too
    assert network.layer_widths == widths
    assert_close(in_onnxruntime(network.to_onnx(dtype=dtype))[:, 0], pipeline.predict(X), dtype)


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_classifiers_through_skl2onnx(activation, n_classes, zipmap):
    labels = np.digitize(X[:, 0], [-0.3, 0.5][: n_classes - 1])
    pipeline = fitted(MLPClassifier(activation=activation), labels, StandardScaler())
    model = to_onnx(pipeline, X[:1].astype(np.float64), options={"zipmap": zipmap})
    truth = FeedforwardNetwork.from_sklearn(pipeline)
    network = FeedforwardNetwork.from_onnx(model)
    assert network.layer_widths == (6, 5, 1 if n_classes == 2 else 3)
    assert_close(network(X), truth(X), np.float64)


def test_what_skl2onnx_makes_of_two_outputs_is_refused():
    """It puts the two outputs of a row below each other: (2 n, 1)."""
    model = to_onnx(fitted(MLPRegressor(), np.column_stack([Y, Y])), X[:1])
    with pytest.raises(ValueError, match=r"'Reshape' \(Reshape\): it mixes the rows of a batch"):
        FeedforwardNetwork.from_onnx(model)


# -- torch -------------------------------------------------------------------------------------------------------------

CONVOLUTIONAL = {
    "3x3": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), (1, 6, 6), (64, 3)),
    "two channels, stride, padding, pooling": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 5, stride=2, padding=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 6, 2),
            nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)
        ),
        (2, 9, 9), (100, 6, 3),
    ),
    "one axis, groups, dilation": (
        lambda: nn.Sequential(
            nn.Conv1d(4, 6, 3, groups=2, dilation=2, padding="same"), nn.Tanh(), nn.AvgPool1d(3, 2, padding=1),
            nn.Flatten(), nn.Linear(24, 2)
        ),
        (4, 8), (48, 2),
    ),
    "batch norm everywhere": (
        lambda: nn.Sequential(
            nn.BatchNorm1d(5), nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.BatchNorm1d(7), nn.Linear(7, 2),
            nn.BatchNorm1d(2)
        ),
        (5,), (7, 2),
    ),
}  # fmt: skip
SEQUENTIALS = {
    "tanh": lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)),
    "no bias": lambda: nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 2, bias=False)),
    "gelu": lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 2)),
    "silu": lambda: nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 2)),
    "elu": lambda: nn.Sequential(nn.Linear(4, 6), nn.ELU(), nn.Linear(6, 2)),
    "leaky relu": lambda: nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.25), nn.Linear(6, 2)),
    "prelu": lambda: nn.Sequential(nn.Linear(4, 6), nn.PReLU(init=0.3), nn.Linear(6, 2)),
    "softplus": lambda: nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Linear(6, 2), nn.Sigmoid()),
    "batch norm": lambda: nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 2), nn.Identity()
    ),
}


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SEQUENTIALS)
def test_sequentials_through_torch(name, dtype, opset):
    torch.manual_seed(0)
    module = SEQUENTIALS[name]().to(dtype)
    for part in module:
        if isinstance(part, nn.BatchNorm1d):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    model = exported(module, torch.zeros(1, 4, dtype=dtype), opset_version=opset)
    network = FeedforwardNetwork.from_onnx(model)
    expected = module.double()(torch.from_numpy(X)).detach().numpy()
    assert_close(network(X), expected, dtype)
    if name not in ("batch norm", "gelu"):
        assert network.layer_widths == FeedforwardNetwork.from_torch(module).layer_widths


def test_images_and_a_softmax():
    """An input of several axes, flattened; the network of the logits."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3), nn.Softmax(1)).double()
    rows = torch.randn(7, 2, 2, 3, dtype=torch.float64)
    model = exported(module, rows, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    network = FeedforwardNetwork.from_onnx(model)
    assert_close(network(rows.reshape(7, 12).numpy()), module[:-1](rows).detach().numpy(), np.float64)


def random_batch_norms(module):
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return module.double().eval()


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_convolutions_are_read_as_dense_layers(name):
    """From torch and from ONNX alike, with the widths of the dense layers."""
    torch.manual_seed(0)
    make, shape, widths = CONVOLUTIONAL[name]
    module = random_batch_norms(make())
    rows = torch.randn(7, *shape, dtype=torch.float64)
    expected = module(rows).detach().numpy()
    model = exported(module, rows, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    for network in (FeedforwardNetwork.from_torch(module, input_shape=shape), FeedforwardNetwork.from_onnx(model)):
        assert network.layer_widths == widths
        np.testing.assert_allclose(network(rows.reshape(7, -1).numpy()), expected, rtol=1e-12, atol=1e-12)


# -- models node by node -----------------------------------------------------------------------------------------------


def model_of(nodes, constants=(), shape=("n", 4), outputs=("y",), opset=17, **options):
    """A model of float64 tensors; `nodes` are (operator, inputs, output, attributes)."""
    made = [
        helper.make_node(kind, list(inputs), [output], name=f"the_{output}", **attributes)
        for kind, inputs, output, attributes in nodes
    ]
    read = {name for node in made for name in node.input}
    constants = {"W": np.arange(12.0).reshape(4, 3) / 10, "V": np.ones((3, 2)), "b": np.array([0.5, 0.0, -0.5])} | dict(
        constants
    )
    graph = helper.make_graph(
        made,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, shape)],
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ("n", None)) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items() if name in read],
    )
    domains = [helper.make_opsetid(domain, 1) for domain in options.get("domains", ())]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *domains], ir_version=8)


LAYER = [("MatMul", "xW", "z", {}), ("Tanh", "z", "h", {})]
LAST = [("MatMul", "hV", "y", {})]
READ = {
    "scaled in front": [("Sub", "xs", "c", {}), ("Div", "cd", "u", {}), ("MatMul", "uW", "z", {}), *LAYER[1:], *LAST],
    "scaled behind": [*LAYER, ("MatMul", "hV", "a", {}), ("Mul", "ka", "m", {}), ("Add", "mk", "y", {})],
    "taken from a constant": [*LAYER, ("MatMul", "hV", "a", {}), ("Sub", "ka", "m", {}), ("Neg", "m", "y", {})],
    "divided behind": [*LAYER, ("MatMul", "hV", "a", {}), ("Div", "ap", "y", {})],
    "gemm": [("Gemm", "xtb", "z", {"transB": 1, "alpha": 0.5, "beta": 2.0}), *LAYER[1:], ("Gemm", "hV", "y", {})],
    "constants worked out": [("Transpose", "t", "u", {}), ("Gemm", "xub", "z", {}), *LAYER[1:], *LAST],
    "constant node": [
        ("Constant", "", "q", {"value": numpy_helper.from_array(np.ones((4, 3)))}),
        ("MatMul", "xq", "z", {}),
        *LAYER[1:],
        *LAST,
    ],
    "between two matrices": [("MatMul", "xW", "w", {}), ("Add", "bw", "a", {}), ("MatMul", "aS", "z", {}), *LAYER[1:]]
    + LAST,
    "2 tanh": [*LAYER, ("MatMul", "hV", "a", {}), ("Tanh", "a", "g", {}), ("Mul", "gk", "y", {})],
    "two squares": [("MatMul", "xW", "z", {}), ("Pow", "zk", "h", {}), ("MatMul", "hV", "a", {})]
    + [("Mul", "aa", "y", {})],
    "relu as a maximum": [("MatMul", "xW", "z", {}), ("Max", "zo", "h", {}), *LAST],
    "relu as a clip": [("MatMul", "xW", "z", {}), ("Clip", "zo", "h", {}), *LAST],
    "leaky relu as a maximum": [("MatMul", "xW", "z", {}), ("Mul", "zf", "m", {}), ("Max", "mz", "h", {}), *LAST],
    "leaky relu as a minimum": [("MatMul", "xW", "z", {}), ("Mul", "zk", "m", {}), ("Min", "zm", "h", {}), *LAST],
    "gelu, the half first": [
        ("MatMul", "xW", "z", {}),
        ("Mul", "zf", "half", {}),
        ("Div", ["z", "r"], "u", {}),
        ("Erf", "u", "e", {}),
        ("Add", ["e", "i"], "a", {}),
        ("Mul", ["half", "a"], "h", {}),
        *LAST,
    ],
    "one unit, its axis gone": [*LAYER, ("MatMul", "hv", "a", {}), ("Squeeze", "ap", "y", {})],
    "axes come and go": [*LAYER, ("Unsqueeze", "hp", "a", {}), ("Squeeze", "ap", "g", {}), ("MatMul", "gV", "y", {})],
    "columns picked": [("Slice", ["x", "a0", "a2", "p", ""], "u", {}), ("Gather", ["x", "picked"], "w", {"axis": 1}),
                       ("Concat", "uw", "c", {"axis": 1}), ("MatMul", "cW", "z", {}), *LAYER[1:], *LAST],
    "units picked backwards": [*LAYER, ("Slice", ["h", "a2", "back", "p", "step"], "q", {}), ("MatMul", "qU", "y", {})],
    "zeros around units": [*LAYER, ("Pad", ["h", "pads"], "q", {}), ("MatMul", "qP", "y", {})],
    "a linear branch": [*LAYER, ("MatMul", "hV", "a", {}), ("Tanh", "a", "g", {}), ("MatMul", "xW", "w", {}),
                        ("Concat", "wg", "c", {"axis": 1}), ("MatMul", "cL", "y", {})],
    "a matrix that is worked out": [("MatMul", "WS", "Z", {}), ("MatMul", "xZ", "z", {}), *LAYER[1:], *LAST],
    "a shape that is worked out": [("Shape", "x", "m", {}), ("Gather", ["m", "a0"], "q", {}),
                                   ("Concat", ["q", "a2", "a2"], "c", {"axis": 0}), ("Reshape", "xc", "u", {}),
                                   ("Reshape", ["u", "four"], "w", {}), ("MatMul", "wW", "z", {}), *LAYER[1:], *LAST],
    "reshaped to itself": [*LAYER, ("Reshape", "hn", "g", {}), ("Identity", "g", "q", {}), ("MatMul", "qV", "y", {})],
}  # fmt: skip
CONSTANTS = {
    "s": np.array([[1.0, 2.0, 0.0, -1.0]]),
    "d": np.array([2.0, 0.5, 1.0, 3.0]),
    "t": np.arange(12.0).reshape(4, 3).T / 7,
    "S": np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 1.0]]),
    "k": np.array(2.0),
    "f": np.array(0.5),
    "o": np.array(0.0),
    "i": np.array(1.0),
    "r": np.array(math.sqrt(2.0)),
    "v": np.ones((3, 1)),
    "p": np.array([1]),
    "n": np.array([-1, 3]),
    "a0": np.array([0]),
    "a2": np.array([2]),
    "four": np.array([0, 4]),
    "picked": np.array([3, 1]),
    "back": np.array([-9]),
    "step": np.array([-2]),
    "pads": np.array([0, 1, 0, 2]),
    "U": np.ones((2, 2)),
    "P": np.arange(12.0).reshape(6, 2),
    "L": np.arange(10.0).reshape(5, 2),
}


@pytest.mark.parametrize("nodes", READ.values(), ids=READ)
def test_read(nodes):
    constants = CONSTANTS | ({"p": np.array([2.0, 3.0])} if nodes is READ["divided behind"] else {})
    model = model_of(nodes, constants)
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": X})[0].reshape(len(X), -1)
    network = FeedforwardNetwork.from_onnx(model)
    rounding = 1e-6 if network.activation == "gelu" else 1e-12  # the reference has erf in single precision
    np.testing.assert_allclose(network(X), expected, rtol=rounding, atol=rounding)
    np.testing.assert_allclose(FeedforwardNetwork.from_onnx(network.to_onnx())(X), network(X), rtol=1e-13)


AS_EXPORTED = {
    "silu": [("MatMul", "xW", "z", {}), ("Sigmoid", "z", "g", {}), ("Mul", "gz", "h", {}), *LAST],
    "elu": [("MatMul", "xW", "z", {}), ("Elu", "z", "h", {}), *LAST],
    "hard_tanh": [("MatMul", "xW", "z", {}), ("Clip", "zji", "h", {}), *LAST],
}


@pytest.mark.parametrize("name", AS_EXPORTED)
def test_activations_by_their_name(name):
    """Read where a network can have them, and otherwise named."""
    model = model_of(AS_EXPORTED[name], CONSTANTS | {"j": np.array(-1.0)})
    if name not in ACTIVATIONS:
        with pytest.raises(ValueError, match=f"'the_h' .*: {name} is no activation of FeedforwardNetwork"):
            FeedforwardNetwork.from_onnx(model)
        return
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": X})[0]
    network = FeedforwardNetwork.from_onnx(model)
    assert network.activation == name
    np.testing.assert_allclose(network(X), expected, rtol=1e-12, atol=1e-13)


def test_an_input_whose_width_only_the_weights_tell():
    model = model_of(READ["scaled in front"], CONSTANTS, shape=("n", None))
    assert FeedforwardNetwork.from_onnx(model).n_inputs == 4


def test_inputs_without_a_batch_axis():
    """A vector in, and matrices on either side."""
    module = [("MatMul", "Tx", "z", {}), ("Tanh", "z", "h", {}), ("MatMul", "hV", "y", {})]
    model = model_of(module, {"T": CONSTANTS["t"]}, shape=(4,))
    expected = [onnx.reference.ReferenceEvaluator(model).run(None, {"x": row})[0] for row in X]
    np.testing.assert_allclose(FeedforwardNetwork.from_onnx(model)(X), expected, rtol=1e-12, atol=1e-13)


def test_one_input_per_column_with_labels_beside_the_logits():
    """What pipelines of tables are converted to."""
    nodes = [("Concat", "uvw", "x", {"axis": 1}), *LAYER, *LAST, ("ArgMax", "y", "label", {"axis": 1})]
    model = model_of(nodes, {"W": np.arange(9.0).reshape(3, 3) / 9}, outputs=("y",))
    model.graph.output.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, ("n", 1)))
    del model.graph.input[:]
    columns = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ("n", 1)) for name in "uvw"]
    model.graph.input.extend(columns)
    given = {name: column[:, None] for name, column in zip("uvw", X.T)}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(["y"], given)[0]
    network = FeedforwardNetwork.from_onnx(model)
    assert network.layer_widths == (3, 2)
    np.testing.assert_allclose(network(X[:, :3]), expected, rtol=1e-12, atol=1e-13)


def test_linear_units_round_trip():
    network = with_linear_skip(random_network((6, 5, 2)), np.ones((4, 2)))
    assert FeedforwardNetwork.from_onnx(network.to_onnx()) == network


CUSTOM = ("Swish", "z", "h", {"domain": "com.example"})
REFUSED = [
    ([*LAYER[:1], CUSTOM, *LAST], "'the_h' .Swish.: com.example.Swish is a custom operator, not one of ONNX's own"),
    ([("LRN", "x", "z", {"size": 3}), *LAYER[1:], *LAST], r"'the_z' \(LRN\): networks are read as chains of MatMul"),
    ([("Conv", "xW", "z", {}), *LAYER[1:], *LAST], r"'the_z' \(Conv\): its rows have the shape \(4,\) without"),
    ([*LAYER, ("Add", "hz", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Add\): a sum of two tensors that depend"),
    ([*LAYER, ("Sub", "hz", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Sub\): a difference of two tensors"),
    ([*LAYER, ("Mul", "hz", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Mul\): a product of two tensors"),
    ([*LAYER, ("Max", "hz", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Max\): of two tensors it is read where"),
    ([*LAYER, ("Div", "kh", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Div\): a division by what depends on"),
    ([*LAYER, ("Div", "ho", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Div\): it divides by zero"),
    ([*LAYER, ("Pow", "hf", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Pow\): only the power 2"),
    ([*LAYER, ("Clip", "hok", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Clip\): only a Clip from 0 on"),
    ([*LAYER, ("Max", "hk", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Max\): it is read as max"),
    ([*LAYER, ("Tanh", "h", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Tanh\): an activation must follow a mat"),
    ([("Tanh", "x", "h", {}), ("MatMul", "hW", "y", {})], r"'the_h' \(Tanh\): an activation must follow a matrix"),
    ([*LAYER, ("MatMul", "hS", "a", {}), ("Relu", "a", "g", {}), ("MatMul", "gV", "y", {})],
     r"'the_g' \(Relu\): all hidden layers must have the same activation, and it differs from that of 'the_h'"),
    ([("MatMul", "Wx", "y", {})], r"'the_y' \(MatMul\): a matrix product must have the rows first"),
    ([("MatMul", "xV", "y", {})], r"'the_y' \(MatMul\): a matrix of shape \(3, 2\) does not fit rows of 4 entries"),
    ([("Gemm", "xWb", "y", {"transA": 1})], r"'the_y' \(Gemm\): transA=1 mixes the rows"),
    ([*LAYER, ("Add", "hs", "g", {}), ("MatMul", "gV", "y", {})],
     r"'the_g' \(Add\): a constant of shape \(4,\) does not fit rows of shape \(3,\)"),
    ([*LAYER, ("Softmax", "h", "g", {}), ("MatMul", "gV", "y", {})], r"'the_g' \(Softmax\): a softmax must follow a m"),
    ([*LAYER[:1], ("Softmax", "z", "h", {}), *LAST], r"'the_y' \(MatMul\): only what changes nothing may follow the p"),
    ([*LAYER[:1], ("Softmax", "z", "y", {"axis": 0})], r"'the_y' \(Softmax\): a softmax is read over the last axis"),
    ([*LAYER, ("Cast", "h", "g", {"to": TensorProto.INT64}), ("MatMul", "gV", "y", {})], "'the_g' .Cast.: only casts"),
    ([*LAYER, ("Squeeze", "hq", "y", {})], r"'the_y' \(Squeeze\): cannot select an axis"),
    ([*LAYER, ("Reshape", "hm", "y", {})], r"'the_y' \(Reshape\): it mixes the rows of a batch"),
    ([*LAYER, ("Concat", "hz", "y", {"axis": 0})], r"'the_y' \(Concat\): only rows of one axis"),
    ([*LAYER, ("MatMul", "xW", "w", {}), ("Relu", "w", "g", {}), ("Concat", "hg", "y", {"axis": 1})],
     r"'the_y' \(Concat\): of branches, one may be linear where the other has layers"),
    ([*LAYER, ("Transpose", "h", "y", {"perm": [1, 0]})], r"'the_y' \(Transpose\): it mixes the rows of a batch"),
    ([*LAYER, ("Shape", "h", "e", {}), ("Cast", "e", "E", {"to": TensorProto.DOUBLE}), ("Mul", "zE", "y", {})],
     r"'the_E' \(Cast\): its value depends on the number of rows"),
    ([*LAYER[:1], ("PRelu", "zb", "h", {}), *LAST], r"'the_h' \(PRelu\): only a PRelu with one slope for all units"),
    ([*LAYER[:1], ("LeakyRelu", "z", "h", {"alpha": 1.0}), *LAST], r"'the_h' \(LeakyRelu\): negative_slope must be"),
    ([*LAYER[:1], ("Selu", "z", "h", {"alpha": 1.5}), *LAST], r"'the_h' \(Selu\): only alpha and gamma"),
    ([("Exp", "W", "E", {}), ("MatMul", "xE", "y", {})], r"'the_E' \(Exp\): networks are read as chains"),
    ([("Add", "cv", "E", {}), ("MatMul", "xE", "y", {})], r"'the_E' \(Add\): constants of shapes \(1, 4\) and"),
    ([("Identity", "x", "y", {})], "there is no matrix product .* between input and output 'y'"),
    ([("Identity", "W", "y", {})], "there is no matrix product"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "message"), REFUSED)
def test_refused_by_the_name_of_the_node(nodes, message):
    constants = CONSTANTS | {"q": np.array([0]), "m": np.array([3, -1]), "c": np.ones((1, 4))}
    model = model_of(nodes, constants, domains=["com.example"], opset=20)
    with pytest.raises(ValueError, match=message):
        FeedforwardNetwork.from_onnx(model)


def damaged(model, change):
    change(model)
    return model


def with_two_inputs(model):
    model.graph.input.append(helper.make_tensor_value_info("x2", TensorProto.DOUBLE, ("n", 4)))


def with_integer_input(model):
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64


def with_a_short_tensor(model):
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-8]


def with_a_step_too_early(model):
    model.graph.node.insert(0, model.graph.node.pop())


def without_an_operator_s_name(model):
    """A byte that is no text, in the serialised model."""
    content = model.SerializeToString().replace(b"Tanh", b"Ta\xc0h")
    model.ParseFromString(content)


BAD_MODELS = [
    (model_of(LAYER + LAST, shape=("D",)), r"must have a batch axis followed by axes of fixed length.*\('D',\)"),
    (model_of(LAYER + LAST, shape=("n", "h", 4)), r"axes of fixed length.*its shape is \('n', 'h', 4\)"),
    (model_of(LAYER + LAST, shape=None), "its shape is unknown"),
    (model_of([("Gemm", "xW", "y", {})], shape=("n", 2, 4)), r"its rows have the shape \(2, 4\) without the batch"),
    (model_of([*LAYER, *LAST], outputs=("y", "h")), r"one output of real numbers, got 2: \['y', 'h'\]"),
    (damaged(model_of(LAYER + LAST), with_two_inputs), r"one input, or one per column, .* got 2: \['x', 'x2'\]"),
    (damaged(model_of(LAYER + LAST), with_integer_input), "'x' must be a tensor of real numbers"),
    (damaged(model_of(LAYER + LAST), with_a_short_tensor), "the ONNX model is damaged|tensor 'W' .* is damaged"),
    (damaged(model_of(LAYER + LAST), with_a_step_too_early), "the ONNX model is damaged"),
    (damaged(model_of(LAYER + LAST), without_an_operator_s_name), "the ONNX model is damaged: a name in it is no text"),
    (model_of(LAYER + LAST, {"V": np.full((3, 2), np.nan)}), r"weights\[1\] must be finite"),
]


@pytest.mark.parametrize(("model", "message"), BAD_MODELS)
def test_refused_models(model, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        FeedforwardNetwork.from_onnx(model)


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_truncated_files(part, tmp_path):
    path = tmp_path / "net.onnx"
    random_network((6, 2)).to_onnx(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    with pytest.raises(ValueError, match="net.onnx is no ONNX model, or truncated"):
        FeedforwardNetwork.from_onnx(path)


@pytest.mark.parametrize("seed", range(3))
def test_bytes_changed_at_random(seed, tmp_path):
    """Whatever is in a file, it is read or refused."""
    rng, path = np.random.RandomState(seed), tmp_path / "net.onnx"
    pipeline = fitted(MLPRegressor(activation="tanh"), Y, StandardScaler())
    content, n_read = to_onnx(pipeline, X[:1]).SerializeToString(), 0
    for _ in range(200):
        changed = bytearray(content)
        for place in rng.randint(len(content), size=rng.randint(1, 4)):
            changed[place] = rng.randint(256)
        path.write_bytes(changed)
        try:
            n_read += FeedforwardNetwork.from_onnx(path).n_inputs == 4
        except (ValueError, FileNotFoundError) as error:
            assert not isinstance(error, UnicodeDecodeError) and len(str(error)) > 20
    assert 5 < n_read < 195


@pytest.mark.parametrize("content", [b"", b"not a network", b"\x80\x04N."])
def test_other_files(content, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="net.onnx is no ONNX model, or truncated"):
        FeedforwardNetwork.from_onnx(path)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="net.onnx"):
        FeedforwardNetwork.from_onnx(tmp_path / "net.onnx")
    with pytest.raises(IsADirectoryError, match="is a folder; give the path of a file in it"):
        FeedforwardNetwork.from_onnx(tmp_path)
    with pytest.raises(TypeError, match="read from a path or an onnx.ModelProto, got list"):
        FeedforwardNetwork.from_onnx([])


def with_external_data(folder, location="weights.bin", where="weights.bin"):
    """A model whose numbers lie in another file, which is written to `where`, and the network in it."""
    network = random_network((6, 2))
    model, content = network.to_onnx(), b""
    for tensor in model.graph.initializer:
        entries = {"location": location, "offset": str(len(content)), "length": str(len(tensor.raw_data))}
        content += tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    (folder / where).write_bytes(content)
    return network, model


def test_external_data_in_the_folder(tmp_path):
    network, model = with_external_data(tmp_path)
    assert FeedforwardNetwork.from_onnx(tmp_path / "net.onnx") == network
    with pytest.raises(ValueError, match="external data.*give the path of its file"):
        FeedforwardNetwork.from_onnx(model)


@pytest.mark.parametrize(
    "location", ["../weights.bin", "/etc/passwd", "a/../../weights.bin", "..\\weights.bin", "C:\\weights.bin", "", "."]
)
def test_external_data_elsewhere_is_refused_unread(location, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    with_external_data(folder, location, "../weights.bin")
    with pytest.raises(ValueError, match=r"outside of the model's folder; refused, and nothing of it read"):
        FeedforwardNetwork.from_onnx(folder / "net.onnx")


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    with_external_data(folder, where="../weights.bin")
    (folder / "weights.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(ValueError, match="outside of the model's folder"):
        FeedforwardNetwork.from_onnx(folder / "net.onnx")


def test_external_data_that_is_not_there_or_too_short(tmp_path):
    with_external_data(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 10)
    with pytest.raises(ValueError, match="tensor '.*' needs .* bytes, but 'weights.bin' holds 10 and"):
        FeedforwardNetwork.from_onnx(tmp_path / "net.onnx")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(FileNotFoundError, match="'weights.bin', and there is no such file"):
        FeedforwardNetwork.from_onnx(tmp_path / "net.onnx")


def test_without_onnx_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    for name in [name for name in sys.modules if name.startswith("skident.network.onnx_models")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"ONNX models need onnx.*pip install 'skident\[onnx\]'"):
        random_network((3, 2)).to_onnx()


@pytest.mark.parametrize("base", ["tanh", "sigmoid"])
def test_outputs_between_bounds_are_read_as_such(base, tmp_path, rng):
    plain = make_network((4, 5, 2), activation="relu", output_activation="identity", random_state=0)
    network = FeedforwardNetwork(plain.weights, plain.biases, "relu", bounded(base, [-1.5, 2.0], [0.5, 2.5]))
    path, X = tmp_path / "bounded.onnx", rng.standard_normal((20, 4))
    network.to_onnx(path)
    found = FeedforwardNetwork.from_onnx(path)
    assert found.layer_widths == (5, 2) and found.output_activation.startswith(base)
    np.testing.assert_allclose(found(X), network(X), atol=1e-13)
