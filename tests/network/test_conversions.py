import builtins
import warnings

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn import functional as F

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.network import ACTIVATIONS, Activation, FeedforwardNetwork, leaky_relu
from skident.network.torch_activations import Erf, Quadratic, Sin

# -- conversions -------------------------------------------------------------------------------------------------------


X = np.random.default_rng(0).normal(size=(40, 4))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]])


def random_network(widths, activation="tanh", output_activation="identity", seed=0):
    rng = np.random.default_rng(seed)
    sizes = (4, *widths)
    weights = [rng.normal(size=pair) for pair in zip(sizes, sizes[1:])]
    return FeedforwardNetwork(weights, [rng.normal(size=m) for m in widths], activation, output_activation)


def fitted(cls=MLPRegressor, y=Y, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cls(**{"hidden_layer_sizes": (6, 5), "max_iter": 5, "random_state": 0} | kwargs).fit(X, y)


# -- scikit-learn ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("y", [Y, Y[:, 0]], ids=["two outputs", "one output"])
@pytest.mark.parametrize("activation", ["tanh", "logistic", "relu", "identity"])
def test_sklearn_round_trip(activation, y):
    mlp = fitted(y=y, activation=activation)
    net = FeedforwardNetwork.from_sklearn(mlp)
    np.testing.assert_allclose(net(X).reshape(y.shape), mlp.predict(X), rtol=1e-12, atol=1e-14)
    assert FeedforwardNetwork.from_sklearn(FrozenEstimator(mlp)) == net
    again = net.to_sklearn()
    np.testing.assert_array_equal(again.predict(X), mlp.predict(X))
    assert again.get_params()["activation"] == activation and again.score(X, y) == mlp.score(X, y)
    assert FeedforwardNetwork.from_sklearn(again) == net


def test_to_sklearn_without_hidden_layer():
    net = random_network((2,), "sin")
    np.testing.assert_allclose(net.to_sklearn().predict(X), net(X), rtol=1e-13)


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
def test_to_sklearn_can_be_trained_further(solver):
    mlp = random_network((6, 2)).to_sklearn().set_params(solver=solver, max_iter=3, random_state=0)
    start = mlp.score(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp.set_params(warm_start=True).fit(X, Y)
    assert mlp.n_iter_ >= 1 and mlp.score(X, Y) > start


@pytest.mark.parametrize(
    ("mlp", "error", "message"),
    [
        (fitted(MLPClassifier, np.stack([X[:, 0] > 0, X[:, 1] > 0], axis=1)), ValueError, "one of 2 labels"),
        (LinearRegression(), TypeError, "got LinearRegression"),
        (make_pipeline(StandardScaler(), LinearRegression()).fit(X, Y), TypeError, "got LinearRegression"),
        (make_pipeline(StandardScaler(), MLPRegressor()), NotFittedError, "not fitted"),
        (MLPRegressor(), NotFittedError, "not fitted"),
        (fitted(y=Y**2, loss="poisson"), ValueError, "out_activation_='exp'.*squared_error"),
    ],
)
def test_from_sklearn_refuses(mlp, error, message):
    with pytest.raises(error, match=message):
        FeedforwardNetwork.from_sklearn(mlp)


@pytest.mark.parametrize("kinds", [("sin", "identity"), ("tanh", "tanh"), (Activation("tanh", np.tanh), "identity")])
def test_to_sklearn_refuses(kinds):
    with pytest.raises(ValueError, match=r"knows hidden activations \['identity', .*got activation=.*to_torch"):
        random_network((3, 2), *kinds).to_sklearn()


# -- torch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output_activation", ["identity", "same"])
@pytest.mark.parametrize("widths", [(3,), (6, 2), (6, 5, 2)], ids=len)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_torch_round_trip(activation, widths, output_activation):
    net = random_network(widths, activation, activation if output_activation == "same" else output_activation)
    module = net.to_torch()
    with torch.no_grad():
        answer = module(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(answer, net(X), rtol=1e-12, atol=1e-13)
    assert FeedforwardNetwork.from_torch(module) == net


def test_to_torch_leaves_the_random_stream_alone_and_trains():
    state = torch.random.get_rng_state()
    net = random_network((6, 2))
    module = net.to_torch(torch.float32)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(p.dtype == torch.float32 and p.requires_grad for p in module.parameters())
    with torch.no_grad():
        module[0].weight.zero_()
    assert net.weights[0].any()


ACT = nn.Tanh()
READABLE = [
    nn.Linear(4, 2),
    nn.Sequential(nn.Linear(4, 3, bias=False), ACT, nn.Linear(3, 3), ACT, nn.Linear(3, 2), ACT),
    nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()), nn.Identity(), nn.Linear(3, 2)),
    nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2)).eval(),
    nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0), nn.Linear(3, 2), nn.Softplus()),
    nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2)),
    nn.Sequential(nn.Linear(4, 3), nn.Hardtanh(), nn.Linear(3, 2)),
    nn.Sequential(nn.Linear(4, 3), nn.SiLU(), nn.Linear(3, 2), nn.ELU()),
    nn.Sequential(nn.Linear(4, 3), Sin(), nn.Linear(3, 2), Erf()),
    nn.Sequential(nn.Linear(4, 3), Quadratic(), nn.Linear(3, 2)).double(),
]


@pytest.mark.parametrize("module", READABLE, ids=range(len(READABLE)))
def test_from_torch(module):
    expected = module.double()(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(FeedforwardNetwork.from_torch(module)(X), expected, rtol=1e-12, atol=5e-9)


def test_rows_are_images_after_unflatten():
    module = nn.Sequential(nn.Unflatten(1, (1, 2, -1)), nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(9, 2))
    network = FeedforwardNetwork.from_torch(module.double(), input_shape=8)
    rows = torch.randn(5, 8, dtype=torch.float64)
    np.testing.assert_allclose(network(rows.numpy()), module(rows).detach().numpy(), rtol=1e-12, atol=1e-13)
    assert FeedforwardNetwork.from_torch(module[1:], input_shape=(1, 2, 4)) == network


class _Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def _stack(*middle):
    return nn.Sequential(nn.Linear(4, 3), *middle, nn.Linear(3, 2))


class _Custom(nn.Module):
    """A forward of its own around layers, a matrix and buffers."""

    def __init__(self, forward, training=False):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer, self.own = nn.Linear(4, 3), nn.Linear(3, 2), forward
        self.gate = _Gate()
        self.matrix = nn.Parameter(torch.randn(3, 2))
        self.register_buffer("mean", torch.randn(4))
        self.double().train(training)

    def forward(self, x):
        return self.own(self, x)


class _Gate(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


TRACED = {
    "scaled inputs": lambda m, x: m.outer(torch.tanh(m.inner((x - m.mean) / 2))),
    "scaled outputs": lambda m, x: 1 - 2 * m.outer(F.silu(m.inner(-x))),
    "a matrix": lambda m, x: F.relu(m.inner(x)) @ m.matrix.t().t() + 1,
    "a function": lambda m, x: F.linear(F.leaky_relu(m.inner(x), 0.3), m.matrix.t()),
    "flattened": lambda m, x: m.outer(m.inner(x.view(x.size(0), -1)).flatten(1).sigmoid()),
    "reshaped": lambda m, x: m.outer(m.inner(x).clamp(min=0).reshape(x.shape[0], 3, 1).view(-1, 3)),
    "dropout": lambda m, x: m.outer(F.dropout(F.gelu(m.inner(x)), 0.3, m.training)),
}


@pytest.mark.parametrize("name", TRACED)
def test_from_torch_traces_custom_modules(name):
    module, rows = _Custom(TRACED[name]), np.random.default_rng(0).standard_normal((50, 4))
    for one in (module, nn.Sequential(nn.Identity(), module)):
        network = FeedforwardNetwork.from_torch(one)
        expected = one(torch.from_numpy(rows)).detach().numpy()
        np.testing.assert_allclose(network(rows), expected, rtol=1e-12, atol=1e-13)


UNTRACED = [
    (_Custom(lambda m, x: m.outer(m.gate(m.inner(x)))), "traced by torch.fx, in submodule 'gate': .* control flow"),
    (_Custom(lambda m, x: m.outer(m.inner(x)) + m.outer(m.inner(x))), "'inner_1' does not follow .*no chain"),
    (_Custom(lambda m, x: m.outer(torch.cumsum(m.inner(x), 1))), r"'cumsum' \(cumsum\) is not an operation of layers"),
    (_Custom(lambda m, x: 1 / m.outer(m.inner(x))), "it divides by what depends on the input"),
    (_Custom(lambda m, x: m.inner(x).view(3, -1)), "'view' does not keep the rows of a batch"),
    (_Custom(lambda m, x: m.outer(m.inner(x).view(-1, 5))), r"Unflatten.*does not keep rows of axes \(3,\)"),
    (_Custom(lambda m, x: (m.inner(x), x)), "its outputs are not the values of its last layer"),
    (_Custom(lambda m, x: F.dropout(m.inner(x), 0.3, m.training), True), r"Dropout.*call \.eval\(\)"),
]
UNREADABLE = [
    *UNTRACED,
    (_stack(nn.CELU()), r"'1', CELU\(.*known are Linear, Tanh"),
    (_stack(nn.ELU(alpha=0.5)), r"'1', ELU\(.*only alpha=1"),
    (_stack(nn.Tanh(), nn.Sequential(nn.BatchNorm1d(3))), r"'2\.0', BatchNorm1d.*training mode"),
    (_stack(nn.Softplus(beta=2)), "'1', Softplus.*beta=1"),
    (_stack(nn.Softplus(threshold=5)), "threshold >= 20"),
    (_stack(nn.Hardtanh(-2, 1)), "'1': only limits of -1 and 1"),
    (_stack(nn.ReLU6()), "'1': only limits"),
    (_stack(nn.Dropout(0.5)), r"'1', Dropout.*call \.eval\(\)"),
    (_stack(nn.Flatten(0)), "'1', Flatten"),
    (_stack(nn.Tanh(), nn.Sigmoid()), "'2', Sigmoid.*must follow a Linear"),
    (nn.Sequential(nn.Tanh(), nn.Linear(4, 2)), "'0', Tanh.*must follow a Linear"),
    (_stack(nn.Tanh(), nn.Linear(3, 3), nn.Sigmoid()), "'tanh' at '1' and 'sigmoid' at '3'"),
    (_stack(nn.Tanh(), nn.Linear(3, 3)), "'tanh' at '1' and 'identity' at '2'"),
    (nn.Sequential(_Residual(nn.Linear(4, 4))), "'0', _Residual.*its own forward"),
    (nn.Sequential(nn.LazyLinear(3)), "'0', LazyLinear.*initialized"),
    (_stack(nn.BatchNorm1d(3)), r"'1', BatchNorm1d.*depend on the other rows of the batch.*call \.eval\(\)"),
    (_stack(nn.BatchNorm1d(3, track_running_stats=False)).eval(), "'1', BatchNorm1d.*no running statistics"),
    (_stack(nn.BatchNorm1d(4)).eval(), r"'1', BatchNorm1d.*4 channels, but its rows have the axes \(3,\)"),
    (_stack(nn.LayerNorm(3)), "'1', LayerNorm.*eval-mode BatchNorm"),
    (nn.Sequential(nn.Conv1d(1, 2, 3)), "'0', Conv1d.*set input_shape, or begin with Unflatten"),
    (nn.Sequential(nn.Unflatten(1, (2, -1)), nn.Conv1d(2, 2, 3)), "'0', Unflatten.*write the size without -1"),
    (nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv1d(1, 2, 3)), r"'1', Conv1d.*does not take rows of axes \(2, 4\)"),
    (nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Linear(4, 3)), "'1', Linear.*Flatten must come before"),
    (nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular")), "padding_mode"),
    (nn.Sequential(nn.Identity()), r"no torch\.nn\.Linear"),
]


@pytest.mark.parametrize(("module", "message"), UNREADABLE)
def test_from_torch_names_the_offender(module, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        FeedforwardNetwork.from_torch(module)


def test_from_torch_needs_a_module():
    with pytest.raises(TypeError, match=r"reads a torch\.nn\.Module, got function"):
        FeedforwardNetwork.from_torch(lambda x: x)


def test_to_torch_refuses_own_activations():
    with pytest.raises(ValueError, match="got a custom 'cube'"):
        random_network((3, 2), Activation("cube", np.tanh)).to_torch()


# -- safetensors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_safetensors_round_trip(activation, tmp_path):
    net = random_network((6, 5, 2), activation, "tanh")
    path = tmp_path / "net.safetensors"
    net.save(path)
    assert FeedforwardNetwork.load(path) == net
    random_network((3, 2)).save(str(path))
    assert FeedforwardNetwork.load(str(path)) == random_network((3, 2))


@pytest.mark.parametrize("slope", [0.01, 1 / 3, -2.5e-7, 3.0])
def test_slopes_are_saved_to_the_last_bit(slope, tmp_path):
    for net in (random_network((6, 5, 2), leaky_relu(slope)), random_network((2,), "tanh", leaky_relu(slope))):
        net.save(tmp_path / "net.safetensors")
        assert FeedforwardNetwork.load(tmp_path / "net.safetensors") == net


def test_save_refuses_own_activations(tmp_path):
    with pytest.raises(ValueError, match="can be saved, got a custom 'cube'"):
        random_network((3, 2), Activation("cube", np.tanh)).save(tmp_path / "net")
    assert not list(tmp_path.iterdir())


META = {"format": "skident.FeedforwardNetwork", "format_version": "1", "activation": "tanh"}
META |= {"output_activation": "identity"}
GOOD = {"weights.0": np.ones((2, 3)), "biases.0": np.zeros(3)}
BAD_FILES = [
    (GOOD, None, "not written by FeedforwardNetwork.save.* got None"),
    (GOOD, META | {"format": "pt"}, "not written by FeedforwardNetwork.save.* got 'pt'"),
    (GOOD, META | {"format_version": "2"}, "format version '2', this release reads 1"),
    (GOOD, {k: v for k, v in META.items() if k != "activation"}, r"lacks .*\['activation'\]"),
    (GOOD, META | {"activation": "swish"}, "activation must be one of"),
    (GOOD, META | {"activation": "leaky_relu(1.0)"}, "negative_slope must be finite and not 1"),
    (GOOD, META | {"activation": "leaky_relu(e)"}, "could not convert string to float"),
    ({}, META, r"must hold weights\.0.*got \[\]"),
    ({"weights.0": GOOD["weights.0"]}, META, r"must hold weights\.0.*got \['weights\.0'\]"),
    (GOOD | {"extra": np.ones(1)}, META, "must hold weights.*extra"),
    ({k: v.astype(np.float32) for k, v in GOOD.items()}, META, "must hold float64 arrays, got .*float32"),
    (GOOD | {"biases.0": np.zeros(2)}, META, r"biases\[0\] must have one entry"),
    (GOOD | {"biases.0": np.full(3, np.nan)}, META, r"biases\[0\] must be finite"),
]


@pytest.mark.parametrize(("arrays", "metadata", "message"), BAD_FILES)
def test_load_refuses(arrays, metadata, message, tmp_path):
    path = str(tmp_path / "net.safetensors")
    save_file(arrays, path, metadata)
    with pytest.raises(ValueError, match=message):
        FeedforwardNetwork.load(path)


@pytest.mark.parametrize("content", [b"", b"not a network", b"\x80\x04N."])
def test_load_refuses_other_files(content, tmp_path):
    path = tmp_path / "net.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a safetensors file, or damaged"):
        FeedforwardNetwork.load(path)


def test_load_refuses_a_truncated_file(tmp_path):
    path = tmp_path / "net.safetensors"
    random_network((6, 2)).save(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="not a safetensors file, or damaged"):
        FeedforwardNetwork.load(path)


def test_load_of_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        FeedforwardNetwork.load(tmp_path / "nothing")


def test_paths_where_no_file_can_be(tmp_path):
    network = random_network((3, 2))
    with pytest.raises(FileNotFoundError, match="there is no folder .*missing for net"):
        network.save(tmp_path / "missing" / "net")
    with pytest.raises(FileNotFoundError, match="there is no folder .*missing for net"):
        FeedforwardNetwork.load(tmp_path / "missing" / "net")
    with pytest.raises(FileNotFoundError, match="No such file"):
        FeedforwardNetwork.load(tmp_path / "net")
    for use in (network.save, FeedforwardNetwork.load):
        with pytest.raises(IsADirectoryError, match="is a folder; give the path of a file"):
            use(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("layer", [torch.nn.LeakyReLU(0.2), torch.nn.PReLU(init=0.3).double()])
def test_leaky_relu_from_and_to_torch(layer):
    module = torch.nn.Sequential(torch.nn.Linear(4, 3).double(), layer, torch.nn.Linear(3, 2).double())
    network, X = FeedforwardNetwork.from_torch(module), np.random.default_rng(0).standard_normal((20, 4))
    answers = module(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(network(X), answers, rtol=1e-12)
    np.testing.assert_allclose(network.canonical()(X), answers, rtol=1e-12)
    np.testing.assert_allclose(network.to_torch()(torch.from_numpy(X)).detach().numpy(), answers, rtol=1e-12)


def test_prelu_of_several_slopes_is_refused():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.PReLU(3), torch.nn.Linear(3, 2))
    with pytest.raises(ValueError, match="one slope for all units"):
        FeedforwardNetwork.from_torch(module)


# -- summary -----------------------------------------------------------------------------------------------------------


NETWORK = make_network((3, 4, 2), bias_scale=0.5, output_activation="identity", random_state=0)


def test_summary():
    lines = NETWORK.summary().splitlines()
    assert lines[0] == repr(NETWORK)
    assert lines[2].split()[:5] == ["1", "3", "4", "tanh", "16"]
    assert lines[3].split()[:5] == ["2", "4", "2", "identity", "10"]
    assert float(lines[2].split()[5]) == pytest.approx(np.abs(NETWORK.weights[0]).max(), rel=1e-2)
    assert float(lines[2].split()[6]) == pytest.approx(np.abs(NETWORK.biases[0]).max(), rel=1e-2)
    assert lines[4].split() == ["total", "26"] and len({len(line) for line in lines[1:4]}) == 1
    slope = FeedforwardNetwork([[[1.0]], [[1.0]]], [[0.0], [0.0]], leaky_relu(0.25))
    assert "leaky_relu(0.25)" in slope.summary()


def test_every_parameter_has_its_label():
    frame = NETWORK.to_frame()
    assert list(frame.columns) == ["value"] and len(frame) == NETWORK.n_parameters and frame.index.is_unique
    assert frame.index.names == ["layer", "unit", "source"]
    for layer, (W, b) in enumerate(zip(NETWORK.weights, NETWORK.biases), 1):
        for (i, unit), weight in np.ndenumerate(W):
            source = f"x{i}" if layer == 1 else f"unit {i}"
            assert frame.loc[(layer, unit, source), "value"] == weight
        for unit, shift in enumerate(b):
            assert frame.loc[(layer, unit, "bias"), "value"] == shift
    named = NETWORK.to_frame(feature_names=["age", "bmi", "sex"])
    assert named.loc[(1, 2, "bmi"), "value"] == NETWORK.weights[0][1, 2]


def test_standard_errors_of_noisy_outputs():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((200, 3))
    with pytest.warns(UserWarning, match="the outputs carry noise"):
        identifier = NetworkIdentifier(lambda X: NETWORK(X).round(5), layer_widths=(4, 2), random_state=0).fit(X)
    found, truth = identifier.network_, NETWORK.align_to(identifier.network_).to_frame()
    frame = found.to_frame(stderr=identifier.stderr_)
    assert list(frame.columns) == ["value", "stderr"] and (frame["stderr"] > 0).all()
    assert frame.loc[(2, 1, "bias"), "stderr"] == identifier.stderr_[1][1][1]
    assert ((frame["value"] - truth["value"]).abs() / frame["stderr"]).median() < 2.0
    assert found.to_frame(stderr=None).columns.tolist() == ["value"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"stderr": ([np.ones((3, 4))], [np.ones(4)])},
            r"shapes of the weights and biases, .*\(4, 2\).* got \[\(3, 4\)",
        ),
        ({"stderr": 1.0}, "stderr must be a pair of lists of arrays"),
        ({"feature_names": ["a", "b"]}, "feature_names must be 3 names, one per input, got 2"),
    ],
)
def test_to_frame_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        NETWORK.to_frame(**options)


def test_without_pandas_it_is_named(monkeypatch):
    load = builtins.__import__
    monkeypatch.setattr(
        builtins, "__import__", lambda name, *args: load("no_" + name if name == "pandas" else name, *args)
    )
    with pytest.raises(ImportError, match="to_frame needs pandas, which is not installed"):
        NETWORK.to_frame()
