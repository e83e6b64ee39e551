"""
Recovering two hidden layers with unknown widths
================================================

scikit-learn trains two regressors with two hidden tanh layers, one on the diabetes data
(one output), one on the digits (one output per digit, pixels that vary).
`NetworkIdentifier` receives their `predict` and ``layer_widths="auto"``: neither depth
nor widths are given. It recovers the first layer at large inputs, where tanh is
constant except near each unit's hyperplane, and then the smallest network that explains
the remaining outputs.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

from skident import NetworkIdentifier
from skident.inspection import WeightRecoveryDisplay
from skident.metrics import parameter_error
from skident.network import FeedforwardNetwork


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X), scale(y)


def digits():
    X, digit = load_digits(return_X_y=True)
    return scale(X[:, X.std(axis=0) > 0.5]), np.eye(10)[digit]


# %%
# Train two models; only their `predict` is public.
models = {}
for data, hidden in ((diabetes, (8, 5)), (digits, (16, 8))):
    X, Y = data()
    mlp = MLPRegressor(
        hidden_layer_sizes=hidden, activation="tanh", max_iter=1000, random_state=0
    ).fit(X, Y)
    print(f"{data.__name__}: trained, R^2 = {mlp.score(X, Y):.2f} on the training data")
    models[data.__name__] = X, mlp

# %%
# Recover both. The samples set the location and scale of the inputs.
recovered = {}
for name, (X, mlp) in models.items():
    start = time.perf_counter()
    identifier = NetworkIdentifier(
        mlp.predict, layer_widths="auto", activation="tanh", random_state=0
    ).fit(X)
    seconds = time.perf_counter() - start
    found, report = identifier.network_, identifier.report_
    print(f"{name}: layers of {found.layer_widths} units, exact: {report.exact}")
    print(
        f"  relative maximum error on held-out inputs: {report.relative_max_error:.1e}"
    )
    print(
        f"  {identifier.n_queries_:,} queries, {seconds:.1f} s, route: {report.route}"
    )
    recovered[name] = found

# %%
# Compare every weight and bias with the true one, one column per model.
figure, axes = plt.subplots(
    2, 2, figsize=(10, 6.5), height_ratios=(3, 2), sharex="col", layout="constrained"
)
for column, (name, found) in zip(axes.T, recovered.items()):
    truth = FeedforwardNetwork.from_sklearn(models[name][1])
    error = parameter_error(truth, found)
    print(f"{name}: maximum relative error of a weight or bias: {error:.1e}")
    display = WeightRecoveryDisplay.from_networks(truth, found, ax=column)
    display.ax_.set_title(
        f"{name}: {found.n_inputs} inputs, {found.layer_widths} units"
    )
figure.savefig("deep_mlp.png", dpi=200)
