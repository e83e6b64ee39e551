"""Models as people have them: scikit-learn estimators, torch modules and functions, each with samples of its inputs."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pandas
import torch
from sklearn import (
    calibration,
    decomposition,
    ensemble,
    gaussian_process,
    kernel_ridge,
    linear_model,
    neighbors,
    svm,
    tree,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

from skident.datasets import make_network

N_SAMPLES, D = 400, 6
MAX_ERROR = 1e-8  # over the outputs' standard deviation, at three standard deviations of the inputs
LINEAR = {"output_activation": "identity"}


def samples(seed, n_inputs=D):
    """Inputs (n, D) and a nonlinear target with noise."""
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((N_SAMPLES, n_inputs))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + np.abs(X[:, 3]) + 0.05 * rng.standard_normal(N_SAMPLES)


def regressor(make):
    """`predict` of an estimator ``make(seed)`` that is fitted to the samples."""

    def model(seed):
        X, y = samples(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return make(seed).fit(X, y).predict, X

    return model


def classifier(make, frozen=False):
    """`predict_proba` of a classifier of three classes, or the classifier itself."""

    def model(seed):
        X, y = samples(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = make(seed).fit(X, np.digitize(y, [0.5, 1.5]))
        return (FrozenEstimator(fitted) if frozen else fitted.predict_proba), X

    return model


def module(*layers, callable_=False, dtype=torch.float64):
    """A torch module of layers made after seeding, or a function of its outputs."""

    def model(seed):
        torch.manual_seed(seed)
        made = torch.nn.Sequential(*(layer() for layer in layers)).to(dtype).eval().requires_grad_(False)
        function = lambda X: made(torch.as_tensor(X, dtype=dtype)).numpy()  # noqa: E731
        return (function if callable_ else made), samples(seed)[0]

    return model


def sequence(make, shape):
    """A layer for sequences of this shape, with its last outputs weighted."""

    def model(seed):
        torch.manual_seed(seed)
        layer = make().double().eval().requires_grad_(False)

        def function(X):
            outputs = layer(torch.as_tensor(X).reshape(len(X), *shape))
            outputs = outputs[0] if isinstance(outputs, tuple) else outputs
            return outputs.reshape(len(X), -1)[:, -4:].numpy() @ [1.0, 0.3, -0.8, 0.5]

        return function, samples(seed)[0]

    return model


def network(*widths, activation="tanh", n_inputs=D, change=lambda Y, X: Y, before=lambda X: X):
    """A random network, and what is done to its inputs and outputs."""

    def model(seed):
        net = make_network((n_inputs, *widths), activation=activation, bias_scale=0.5, random_state=seed, **LINEAR)
        return (lambda X: change(net(before(X)), X)), samples(seed, n_inputs)[0]

    return model


def integer_column(activation):
    """A network that rounds one of its inputs, whose samples are integers."""

    def model(seed):
        function, X = network(10, 1, activation=activation, before=_rounded)(seed)
        X[:, 2] = np.random.RandomState(seed).randint(0, 4, len(X))
        return function, X

    return model


def _rounded(X):
    return np.column_stack([X[:, :2], np.round(X[:, 2]), X[:, 3:]])


def int8(axis):
    """A ReLU network with dynamic quantization, per batch (None) or per row (1)."""

    def model(seed):
        net = make_network((D, 16, 1), activation="relu", random_state=seed, **LINEAR)
        W, V = (_quantized(weights) for weights in net.weights)
        inner = lambda X: np.maximum(_quantized(X, axis) @ W + net.biases[0], 0.0)  # noqa: E731
        return (lambda X: _quantized(inner(X), axis) @ V), samples(seed)[0]

    return model


def _quantized(A, axis=None):
    step = np.maximum(np.abs(A).max(axis=axis, keepdims=axis is not None), 1e-300) / 127
    return step * np.round(A / step)


def prelu(seed):
    """One slope per unit."""
    torch.manual_seed(seed)
    made = torch.nn.Sequential(torch.nn.Linear(D, 16), torch.nn.PReLU(16), torch.nn.Linear(16, 2)).double()
    torch.nn.init.uniform_(made[1].weight, -0.2, 0.6)
    return made.requires_grad_(False), samples(seed)[0]


def residual(seed):
    """``x + W_2 relu(W_1 x)``."""
    return network(16, D, activation="relu", change=lambda Y, X: Y + X)(seed)


def image_layers(shape, convolution, *behind):
    """A convolution of images with ReLU units and a linear layer behind, as a module made after seeding."""

    def made(seed):
        torch.manual_seed(seed)
        head = torch.nn.LazyLinear(3)
        layers = torch.nn.Sequential(
            convolution(), torch.nn.ReLU(), *(layer() for layer in behind), torch.nn.Flatten(), head
        )
        layers(torch.zeros(1, *shape))
        return layers.double().requires_grad_(False)

    return made


def images(shape, *layers):
    """The same as a function of rows."""

    def model(seed):
        made = image_layers(shape, *layers)(seed)
        rows = np.random.RandomState(seed).standard_normal((N_SAMPLES, int(np.prod(shape))))
        return lambda X: made(torch.as_tensor(X).reshape(-1, *shape)).numpy(), rows

    return model


def _relu(Z):
    return np.maximum(Z, 0.0)


def _layers(seed, *shapes):
    """Weights with the scale of unit outputs, and biases, of one layer per shape."""
    rng = np.random.RandomState(seed)
    return [(rng.standard_normal(shape) / np.sqrt(shape[0]), 0.5 * rng.standard_normal(shape[1])) for shape in shapes]


def concatenated(*widths):
    """ReLU layers that read the inputs and all layers before, as dense connections do, and so does the output."""

    def model(seed):
        sizes = np.cumsum((D, *widths))
        *hidden, (last, _) = _layers(seed, *zip(sizes, (*widths, 1), strict=True))

        def function(X):
            for W, b in hidden:
                X = np.hstack([X, _relu(X @ W + b)])
            return X @ last

        return function, samples(seed)[0]

    return model


def residual_blocks(stem, *widths, activation=_relu):
    """Blocks ``h + act(h W + b) V``, of inputs or of a layer of `stem` units, with a linear output."""

    def model(seed):
        n = stem or D
        shapes = [shape for m in widths for shape in ((n, m), (m, n))]
        (first, bias), (last, _), *inner = _layers(seed, (D, n), (n, 1), *shapes)

        def function(X):
            H = activation(X @ first + bias) if stem else X
            for (W, b), (V, _) in zip(inner[::2], inner[1::2], strict=True):
                H = H + activation(H @ W + b) @ V
            return H @ last

        return function, samples(seed)[0]

    return model


def maxout(n_units, size, relu=True):
    """The largest of `size` linear functions per unit, ReLU, and a linear layer."""

    def model(seed):
        (W, b), (last, _) = _layers(seed, (D, n_units * size), (n_units, 1))

        def function(X):
            largest = (X @ W + b).reshape(len(X), n_units, size).max(axis=2)
            return (_relu(largest) if relu else largest) @ last

        return function, samples(seed)[0]

    return model


def average(*networks, activation="relu"):
    """The mean of networks with these hidden widths."""

    def model(seed):
        made = [network(*widths, 1, activation=activation)(seed + 1000 * i)[0] for i, widths in enumerate(networks)]
        return (lambda X: sum(one(X) for one in made) / len(made)), samples(seed)[0]

    return model


def then(make, change):
    """A model whose outputs are changed."""

    def model(seed):
        function, X = make(seed)
        return (lambda rows: change(function(rows), function(X))), X

    return model


def of_dtype(make, dtype):
    """A model that casts its inputs to a number format of torch, as well as its outputs."""

    def model(seed):
        function, X = make(seed)
        cast = lambda A: torch.as_tensor(A).to(dtype).double().numpy()  # noqa: E731
        return (lambda rows: cast(function(cast(rows)))), X

    return model


def of_frames(make):
    """A model that selects the columns of a DataFrame by name."""

    def model(seed):
        function, X = make(seed)
        names = [f"x{i}" for i in range(X.shape[1])]
        return (lambda frame: function(frame[names].to_numpy())), pandas.DataFrame(X, columns=names)

    return model


def with_gradients(*layers):
    """A function that returns tensors with gradients."""

    def model(seed):
        torch.manual_seed(seed)
        made = torch.nn.Sequential(*(layer() for layer in layers)).double()
        return (lambda X: made(torch.as_tensor(X))), samples(seed)[0]

    return model


def frozen_regressor(make):
    """A fitted regressor in a `FrozenEstimator`."""

    def model(seed):
        predict, X = regressor(make)(seed)
        return FrozenEstimator(predict.__self__), X

    return model


def batch_norm_in_training(seed):
    """A module whose batch normalization uses the rows of the call."""
    torch.manual_seed(seed)
    made = torch.nn.Sequential(
        torch.nn.Linear(D, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    return (lambda X: made.double()(torch.as_tensor(X)).detach().numpy()), samples(seed)[0]


def labels(words):
    """Numbers or words of the largest of three outputs."""
    names = np.array(["a", "b", "c"]) if words else np.arange(3)
    return network(8, 3, activation="relu", change=lambda Y, X: names[Y.argmax(axis=1)])


def _linear(n_in, n_out):
    return lambda: torch.nn.Linear(n_in, n_out)


def _mlp(*widths, **options):
    return lambda s: MLPRegressor(hidden_layer_sizes=widths or (100,), random_state=s, **options)


def _voting(s):
    parts = [("network", _mlp(20)(s)), ("linear", linear_model.LinearRegression())]
    return ensemble.VotingRegressor(parts)


def _after(*steps):
    return lambda s: make_pipeline(*(step() for step in steps), linear_model.Ridge())


def _scaled(make):
    return lambda s: make_pipeline(StandardScaler(), make(s))


def _mlp_classifier(activation):
    return lambda s: MLPClassifier((10,), activation, random_state=s)


def _calibrated(method, activation, n_classes=2):
    """`predict_proba` of a calibration around a fitted classifier."""

    def model(seed):
        X, y = samples(seed)
        labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            inner = FrozenEstimator(_mlp_classifier(activation)(seed).fit(X, labels))
        return calibration.CalibratedClassifierCV(inner, method=method).fit(X, labels).predict_proba, X

    return model


def _boosting(package, name, **options):
    return lambda s: getattr(importlib.import_module(package), name)(random_state=s, **options)


def _logistic(s):
    return linear_model.LogisticRegression()


# The shape of an image, the convolution, and what is behind its ReLU units.
CONVOLUTIONS = {
    "convolution 3 x 3": ((1, 6, 6), lambda: torch.nn.Conv2d(1, 4, 3)),
    "convolution 5 x 5": ((1, 8, 8), lambda: torch.nn.Conv2d(1, 3, 5)),
    "convolution, stride 2": ((1, 9, 9), lambda: torch.nn.Conv2d(1, 4, 3, stride=2)),
    "convolution, padding": ((1, 5, 5), lambda: torch.nn.Conv2d(1, 3, 3, padding=1)),
    "convolution, two channels": ((2, 5, 5), lambda: torch.nn.Conv2d(2, 4, 3)),
    "convolution, average pooling": ((1, 6, 6), lambda: torch.nn.Conv2d(1, 4, 3), lambda: torch.nn.AvgPool2d(2)),
}
NETWORKS = {
    "tanh (8, 5)": network(8, 5, 1),
    "tanh (12, 7)": network(12, 7, 1),
    "MLPRegressor()": regressor(_mlp()),
    "MLPRegressor((20, 10))": regressor(_mlp(20, 10)),
    "MLPRegressor((12,), tanh)": regressor(_mlp(12, activation="tanh")),
    "StandardScaler, MLPRegressor((12,), logistic)": regressor(_scaled(_mlp(12, activation="logistic"))),
    "VotingRegressor(MLP, linear)": regressor(_voting),
    "residual block": residual,
    "PReLU module, a slope per unit": prelu,
    "LeakyReLU module": module(_linear(D, 16), torch.nn.LeakyReLU, _linear(16, 2)),
    "LinearRegression": regressor(lambda s: linear_model.LinearRegression()),
    "LogisticRegression, frozen": classifier(_logistic, frozen=True),
    "LogisticRegression, predict_proba": classifier(_logistic),
    "scaled MLPClassifier (tanh), frozen": classifier(_scaled(_mlp_classifier("tanh")), frozen=True),
    "scaled MLPClassifier (ReLU), predict_proba": classifier(_scaled(_mlp_classifier("relu"))),
    "tanh, Sigmoid module": module(_linear(D, 10), torch.nn.Tanh, _linear(10, 1), torch.nn.Sigmoid),
    "ReLU, Sigmoid module": module(_linear(D, 10), torch.nn.ReLU, _linear(10, 1), torch.nn.Sigmoid),
    "ReLU, Softmax module": module(_linear(D, 10), torch.nn.ReLU, _linear(10, 3), lambda: torch.nn.Softmax(dim=1)),
    "tanh, Softplus module": module(_linear(D, 10), torch.nn.Tanh, _linear(10, 1), torch.nn.Softplus),
    "BatchNorm, ReLU function": module(
        _linear(D, 16), lambda: torch.nn.BatchNorm1d(16), torch.nn.ReLU, _linear(16, 1), callable_=True
    ),
    "ReLU6 function": module(_linear(D, 12), torch.nn.ReLU6, _linear(12, 1), callable_=True),
    "GELU, 64 units": network(64, 1, activation="gelu"),
    "SiLU, 64 units": network(64, 1, activation="silu"),
    "GELU (10, 6)": network(10, 6, 1, activation="gelu"),
    "GELU (32, 16)": network(32, 16, 1, activation="gelu"),
    "SiLU (10, 6)": network(10, 6, 1, activation="silu"),
    **{name: images(*parts) for name, parts in CONVOLUTIONS.items()},
    "tanh with a linear skip": network(10, D, change=lambda Y, X: Y + X),
    "max pooling": network(6, 1, before=lambda X: np.maximum(X, X[:, ::-1])),
}
# Layers that read more than the layer before, and averages: functions of wider networks, with linear units.
CONNECTIONS = {
    "residual block behind a ReLU layer": residual_blocks(8, 6),
    "concatenated skip connections": concatenated(6, 5),
    "two residual blocks": residual_blocks(0, 6, 5),
    "average of ReLU networks of unequal depth": average((8,), (6, 5)),
    "tanh residual block": residual_blocks(0, 10, activation=np.tanh),
}
TANH_CONNECTIONS = {
    "tanh residual block behind a tanh layer": residual_blocks(8, 6, activation=np.tanh),
    "average of tanh networks of unequal depth": average((8,), (6, 5), activation="tanh"),
}
# The classifier, and the noun of its message unless it is recovered.
CALIBRATED = {
    f"{method}, {activation}, {n} classes": (_calibrated(method, activation, n), f"{method} calibration")
    for n in (2, 3)
    for method in ("isotonic", "sigmoid")
    for activation in ("relu", "tanh", "logistic")
}
MAX_POOLING = {
    "linear units, max of 2": maxout(8, 2, relu=False),
    "ReLU units, max of 2": maxout(8, 2),
    "ReLU units, max of 4": maxout(6, 4),
    "convolution, max pooling 2 x 2": images(
        (1, 6, 6), lambda: torch.nn.Conv2d(1, 2, 3), lambda: torch.nn.MaxPool2d(2)
    ),
}
WIDE = {"tanh (64, 32), 20 inputs": network(64, 32, 1, n_inputs=20)}
TREES, LOCAL, LAYER_NORM, RECURRENT = "tree ensemble", "local kernel", "LayerNorm", "recurrent network"
INT8, COLUMN, LABELS = "dynamic int8 quantization", "integer or categorical column", "class labels"
# The model and the noun that its message must have.
OTHERS = {
    "RandomForestRegressor": (regressor(lambda s: ensemble.RandomForestRegressor(50, random_state=s)), TREES),
    "ExtraTreesRegressor": (regressor(lambda s: ensemble.ExtraTreesRegressor(50, random_state=s)), TREES),
    "DecisionTreeRegressor": (regressor(lambda s: tree.DecisionTreeRegressor(random_state=s)), TREES),
    "GradientBoostingRegressor": (regressor(lambda s: ensemble.GradientBoostingRegressor(random_state=s)), TREES),
    "HistGradientBoostingRegressor": (
        regressor(lambda s: ensemble.HistGradientBoostingRegressor(random_state=s)),
        TREES,
    ),
    "AdaBoostRegressor": (regressor(lambda s: ensemble.AdaBoostRegressor(random_state=s)), TREES),
    "RandomForestClassifier, predict_proba": (
        classifier(lambda s: ensemble.RandomForestClassifier(50, random_state=s)),
        TREES,
    ),
    "KNeighborsRegressor": (regressor(lambda s: neighbors.KNeighborsRegressor()), "nearest neighbors"),
    "KNeighborsRegressor, by distance": (
        regressor(lambda s: neighbors.KNeighborsRegressor(weights="distance")),
        "nearest neighbors",
    ),
    "SVR": (regressor(lambda s: svm.SVR()), LOCAL),
    "SVR, cubic": (regressor(lambda s: svm.SVR(kernel="poly")), "polynomial of degree 3"),
    "GaussianProcessRegressor": (
        regressor(lambda s: gaussian_process.GaussianProcessRegressor(alpha=0.01)),
        LOCAL,
    ),
    "KernelRidge": (regressor(lambda s: kernel_ridge.KernelRidge(kernel="rbf")), LOCAL),
    "SplineTransformer": (regressor(_after(SplineTransformer)), "spline"),
    "PolynomialFeatures(2)": (regressor(_after(PolynomialFeatures)), "polynomial of degree 2"),
    "PolynomialFeatures(3)": (regressor(_after(lambda: PolynomialFeatures(3))), "polynomial of degree 3"),
    "integer column, ReLU": (integer_column("relu"), COLUMN),
    "integer column, tanh": (integer_column("tanh"), COLUMN),
    "GRU": (sequence(lambda: torch.nn.GRU(2, 8, batch_first=True), (3, 2)), RECURRENT),
    "LSTM": (sequence(lambda: torch.nn.LSTM(2, 8, batch_first=True), (3, 2)), RECURRENT),
    "TransformerEncoderLayer": (
        sequence(lambda: torch.nn.TransformerEncoderLayer(3, 1, 8, batch_first=True), (2, 3)),
        LAYER_NORM,
    ),
    "TransformerEncoderLayer, norm first": (
        sequence(lambda: torch.nn.TransformerEncoderLayer(3, 1, 8, batch_first=True, norm_first=True), (2, 3)),
        LAYER_NORM,
    ),
    "LayerNorm, ReLU": (
        module(_linear(D, 12), lambda: torch.nn.LayerNorm(12), torch.nn.ReLU, _linear(12, 1), callable_=True),
        LAYER_NORM,
    ),
    "labels, numbers": (labels(False), LABELS),
    "labels, words": (labels(True), LABELS),
    "int8, scale per batch": (int8(None), INT8),
    "int8, scale per row": (int8(1), INT8),
}
# Of other packages: pip install xgboost lightgbm catboost.
BOOSTING = {
    "xgboost.XGBRegressor": (regressor(_boosting("xgboost", "XGBRegressor")), TREES),
    "lightgbm.LGBMRegressor": (regressor(_boosting("lightgbm", "LGBMRegressor", verbose=-1)), TREES),
    "catboost.CatBoostRegressor": (
        regressor(_boosting("catboost", "CatBoostRegressor", iterations=200, verbose=0, allow_writing_files=False)),
        TREES,
    ),
    "xgboost.XGBClassifier, predict_proba": (classifier(_boosting("xgboost", "XGBClassifier")), TREES),
    "lightgbm.LGBMClassifier, predict_proba": (classifier(_boosting("lightgbm", "LGBMClassifier", verbose=-1)), TREES),
}
_MLP_20 = regressor(_mlp(20))
_TANH = network(8, 5, 1)
FLOAT32, HALF, DECIMALS = 1e-4, 0.1, 1e-2
# The model, and the error that its number format allows.
DEPLOYED = {
    "ReLU, float32": (
        module(_linear(D, 16), torch.nn.ReLU, _linear(16, 1), callable_=True, dtype=torch.float32),
        FLOAT32,
    ),
    "tanh, float32": (
        module(_linear(D, 16), torch.nn.Tanh, _linear(16, 1), callable_=True, dtype=torch.float32),
        FLOAT32,
    ),
    "BatchNorm, ReLU, float32": (
        module(
            *(_linear(D, 16), lambda: torch.nn.BatchNorm1d(16), torch.nn.ReLU, _linear(16, 1)),
            callable_=True,
            dtype=torch.float32,
        ),
        FLOAT32,
    ),
    "MLPRegressor, inputs and outputs cast to float32": (of_dtype(_MLP_20, torch.float32), FLOAT32),
    "MLPRegressor, outputs of 3 decimals": (then(_MLP_20, lambda Y, _: Y.round(3)), DECIMALS),
    "tanh (8, 5), outputs of 3 decimals": (then(_TANH, lambda Y, _: Y.round(3)), DECIMALS),
    "ReLU, bfloat16": (of_dtype(network(16, 1, activation="relu"), torch.bfloat16), HALF),
    "BaggingRegressor of 3 MLPRegressors": (
        regressor(lambda s: ensemble.BaggingRegressor(_mlp(20)(s), 3, random_state=s)),
        MAX_ERROR,
    ),
    "weight norm, ReLU": (
        module(
            lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(D, 16)), torch.nn.ReLU, _linear(16, 1)
        ),
        MAX_ERROR,
    ),
    "PCA, MLPRegressor": (
        regressor(lambda s: make_pipeline(decomposition.PCA(4), _mlp(12, activation="tanh")(s))),
        MAX_ERROR,
    ),
    "FrozenEstimator(MLPRegressor)": (frozen_regressor(_mlp(20)), MAX_ERROR),
    "tanh (8, 5), clipped to its range": (
        then(_TANH, lambda Y, seen: np.clip(Y, seen.min(), seen.max())),
        MAX_ERROR,
    ),
    "tanh, the smaller of it and a bound": (
        then(_TANH, lambda Y, seen: np.minimum(Y, np.quantile(seen, 0.9))),
        MAX_ERROR,
    ),
    "ReLU, the larger of it and a bound": (
        then(_MLP_20, lambda Y, seen: np.maximum(Y, np.quantile(seen, 0.3))),
        MAX_ERROR,
    ),
    "MLPRegressor of DataFrames": (of_frames(_MLP_20), MAX_ERROR),
    "tensors with gradients": (with_gradients(_linear(D, 10), torch.nn.Tanh, _linear(10, 1)), MAX_ERROR),
    "clipped inputs": (network(8, 1, before=lambda X: np.clip(X, -2.5, 2.5)), MAX_ERROR),
    "a row more is another output": (batch_norm_in_training, MAX_ERROR),
}
