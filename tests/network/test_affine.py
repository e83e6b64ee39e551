import numpy as np
import pandas as pd
import pytest
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

from skident.network import FeedforwardNetwork, affine_map, center_outputs, fold_inputs, unfold_inputs

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
def test_folding_and_unfolding(name):
    """The same function with the transformer inside; and back to the same parameters."""
    transformer = AFFINE[name].fit(X)
    A, c = affine_map(transformer)
    T = transformer.transform(X)
    T = T.toarray() if hasattr(T, "toarray") else T
    # Rounding of x itself, seen through the map: eps times the size of the terms.
    atol = 1e-12 * (np.abs(X) @ np.abs(A) + np.abs(c)).max()
    np.testing.assert_allclose(X @ A + c, T, atol=atol)
    inner = network(A.shape[1])
    outer = fold_inputs(inner, transformer)
    np.testing.assert_allclose(outer(X), inner(T), atol=1e-12 + 10.0 * atol)
    back = unfold_inputs(outer, transformer)
    np.testing.assert_allclose(back.weights[0], inner.weights[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(back.biases[0], inner.biases[0], atol=1e-8 * max(1.0, np.abs(c).max()))


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


def test_sizes_must_fit():
    scaler = StandardScaler().fit(X)
    with pytest.raises(ValueError, match="the transformer gives 5 features, but the network has 3 inputs"):
        fold_inputs(network(3), scaler)
    with pytest.raises(ValueError, match="the transformer takes 5 features, but the network has 3 inputs"):
        unfold_inputs(network(3), scaler)


def test_unfolding_needs_independent_features():
    doubled = ColumnTransformer([("a", StandardScaler(), [1, 3]), ("b", MinMaxScaler(), [1])]).fit(X)
    with pytest.raises(ValueError, match="3 features are linearly dependent"):
        unfold_inputs(network(D), doubled)


def test_unfolding_needs_a_function_of_the_features():
    with pytest.raises(
        ValueError, match="not a function of the transformer's features: .* of its first layer's weights"
    ):
        unfold_inputs(network(D), PCA(2).fit(X[:, ::-1]))


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
