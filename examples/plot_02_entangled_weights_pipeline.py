"""
Tuning the radius of entangled weight extraction
================================================

Near a point, the Hessians of a network are combinations of rank-one matrices, one per
hidden or output unit: the outer products of its entangled weights.
`EntangledWeightExtractor` recovers these weights, and `NetworkCompletion` fits the
missing scales and biases. Both form a `Pipeline`, so that `GridSearchCV` can tune the
radius within which Hessians are sampled. If it is too large, the entangled weights vary
within it; if it is too small, the Hessians hardly differ. The black box is a random
network with three layers, of which only function values are available.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skident import (
    EntangledWeightExtractor,
    IdentifierOptions,
    NetworkCompletion,
    NetworkIdentifier,
)
from skident.datasets import make_pyramidal_network
from skident.inspection import SpectrumDisplay
from skident.metrics import (
    assignment_error,
    false_positive_rate,
    recovery_rate,
    relative_max_error,
)

RADII = [0.01, 0.1, 0.3, 0.5, 0.7]  # in standard deviations of the inputs


def search_radius(black_box, layer_widths, X):
    """The pipeline, fitted with the radius that best predicts held-out outputs."""
    pipeline = make_pipeline(
        EntangledWeightExtractor(
            black_box,
            layer_widths=layer_widths,
            activation="tanh",
            output_activation="tanh",
            # one point for all folds; the default is the mean of X
            center=np.zeros(X.shape[1]),
            # the paper's method; the default recovers this layer where tanh saturates
            first_layer="hessian",
            random_state=0,
        ),
        NetworkCompletion(
            layer_widths, activation="tanh", output_activation="tanh", random_state=0
        ),
    )
    search = GridSearchCV(
        pipeline, {"entangledweightextractor__radius": RADII}, scoring="r2", cv=3
    )
    return search.fit(X, black_box(X))


def print_weight_errors(network, extractor):
    """Print the errors of entangled weights, compared with the true ones."""
    truth = [V.T for V in network.entangled_weights(extractor.center_)]
    found = extractor.components_
    print(
        f"weights: {len(found)} recovered, recovery rate "
        f"{recovery_rate(np.vstack(truth), found):.3f}, "
        f"false positives {false_positive_rate(np.vstack(truth), found):.3f}"
    )
    first, last = (
        found[extractor.layer_assignment_ == layer] for layer in (0, len(truth) - 1)
    )
    print(
        f"first layer E_1 = {assignment_error(truth[0], first):.1e}, "
        f"last layer E_L = {assignment_error(truth[-1], last):.1e}"
    )


# %%
# The black box: a random network with 20 inputs, of which only function values are
# used.
seed = 5008
network = make_pyramidal_network(20, 3, 5, 37, random_state=seed)


def black_box(X):
    return network(X)


rng = np.random.default_rng(seed)
X, X_fresh = rng.standard_normal((300, 20)), rng.standard_normal((1000, 20))
Y_fresh = black_box(X_fresh)

# %%
# Choose the radius by cross-validation.
search = search_radius(black_box, network.layer_widths, X)
for radius, score in zip(RADII, search.cv_results_["mean_test_score"]):
    print(f"radius {radius:<4g}: 1 - R^2 = {1 - score:.2e}")

# %%
# Compare the entangled weights of the best extractor with the true ones.
extractor = search.best_estimator_[0]
print(f"chosen: {extractor.radius:g}; {extractor.n_queries_} queries per fit")
print_weight_errors(network, extractor)
predicted = search.predict(X_fresh)
print(
    f"pipeline: relative maximum error {relative_max_error(Y_fresh, predicted):.1e} "
    "on held-out inputs"
)

# %%
# NetworkIdentifier runs the same two stages and then polishes all weights at once.
identifier = NetworkIdentifier(
    black_box,
    layer_widths=network.layer_widths,
    output_activation="tanh",
    options=IdentifierOptions(strategy="hessian"),
    random_state=0,
).fit(X)
error = relative_max_error(Y_fresh, identifier.predict(X_fresh))
print(f"with the polish: relative maximum error {error:.1e} on held-out inputs")


# %%
# The Hessians' spectrum and the weights in it; the scores by radius; the outputs.
figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
SpectrumDisplay.from_estimator(search.best_estimator_[0], ax=axes[0])
errors, chosen = (
    1 - search.cv_results_["mean_test_score"],
    search.best_params_["entangledweightextractor__radius"],
)
axes[1, 0].plot(RADII, errors, "o-", color="#0072B2", markersize=5)
axes[1, 0].axvline(chosen, color="0.5", linestyle="--", linewidth=1)
axes[1, 0].set(
    xlabel="radius of the neighborhood",
    ylabel="1 - $R^2$, cross-validated",
    yscale="log",
)
axes[1, 0].set_ylim(
    10 ** np.floor(np.log10(errors.min())), 10 ** np.ceil(np.log10(errors.max()))
)
axes[1, 0].set_title("Error by radius (dashed: chosen)", fontsize="medium")
axes[1, 1].axline((0, 0), slope=1, color="0.7", linewidth=1, zorder=0)
axes[1, 1].plot(
    Y_fresh.ravel(),
    predicted.ravel(),
    "o",
    color="#0072B2",
    markersize=3,
    alpha=0.4,
    markeredgewidth=0,
)
axes[1, 1].set(xlabel="output of the black box", ylabel="output of the pipeline")
axes[1, 1].locator_params(nbins=5)
axes[1, 1].set_title("Outputs on held-out inputs", fontsize="medium")
figure.savefig("entangled_weights.png", dpi=200)
