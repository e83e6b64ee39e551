"""
Recovering the weights of a scikit-learn regressor
==================================================

scikit-learn trains a tanh `MLPRegressor` with eight hidden units on the diabetes data.
`NetworkIdentifier` receives its `predict` alone: no weights, no gradients, no
activation, no number of hidden units. It queries `predict` at inputs of its own choice
and returns a network. Hidden units have no order, and the signs of a tanh unit's
weights can be flipped on both sides without changing the outputs. The example aligns
the two networks before it compares them.
"""

import time

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

from skident import NetworkIdentifier
from skident.inspection import WeightRecoveryDisplay
from skident.network import FeedforwardNetwork

# %%
# Train the model; only `predict` is public.
X, y = load_diabetes(return_X_y=True)
X, y = scale(X), scale(y)
mlp = MLPRegressor(
    hidden_layer_sizes=(8,),
    activation="tanh",
    solver="lbfgs",
    alpha=1.0,
    max_iter=2000,
    random_state=0,
).fit(X, y)
print(
    f"trained: {mlp.n_iter_} iterations, R^2 = {mlp.score(X, y):.3f} on the training "
    "data"
)

# %%
# Recover the network. X sets the location and scale of each input.
start = time.perf_counter()
identifier = NetworkIdentifier(mlp.predict, random_state=0).fit(X)
seconds = time.perf_counter() - start
found = identifier.network_
print(
    f"recovered: {found.activation}, {found.n_inputs} inputs, layers of "
    f"{found.layer_widths} units, {found.n_parameters} parameters"
)
print(f"{identifier.n_queries_:,} queries in {seconds:.2f} s")
print(
    "relative maximum error on held-out inputs: "
    f"{identifier.report_.relative_max_error:.1e}"
)

# %%
# Compare every weight and bias with the true one.
truth = FeedforwardNetwork.from_sklearn(mlp)
aligned = found.align_to(truth)
for i in range(truth.n_layers):
    print(
        f"coefs_[{i}]: maximum absolute error "
        f"{np.abs(aligned.weights[i] - mlp.coefs_[i]).max():.1e}"
    )
    print(
        f"intercepts_[{i}]: maximum absolute error "
        f"{np.abs(aligned.biases[i] - mlp.intercepts_[i]).max():.1e}"
    )

display = WeightRecoveryDisplay.from_networks(truth, found)
display.ax_.set_title("Weights of an MLPRegressor, recovered from predict")
display.figure_.savefig("recovered_mlp.png", dpi=200)
print("picture: recovered_mlp.png")
