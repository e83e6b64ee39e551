import copy
import pickle
import re
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

from skident.network import (
    ACTIVATIONS,
    Activation,
    FeedforwardNetwork,
    affine_map,
    center_outputs,
)
from skident.network.calculus import flatten_parameters, unflatten_parameters
from tests.references import reference_forward, reference_hessian, reference_jacobian, reference_proposition_2

# -- feedforward -------------------------------------------------------------------------------------------------------


SMOOTH = [name for name, g in ACTIVATIONS.items() if g.smooth]
WIDTHS = [(3,), (6, 2), (5, 4, 2)]


def random_network(widths, activation="tanh", output_activation="identity", n_inputs=4, seed=0):
    rng = np.random.default_rng(seed)
    sizes = (n_inputs, *widths)
    weights = [rng.normal(size=pair) / np.sqrt(pair[0]) for pair in zip(sizes, sizes[1:])]
    return FeedforwardNetwork(weights, [rng.normal(0, 0.5, m) for m in widths], activation, output_activation)


def points(n, D=4, seed=1):
    return np.random.default_rng(seed).normal(size=(n, D))


def parts(net):
    return net.weights, net.biases, net.activations


# -- function and derivatives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", WIDTHS, ids=len)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_call_against_unit_by_unit(activation, widths):
    net, X = random_network(widths, activation, "tanh"), points(3)
    expected = np.stack([reference_forward(*parts(net), x)[1] for x in X])
    np.testing.assert_allclose(net(X), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("output_activation", ["identity", "same"])
@pytest.mark.parametrize("widths", WIDTHS, ids=len)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_jacobian_against_differences(activation, widths, output_activation):
    net = random_network(widths, activation, activation if output_activation == "same" else output_activation)
    X = points(3)
    expected = np.stack([reference_jacobian(net, x) for x in X])
    np.testing.assert_allclose(net.jacobian(X), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("output_activation", ["identity", "same"])
@pytest.mark.parametrize("widths", WIDTHS, ids=len)
@pytest.mark.parametrize("activation", SMOOTH)
def test_hessian_against_proposition_2_and_differences(activation, widths, output_activation):
    net = random_network(widths, activation, activation if output_activation == "same" else output_activation)
    X = points(2)
    H = net.hessian(X)
    exact = np.stack([reference_proposition_2(*parts(net), x) for x in X])
    np.testing.assert_allclose(H, exact, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(H, np.stack([reference_hessian(net, x) for x in X]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("activation", SMOOTH)
def test_hessian_against_torch_autograd(activation):
    net, x = random_network((5, 4, 2), activation, activation), points(1)[0]
    module = net.to_torch()
    for p in range(2):
        H = torch.autograd.functional.hessian(lambda t, p=p: module(t)[p], torch.from_numpy(x))
        np.testing.assert_allclose(net.hessian(x[None])[0, p], H.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("widths", WIDTHS, ids=len)
@pytest.mark.parametrize("activation", SMOOTH)
def test_entangled_weights_are_the_jacobians_of_pre_activations(activation, widths):
    net, x = random_network(widths, activation, activation), points(1)[0]
    V = net.entangled_weights(x)
    assert [Vl.shape for Vl in V] == [(4, m) for m in widths]
    for layer, Vl in enumerate(V):
        head = FeedforwardNetwork(net.weights[: layer + 1], net.biases[: layer + 1], activation, "identity")
        np.testing.assert_allclose(Vl, reference_jacobian(head, x).T, rtol=1e-8, atol=1e-8)
    V[0][:] = 0.0  # the output is the caller's own
    assert net.weights[0].any()


@pytest.mark.parametrize("method", ["jacobian", "hessian"])
@pytest.mark.parametrize("max_bytes", [0, 3000, 2**40])
def test_chunks_change_nothing(method, max_bytes):
    net, X = random_network((5, 4, 2), "tanh", "tanh"), points(23)
    derivative = getattr(net, method)
    np.testing.assert_allclose(derivative(X, max_bytes=max_bytes), derivative(X), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("method", ["jacobian", "hessian"])
@pytest.mark.parametrize("widths", [(20, 10, 3), (60, 1), (2, 2)])
def test_temporary_memory_stays_below_the_bound(method, widths):
    net, X, bound = random_network(widths, "tanh", "tanh", n_inputs=12), points(4000, 12), 2**20
    tracemalloc.start()
    try:
        result = getattr(net, method)(X, max_bytes=bound)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - result.nbytes < bound + 2**17


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(n):
    net, X = random_network((5, 4, 2)), points(n)
    assert net(X).shape == (n, 2)
    assert net.jacobian(X).shape == (n, 2, 4)
    assert net.hessian(X).shape == (n, 2, 4, 4)


def test_non_finite_inputs_pass_through():
    assert np.isnan(random_network((3, 2))(np.full((1, 4), np.nan))).all()


@pytest.mark.parametrize("kinds", [("relu", "identity"), ("tanh", "relu")])
def test_hessian_refuses_boundaries(kinds):
    with pytest.raises(ValueError, match=r"\['relu'\].*Use jacobian"):
        random_network((3, 2), *kinds).hessian(points(1))


@pytest.mark.parametrize("method", ["__call__", "jacobian", "hessian"])
@pytest.mark.parametrize("X", [np.zeros((2, 3)), np.zeros(4), np.zeros((1, 2, 4))], ids=lambda X: str(X.shape))
def test_wrong_input_shape(method, X):
    with pytest.raises(ValueError, match=r"X must have shape \(n, 4\), got " + re.escape(str(X.shape))):
        getattr(random_network((3, 2)), method)(X)


def test_entangled_weights_take_one_point():
    with pytest.raises(ValueError, match=r"one point of shape \(4,\), got shape \(1, 4\)"):
        random_network((3, 2)).entangled_weights(points(1))


# -- an immutable value ------------------------------------------------------------------------------------------------


def test_sizes_and_repr():
    net = random_network((12, 5), "sin", "tanh", n_inputs=20)
    assert (net.n_inputs, net.n_outputs, net.n_layers, net.layer_widths) == (20, 5, 2, (12, 5))
    assert net.n_parameters == 20 * 12 + 12 + 12 * 5 + 5
    assert (net.activation, net.output_activation) == ("sin", "tanh")
    assert net.activations == (ACTIVATIONS["sin"], ACTIVATIONS["tanh"])
    assert repr(net) == "FeedforwardNetwork(20 -> 12 -> 5, sin, output tanh)"


def test_arrays_are_private_and_read_only():
    W, b = np.asfortranarray(np.ones((4, 3))), np.zeros(3, dtype=np.float32)
    net = FeedforwardNetwork([W], [b])
    W[:] = 7.0
    assert net.weights[0].max() == 1.0
    assert net.weights[0].flags.c_contiguous and net.biases[0].dtype == np.float64
    for array in net.weights + net.biases:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


@pytest.mark.parametrize("name", ["weights", "biases", "activation", "anything"])
def test_attributes_are_fixed(name):
    net = random_network((3, 2))
    with pytest.raises(AttributeError, match=f"immutable, cannot set '{name}'"):
        setattr(net, name, None)
    with pytest.raises(AttributeError, match=f"immutable, cannot delete '{name}'"):
        delattr(net, name)


def test_copies_and_pickles():
    net = random_network((3, 2), "sigmoid", "tanh")
    assert copy.copy(net) is net and copy.deepcopy([net])[0] is net
    again = pickle.loads(pickle.dumps(net))
    assert again == net and hash(again) == hash(net) and again.activations == net.activations
    assert not again.weights[0].flags.writeable


def test_equality_is_by_value():
    net = random_network((3, 2))
    same = FeedforwardNetwork(net.weights, net.biases)
    others = [
        random_network((3, 2), seed=1),
        random_network((3, 1)),
        random_network((3, 2, 2)),
        random_network((3, 2), "sin"),
        random_network((3, 2), output_activation="tanh"),
    ]
    assert net == same and hash(net) == hash(same)
    assert all(net != other for other in others)
    assert net != "network"
    plus, minus = (FeedforwardNetwork([[[z]]], [[z]]) for z in (0.0, -0.0))
    assert plus == minus and hash(plus) == hash(minus)


def _cube(z, order):
    return (z**3, 3 * z**2, 6 * z)[: order + 1]


def test_own_activation():
    cube = Activation("cube", _cube)
    net, x = random_network((3, 2), cube), points(1)
    assert net.activation == "cube" and pickle.loads(pickle.dumps(net)) == net
    np.testing.assert_allclose(net.hessian(x)[0], reference_hessian(net, x[0]), rtol=1e-3, atol=1e-4)


ZEROS = np.zeros
BAD_PARAMETERS = [
    ([], [], "got 0 weights and 0 biases"),
    ([ZEROS((2, 3))], [], "got 1 weights and 0 biases"),
    ([ZEROS(3)], [ZEROS(3)], r"weights\[0\] must be a non-empty array of shape \(inputs, units\), got shape \(3,\)"),
    ([ZEROS((2, 0))], [ZEROS(0)], r"weights\[0\] must be a non-empty array"),
    (
        [ZEROS((2, 3))],
        [ZEROS((3, 1))],
        r"biases\[0\] must be a non-empty array of shape \(units,\), got shape \(3, 1\)",
    ),
    ([ZEROS((3, 2))], [ZEROS(3)], r"biases\[0\] must have one entry .* shapes \(3,\) and \(3, 2\).*transpose"),
    (
        [ZEROS((2, 3)), ZEROS((4, 1))],
        [ZEROS(3), ZEROS(1)],
        r"weights\[1\] must have 3 rows.* shapes \(2, 3\) and \(4, 1\)",
    ),
    ([[[1.0, np.nan, np.inf]]], [ZEROS(3)], r"weights\[0\] must be finite, got 2 .* first at \(0, 1\)"),
    ([ZEROS((1, 1))], [[np.inf]], r"biases\[0\] must be finite, got 1 .* first at \(0,\)"),
    ([[[1j]]], [[0.0]], r"weights\[0\] must be real"),
    ([[[1.0, 2.0], [3.0]]], [[0.0]], r"weights\[0\] cannot be read as an array of numbers"),
    ([[["a"]]], [[0.0]], r"weights\[0\] cannot be read as an array of numbers"),
]


@pytest.mark.parametrize(("weights", "biases", "message"), BAD_PARAMETERS)
def test_bad_parameters(weights, biases, message):
    with pytest.raises(ValueError, match=message):
        FeedforwardNetwork(weights, biases)


@pytest.mark.parametrize("kinds", [("swish", "identity"), ("tanh", "swish")])
def test_unknown_activation(kinds):
    for widths in [(3, 2), (3,)]:
        with pytest.raises(ValueError, match="activation must be one of .* got 'swish'"):
            random_network(widths, *kinds)


def test_parameters_as_one_vector_and_back():
    net = random_network((5, 3, 2))
    params = flatten_parameters(net.weights, net.biases)
    weights, biases = unflatten_parameters(params, [W.shape for W in net.weights])
    assert params.shape == (net.n_parameters,) and net.with_parameters(weights, biases) == net
    assert all(np.shares_memory(block, params) for block in (*weights, *biases))


# -- affine ------------------------------------------------------------------------------------------------------------


D = 5
# Units and means far apart, one column constant.
X = np.random.default_rng(0).standard_normal((60, D)) * [1e-6, 1.0, 1e6, 3.0, 0.0] + [0.0, 1e4, -1e6, 5.0, 2.0]


def network(n_inputs, n_outputs=2, output_activation="identity"):
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((n_inputs, 4)), rng.standard_normal((4, n_outputs))]
    biases = [rng.standard_normal(4), rng.standard_normal(n_outputs)]
    return FeedforwardNetwork(weights, biases, "tanh", output_activation)


AFFINE = {
    "standard": StandardScaler(),
    "min-max": MinMaxScaler((-3, 2)),
    "max-abs": MaxAbsScaler(),
    "robust": RobustScaler(),
    "pca": make_pipeline(StandardScaler(), PCA(3, whiten=True)),
    "selection": VarianceThreshold(),
    "columns": ColumnTransformer([("a", StandardScaler(), [3, 1]), ("b", "passthrough", [0])]),
    "sparse": FunctionTransformer(lambda X: __import__("scipy.sparse").sparse.csr_array(X), check_inverse=False),
}


@pytest.mark.parametrize("name", AFFINE)
def test_affine_maps_of_transformers(name):
    transformer = AFFINE[name].fit(X)
    A, c = affine_map(transformer)
    T = transformer.transform(X)
    T = T.toarray() if hasattr(T, "toarray") else T
    # Rounding of x itself, seen through the map: eps times the size of the terms.
    atol = 1e-12 * (np.abs(X) @ np.abs(A) + np.abs(c)).max()
    np.testing.assert_allclose(X @ A + c, T, atol=atol)


def test_frames():
    """Columns found by name, and no warning for rows without names."""
    frame = pd.DataFrame(X, columns=list("abcde"))
    transformer = ColumnTransformer([("s", StandardScaler(), ["d", "b"])]).set_output(transform="pandas").fit(frame)
    A, _ = affine_map(transformer)
    np.testing.assert_allclose(A[[3, 1], [0, 1]], 1.0 / X[:, [3, 1]].std(axis=0), rtol=1e-12)


NOT_AFFINE = [
    (PolynomialFeatures(2).fit(X[:, 3:]), "is not affine"),
    (MinMaxScaler(clip=True).fit(X), "is not affine"),
    (PowerTransformer().fit(X[:, 3:4]), "is not affine|could not be asked"),
    (FunctionTransformer(np.abs).fit(X), "is not affine"),
    (FunctionTransformer(np.log).fit(1 + np.abs(X)), "is not affine|could not be asked"),
    (OneHotEncoder().fit([["a"], ["b"]]), "failed while its affine map was determined"),
    (StandardScaler, "is not a fitted transformer"),
    (StandardScaler(), "is not a fitted transformer"),
    (MLPClassifier(), "is not a fitted transformer"),
]


@pytest.mark.parametrize(("transformer", "message"), NOT_AFFINE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # logarithms of negative probes
def test_transformers_that_are_refused(transformer, message):
    with pytest.raises(ValueError, match=message):
        affine_map(transformer)


def test_centred_outputs():
    """Zero mean over the outputs, the same softmax; log-odds stay as they are."""
    net = network(D, 4)
    centred = center_outputs(net)
    np.testing.assert_allclose(centred.weights[-1].mean(axis=1), 0.0, atol=1e-15)
    shift = net(X) - centred(X)
    np.testing.assert_allclose(shift, np.repeat(shift[:, :1], 4, axis=1), atol=1e-13)
    assert center_outputs(network(D, 1)) == network(D, 1)
    with pytest.raises(ValueError, match="needs a linear output, got output_activation='tanh'"):
        center_outputs(network(D, 3, "tanh"))
