"""Problems on which optional steps of the estimators from data are left out: each row fits one problem per seed."""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import train_test_split

from cases.hierarchical_targets import relative_error, timed
from skident import (
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    PassiveNetworkIdentifier,
    QuadraticNetRegressor,
    SaddleEscapeAnalyzer,
    TensorReLURegressor,
)
from skident.datasets import make_hierarchical_target, make_relu_network


def _regression(model, X, y, Z, z, bar):
    """Relative squared error on held-out samples, processor seconds, and the bar below which a problem is solved."""
    fitted, seconds = timed(model.fit, X, y)
    return relative_error(fitted, Z, z), seconds, bar


def _hierarchical(seed, d, widths, n, noise=0.0, given="auto", bar=0.01, signed=False, **options):
    rng = np.random.RandomState(seed)
    target = make_hierarchical_target(d, widths, random_state=rng, signed=signed)
    X, Z = target.sample(n, rng), target.sample(5000, rng)
    y = target(X)
    y = y + noise * y.std() * rng.standard_normal(n)
    return _regression(HierarchicalQuadraticNet(given, random_state=0, **options), X, y, Z, target(Z), bar)


def _form(seed, rank, noise):
    from parts.hierarchical.signed import form

    return _regression(HierarchicalQuadraticNet((rank,), random_state=0), *form(seed, rank, noise), 0.02)


def _table(seed, name, model):
    X, y = load_diabetes(return_X_y=True) if name == "diabetes" else make_friedman1(400, noise=1.0, random_state=seed)
    X, Z, y, z = train_test_split(X, y, test_size=0.25, random_state=seed)
    return _regression(model, X, y, Z, z, None)


def _signs(seed, signed, d=10, n=3000):
    rng = np.random.RandomState(seed)
    target = make_hierarchical_target(d, (3, 2), random_state=rng, signed=signed)
    X, Z = target.sample(n, rng), target.sample(5000, rng)
    f, g = target(X), target(Z)
    x0, z0 = (rng.standard_normal(len(v)) * f.std() - np.median(f) for v in (f, g))
    net = HierarchicalQuadraticNetClassifier((3, 2), loss="theorem4", offset_column=0, random_state=seed)
    net, seconds = timed(net.fit, np.column_stack([x0, X]), x0 + f > 0)
    return 1.0 - net.score(np.column_stack([z0, Z]), z0 + g > 0), seconds, 0.025


def _relu(seed, d, m, n, noise, given=False, inputs="Gaussian"):
    from parts.relu.inputs import DRAWS

    network, rng = make_relu_network(1, d, m, random_state=seed)[2], np.random.RandomState(seed + 7)
    draw = DRAWS.get(inputs, lambda rng, n, d: rng.standard_normal((n, d)))
    X, Z = draw(rng, n, d), draw(rng, 5000, d)
    y = network(X)[:, 0]
    y, bar = y + noise * y.std() * rng.standard_normal(n), 2.0 * noise**2 * m * (d + 1) / n or 1e-12
    return _regression(TensorReLURegressor(m if given else None, random_state=0), X, y, Z, network(Z)[:, 0], bar)


def _few(seed, n, noise):
    from parts.relu.few_samples import planted

    return _regression(TensorReLURegressor(random_state=0), *planted(seed, n, noise, 1.0), None)


def _passive(seed, widths, noise, given=False):
    from parts.passive import planted

    truth, X, Y, rng = planted(widths, "tanh", seed)
    y, Z = Y[:, 0] + noise * Y.std() * rng.standard_normal(len(Y)), rng.standard_normal((3000, X.shape[1]))
    model = PassiveNetworkIdentifier(truth.layer_widths if given else "auto", random_state=seed)
    return _regression(model, X, y, Z, truth(Z)[:, 0], 1.5 * truth.n_parameters * noise**2 / len(X) or 1e-16)


def _quadratic(seed, d=8, n=150, rank=3, noise=0.1, signed=True, **options):
    """Solved if the certificate proves the optimum global."""
    rng = np.random.RandomState(seed)
    X, A = rng.standard_normal((n, d)), rng.standard_normal((d, rank)) / d**0.5
    signs = np.where(np.arange(rank) % 2, -1.0, 1.0) if signed else np.ones(rank)
    y = ((X @ A) ** 2) @ signs + noise * rng.standard_normal(n)
    net, seconds = timed(QuadraticNetRegressor(random_state=0, **options).fit, X, y)
    return float(not net.certificate_.is_global), seconds, 0.5


def _escape(seed, n, d, depth):
    """The inverse of the speed stands for an error."""
    rng = np.random.RandomState(seed)
    analyzer = SaddleEscapeAnalyzer(depth=depth, fit_intercept=False, random_state=0)
    analyzer, seconds = timed(analyzer.fit, rng.standard_normal((n, d)), rng.standard_normal(n))
    return 1.0 / analyzer.escape_speed_, seconds, None


_AUTO = HierarchicalQuadraticNet("auto", random_state=0)
ROWS = {
    "widths auto, N = 200": partial(_hierarchical, d=20, widths=(3, 2), n=200),
    "widths auto, noise 0.3": partial(_hierarchical, d=10, widths=(3,), n=180, noise=0.3, bar=0.12),
    "widths auto, degree 16": partial(_hierarchical, d=8, widths=(3, 2, 2), n=1000, bar=1e-8),
    "widths auto, friedman1": lambda seed: _table(seed, "friedman1", _AUTO),
    "widths auto, diabetes": lambda seed: _table(seed, "diabetes", _AUTO),
    "sum (3, 2), signed": partial(_hierarchical, d=10, widths=(3, 2), n=1000, given=(3, 2), signed=True, bar=1e-6),
    "sum (3, 2), noise 0.3": partial(_hierarchical, d=10, widths=(3, 2), n=600, noise=0.3, given=(3, 2), bar=0.12),
    "sum (4, 4), N = 200, noise 0.3": partial(
        _hierarchical, d=10, widths=(3, 2), n=200, noise=0.3, given=(4, 4), bar=1.1
    ),
    "sum, form of rank 3, noise 0.05": partial(_form, rank=3, noise=0.05),
    "sum, diabetes": lambda seed: _table(seed, "diabetes", HierarchicalQuadraticNet(random_state=0)),
    "signs of a sum": partial(_signs, signed=False),
    "signs of a signed sum": partial(_signs, signed=True),
    "ReLU (5, 10), noise 0.3": partial(_relu, d=5, m=10, n=10_000, noise=0.3),
    "ReLU (10, 10), given, noise 0.1": partial(_relu, d=10, m=10, n=5000, noise=0.1, given=True),
    "ReLU (3, 8), given": partial(_relu, d=3, m=8, n=20_000, noise=0.0, given=True),
    "ReLU (3, 8)": partial(_relu, d=3, m=8, n=20_000, noise=0.0),
    "ReLU (10, 5), uniform inputs": partial(_relu, d=10, m=5, n=5000, noise=0.1, inputs="uniform"),
    "ReLU (10, 5), Student t": partial(_relu, d=10, m=5, n=5000, noise=0.1, inputs="Student t, 3 degrees"),
    "ReLU (10, 5), 250 samples": partial(_few, n=250, noise=0.3),
    "samples (8, 1), noise 0.1": partial(_passive, widths=(8, 1), noise=0.1),
    "samples (6, 4, 1)": partial(_passive, widths=(6, 4, 1), noise=0.0),
    "samples (6, 4, 1), given, noise 0.1": partial(_passive, widths=(6, 4, 1), noise=0.1, given=True),
    "quadratic, descent": partial(_quadratic, solver="descent", alpha=0.0),
    "quadratic, descent, ridge": partial(_quadratic, solver="descent", alpha=0.01),
    "quadratic, one sign": partial(_quadratic, output_signs="positive", signed=False, alpha=0.0),
    "quadratic, few samples": partial(_quadratic, d=20, n=100, alpha=0.0),
    "escape, three layers": partial(_escape, n=40, d=4, depth=3),
    "escape, four layers": partial(_escape, n=12, d=3, depth=4),
}
