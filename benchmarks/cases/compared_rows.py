"""The rows by which two versions of identification are compared: networks as arrays, deployments, hints, limits.

Nothing here imports the package: both versions see the same networks, inputs and outputs.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf, expit, softmax
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

POLICIES = Path(__file__).resolve().parent / "policies"
PUBLIC = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "public"  # absent elsewhere: rows are skipped
TIMES_OUTPUT_ERROR = 20.0  # an inexact output's network counts as recovered within so many errors of the outputs
N_ROWS = 500  # of X
N_HELD_OUT = 3000

ACTIVATIONS = {
    "identity": lambda Z: Z,
    "linear": lambda Z: Z,
    "relu": lambda Z: np.maximum(Z, 0),
    "leaky relu": lambda Z: np.where(Z > 0, Z, 0.1 * Z),
    "tanh": np.tanh,
    "logistic": expit,
    "sigmoid": expit,
    "erf": erf,
    "gelu": lambda Z: Z * (1 + erf(Z / np.sqrt(2))) / 2,
    "softplus": lambda Z: np.logaddexp(Z, 0),
    "softmax": functools.partial(softmax, axis=1),
}


@dataclass(frozen=True)
class Network:
    """Weights (n, m), biases (m,) and the name of each layer's activation; the outputs of X (n, D) as (n, m_L)."""

    weights: list
    biases: list
    activations: tuple

    def __call__(self, X):
        for W, b, name in zip(self.weights, self.biases, self.activations, strict=True):
            X = ACTIVATIONS[name](X @ W + b)
        return X

    def outputs_through(self, name):
        """The network with another activation of the outputs."""
        return Network(self.weights, self.biases, (*self.activations[:-1], name))


def random(activation, *sizes, scale=1.0):
    """Hidden weights of `scale` times the usual variance, biases of .3 standard deviations, Gaussian inputs."""

    def draw(seed):
        rng, gain = np.random.default_rng(seed), np.sqrt(2.0) if "relu" in activation else 1.0
        shapes = list(zip(sizes, sizes[1:], strict=False))
        gains = [gain * scale] * (len(shapes) - 1) + [gain]
        weights = [g * rng.standard_normal(shape) / np.sqrt(shape[0]) for g, shape in zip(gains, shapes, strict=True)]
        biases = [0.3 * rng.standard_normal(m) for _, m in shapes]
        network = Network(weights, biases, (*[activation] * (len(shapes) - 1), "identity"))
        return network, rng.standard_normal((N_ROWS, sizes[0]))

    return draw


def trained(data, activation, *hidden, solver="adam"):
    """scikit-learn's perceptron on standardized inputs; a classifier's outputs are its logits."""

    def draw(seed):
        X, y = getattr(datasets, f"load_{data}")(return_X_y=True)
        X = StandardScaler(with_std=data != "digits").fit_transform(X)
        regression = data == "diabetes"
        estimator = MLPRegressor if regression else MLPClassifier
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            options = {"activation": activation, "solver": solver, "max_iter": 300, "random_state": seed}
            mlp = estimator(hidden_layer_sizes=hidden, **options)
            mlp.fit(X, (y - y.mean()) / y.std() if regression else y)
        return Network(mlp.coefs_, mlp.intercepts_, (*[activation] * len(hidden), "identity")), X

    return draw


def policy(environment):
    """A control policy trained by PPO, at Gaussian inputs."""

    def draw(seed):
        parameters = load_file(next(POLICIES.glob(f"{environment}_*.safetensors")))
        layers = sorted({name.split(".")[0] for name in parameters}, key=int)
        weights, biases = ([np.float64(parameters[f"{k}.{kind}"]) for k in layers] for kind in ("weight", "bias"))
        network = Network([W.T for W in weights], biases, (*["tanh"] * (len(layers) - 1), "identity"))
        return network, np.random.default_rng(seed).standard_normal((N_ROWS, len(network.weights[0])))

    return draw


def public(name, low, high):
    """A network that others trained and published, at inputs drawn evenly from a box or, without one, Gaussian."""

    def draw(seed):
        with np.load(PUBLIC / f"{name}.npz") as file:
            depth = len(file["activations"])
            layers = [(file[f"W{k}"], file[f"b{k}"]) for k in range(depth)]
            names = tuple(str(a) for a in file["activations"])
        rng, shape = np.random.default_rng(seed), (N_ROWS, len(layers[0][0]))
        X = rng.standard_normal(shape) if low is None else rng.uniform(low, high, shape)
        return Network([np.float64(W) for W, _ in layers], [np.float64(b) for _, b in layers], names), X

    return draw


def _as_it_is(network, X):
    return network


def in_float32(network, X):
    """Computed and returned in single precision."""
    weights, biases = ([np.float32(A) for A in arrays] for arrays in (network.weights, network.biases))
    single = Network(weights, biases, network.activations)
    return lambda U: np.float32(single(np.float32(U)))


def to_decimals(digits):
    """Outputs, divided by their standard deviation, rounded to so many decimals."""

    def deployed(network, X):
        scale = network(X).std()
        return lambda U: np.round(network(U) / scale, digits) * scale

    return deployed


def with_noise(level):
    """Gaussian noise in units of the outputs' standard deviations, the same for the same input."""

    def deployed(network, X):
        scale = level * network(X).std(axis=0)

        def outputs(U):
            Y = network(U)
            digits = np.abs(np.frexp(U @ np.linspace(1.0, 2.0, U.shape[1]))[0])  # of a number that names the input
            seeds = (digits * 2.0**52).astype(np.uint64)
            draws = [np.random.Generator(np.random.PCG64(seed)).standard_normal(Y.shape[1]) for seed in seeds]
            return Y + scale * np.stack(draws)

        return outputs

    return deployed


def clipped(network, X):
    """Outputs cut at their quantiles .1 and .9 of the data."""
    low, high = np.quantile(network(X), [0.1, 0.9], axis=0)
    return lambda U: np.clip(network(U), low, high)


def through(name):
    """Outputs through an activation."""
    return lambda network, X: network.outputs_through(name).__call__


def labels(network, X):
    """The class of the largest logit, or the sign of one."""
    return lambda U: (network(U)[:, 0] > 0).astype(int) if network(U[:1]).shape[1] == 1 else network(U).argmax(axis=1)


@dataclass(frozen=True)
class Row:
    """One kind of network.

    Attributes
    ----------
    draw : callable
        Seed to (network, X).
    deployed : callable
        (network, X) to the black box.
    given : dict
        Parameters of `NetworkIdentifier` beside the model.
    seconds : float
        Processor time that a fit may take.
    error : float or None
        Largest error over the standard deviation of the outputs at which a network counts as recovered; of labels the
        share of other labels; None: by `TIMES_OUTPUT_ERROR`.
    networks : int or None
        Fewer than of other rows, where there are no more.
    """

    name: str
    draw: Callable
    deployed: Callable = _as_it_is
    given: dict = field(default_factory=dict)
    seconds: float = 15.0
    error: float | None = 1e-6
    networks: int | None = None

    @property
    def output_kind(self):
        """What the black box returns: "values", "probabilities" or "labels"."""
        by_method = {"predict_proba": "probabilities", "labels": "labels"}
        return by_method.get(self.given.get("response_method"), "values")


def _relu_rows():
    for sizes in ((10, 32, 1), (4, 24, 1), (20, 60, 1), (8, 12, 3), (3, 8, 1)):
        yield Row("relu " + "-".join(map(str, sizes)), random("relu", *sizes))
    two = ((12, 9, 7, 1), (30, 14, 8, 1), (15, 12, 12, 1), (10, 12, 8, 1), (10, 16, 8, 4), (6, 16, 12, 4))
    for sizes in (*two, (20, 30, 30, 10), (64, 32, 32, 10), (6, 8, 5, 2)):
        yield Row("relu " + "-".join(map(str, sizes)), random("relu", *sizes))
    for sizes in ((64, 40, 20, 1), (14, 10, 7, 4, 1), (12, 10, 8, 8, 4), (10, 8, 6, 4, 1), (20, 10, 10, 10, 5, 1)):
        yield Row("relu " + "-".join(map(str, sizes)), random("relu", *sizes), seconds=25.0)
    yield Row("leaky relu 10-10-10-1", random("leaky relu", 10, 10, 10, 1))
    for data, hidden in (("diabetes", (9, 7)), ("diabetes", (14, 7, 4)), ("digits", (32,)), ("digits", (32, 32))):
        yield Row(f"relu trained on {data} {hidden}", trained(data, "relu", *hidden), seconds=25.0)


def _inexact_rows():
    for name, deployed in (("float32", in_float32), ("6 decimals", to_decimals(6)), ("noise 1e-6", with_noise(1e-6))):
        for activation, sizes in (("relu", (12, 10, 1)), ("relu", (12, 10, 8, 2)), ("tanh", (10, 8, 1))):
            kind = f"{activation} {'-'.join(map(str, sizes))}, {name}"
            yield Row(kind, random(activation, *sizes), deployed, error=None)
    for level in (1e-3, 1e-2):
        name, network = f"tanh 10-8-1, noise {level:g}", random("tanh", 10, 8, 1)
        yield Row(name, network, with_noise(level), error=None, seconds=30.0)
    yield Row("relu 10-8-1, noise 1e-3", random("relu", 10, 8, 1), with_noise(1e-3), error=None)
    yield Row("sigmoid 10-8-5-1, float32", random("sigmoid", 10, 8, 5, 1), in_float32, error=None, seconds=25.0)


def _smooth_rows():
    shapes = {
        "tanh": ((10, 8, 1), (20, 16, 12, 1), (6, 12, 5, 3), (17, 24, 24, 6), (10, 20, 8, 1), (24, 24, 24, 2)),
        "sigmoid": ((10, 8, 5, 1), (6, 24, 1), (12, 12, 12, 2)),
        "erf": ((10, 8, 1), (8, 6, 4, 1)),
        "gelu": ((10, 16, 1),),
        "softplus": ((10, 16, 1),),
    }
    for activation, some in shapes.items():
        for sizes in some:
            yield Row(f"{activation} {'-'.join(map(str, sizes))}", random(activation, *sizes))
    yield Row("tanh 20-16-10-5 through tanh", random("tanh", 20, 16, 10, 5), through("tanh"))
    hints = {"layer_widths": (16, 10, 5), "activation": "tanh", "output_activation": "tanh"}
    yield Row("tanh 20-16-10-5 through tanh, given", random("tanh", 20, 16, 10, 5), through("tanh"), hints)
    for sizes in ((12, 12, 8, 2), (10, 8, 6, 1), (8, 20, 12, 2), (6, 5, 12, 1), (10, 7, 16, 5)):
        name, widths = "-".join(map(str, sizes)), {"layer_widths": sizes[1:], "activation": "tanh"}
        yield Row(f"tanh {name}, given", random("tanh", *sizes), given=widths, seconds=25.0)
    yield Row("tanh 14-10-8-6-1", random("tanh", 14, 10, 8, 6, 1), seconds=25.0)
    for data, hidden in (("diabetes", (10, 6)), ("digits", (20,))):
        yield Row(f"tanh trained on {data} {hidden}", trained(data, "tanh", *hidden))


def _deployed_rows():
    chances, classes = {"response_method": "predict_proba"}, {"response_method": "labels"}
    for data, activation, hidden in (
        ("wine", "relu", (20, 10)),
        ("digits", "relu", (32,)),
        ("iris", "relu", (12, 8)),
        ("iris", "tanh", (8,)),
        ("wine", "logistic", (10,)),
    ):
        name = f"{activation} trained on {data} {hidden}, probabilities"
        yield Row(name, trained(data, activation, *hidden), through("softmax"), chances)
    yield Row("relu 8-10-3, labels", random("relu", 8, 10, 3), labels, classes, seconds=40.0, error=1e-3)
    yield Row("relu 6-8-1, labels", random("relu", 6, 8, 1), labels, classes, seconds=40.0, error=1e-3)
    for activation in ("relu", "tanh"):
        yield Row(f"{activation} 8-10-2, clipped", random(activation, 8, 10, 2), clipped)
        yield Row(f"{activation} 8-10-2 through sigmoid", random(activation, 8, 10, 2), through("sigmoid"))
    yield Row("relu 8-10-2 through tanh", random("relu", 8, 10, 2), through("tanh"))
    yield Row("relu 8-10-2 through relu", random("relu", 8, 10, 2), through("relu"))


def _raising_row():
    def raises(network, X):
        def outputs(U):
            raise RuntimeError("no outputs")

        return outputs

    yield Row("a model that raises", random("relu", 4, 3, 1), raises, networks=1)


def _public_rows():
    boxes = {
        "rpd_gcas": (-1, 1), "rpd_vdp": (-1, 1), "rl_cartpole": (-1, 1), "arch_dpend_more": (-1, 1), "tll_8": (-2, 2),
        "safenlp_medical": (None, None), "nv_mnist1": (0, 1), "nv_cartpole": (-1, 1), "arch_nav_set": (-1, 1),
        "arch_unicycle": (-1, 1), "arch_vcas1": (-0.5, 0.5), "acasxu_1_1": (-0.5, 0.5), "mnist784_8x2_1": (0, 1),
        "40_20x2_1_Carlini": (None, None), "gnubg_prune16": (0, 1),
    }  # fmt: skip
    for name, box in boxes.items():
        if (PUBLIC / f"{name}.npz").exists():
            yield Row(f"public {name}", public(name, *box), seconds=40.0, networks=1)


def _deep_smooth_rows():
    shapes = {
        "tanh": ((20, 60, 1), (6, 24, 1), (10, 8, 5, 1), (32, 16, 16, 1), (64, 48, 24, 10)),
        "sigmoid": ((10, 8, 1), (20, 16, 12, 1)),
        "erf": ((10, 8, 5, 1), (20, 16, 12, 1)),
    }
    for activation, some in shapes.items():
        for sizes in some:
            yield Row(f"{activation} {'-'.join(map(str, sizes))}", random(activation, *sizes), seconds=25.0)
    for sizes in ((10, 8, 1), (10, 8, 5, 1), (20, 16, 12, 1)):
        name = "-".join(map(str, sizes))
        yield Row(f"tanh {name}, weights x 3", random("tanh", *sizes, scale=3.0), seconds=25.0)
    for solver in ("adam", "lbfgs"):
        draw = trained("diabetes", "tanh", 16, 16, solver=solver)
        yield Row(f"tanh trained on diabetes (16, 16) by {solver}", draw, seconds=25.0)
    yield Row("tanh 17-64-64-6", random("tanh", 17, 64, 64, 6), seconds=60.0)
    for sizes in ((20, 16, 12, 8, 5), (40, 40, 30, 20, 10), (784, 32, 10)):
        yield Row(f"tanh {'-'.join(map(str, sizes))}", random("tanh", *sizes), seconds=60.0)
    for environment in ("HalfCheetah-v5", "Walker2d-v5", "Hopper-v5", "Ant-v5", "Pusher-v5"):
        yield Row(f"policy {environment}", policy(environment), seconds=120.0, networks=1)
    for environment in ("LunarLander-v3", "Acrobot-v1", "CartPole-v1", "Pendulum-v1"):
        yield Row(f"policy {environment}", policy(environment), seconds=60.0, networks=1)


def _deep_relu_rows():
    """Further deep networks with one output."""
    yield Row("relu 10-15-15-1", random("relu", 10, 15, 15, 1))
    yield Row("relu 30-64-64-1", random("relu", 30, 64, 64, 1), seconds=120.0, networks=10)
    yield Row("relu trained on diabetes (15, 8)", trained("diabetes", "relu", 15, 8), seconds=25.0)


def _narrow_rows():
    """Networks with fewer inputs than units, and leaky ones; the last rows, so that the others keep their seeds."""
    yield Row("tanh 3-8-8-1", random("tanh", 3, 8, 8, 1))
    yield Row("tanh 3-12-12-1", random("tanh", 3, 12, 12, 1))
    hints = {"layer_widths": (12, 12, 1), "activation": "tanh"}
    yield Row("tanh 3-12-12-1, given", random("tanh", 3, 12, 12, 1), given=hints)
    yield Row("leaky relu 10-16-1", random("leaky relu", 10, 16, 1))


@functools.cache
def rows():
    """All rows by name."""
    kinds = (_relu_rows, _inexact_rows, _smooth_rows, _deployed_rows, _raising_row, _public_rows)
    kinds += (_deep_smooth_rows, _deep_relu_rows, _narrow_rows)
    return {row.name: row for kind in kinds for row in kind()}
