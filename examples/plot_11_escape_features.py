"""
Hidden activations of escape directions
=======================================

`SaddleEscapeAnalyzer` trains no network, yet its escape networks contain what reduces
the loss first. As a transformer it passes their hidden activations to a
`LogisticRegression`, one feature per component; every further component is the fastest
escape for the gradient that the earlier ones leave. `GridSearchCV` chooses the depth.
The picture compares the pipeline with as many principal components, and with all 64
pixels: what reduces the loss first is not all that matters. For prediction, partial
least squares is faster and mostly as good.
"""

import time

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skident import SaddleEscapeAnalyzer


def grey_levels(X):
    """Pixels with mean about zero and standard deviation about one, over all pixels."""
    return (X - 5.0) / 6.0


# %%
# The pipeline: activations of escape directions, then logistic regression.
X, y = load_digits(return_X_y=True)
X, fresh_X, y, fresh_y = train_test_split(
    X, y, train_size=600, random_state=0, stratify=y
)
escapes = SaddleEscapeAnalyzer(
    loss="log_loss",
    width=16,
    n_starts=2,
    max_iter=30,
    n_components=12,
    dtype="float32",
    random_state=0,
)
pipeline = Pipeline(
    [
        ("grey", FunctionTransformer(grey_levels)),
        ("escapes", escapes),
        ("scale", StandardScaler()),
        ("classify", LogisticRegression(max_iter=1000)),
    ]
)

# %%
# Choose the depth by cross-validation.
start = time.perf_counter()
depths = [2, 3, 4]
search = GridSearchCV(pipeline, {"escapes__depth": depths}, cv=3).fit(X, y)
print(f"searched depths {depths} in {time.perf_counter() - start:.0f} s")
scores = search.cv_results_["mean_test_score"]
for depth, score in zip(depths, scores):
    print(f"depth {depth}: accuracy {score:.3f} in cross-validation")
chosen = search.best_params_["escapes__depth"]
print(
    f"chosen: depth {chosen}, accuracy {search.score(fresh_X, fresh_y):.3f} on "
    "held-out digits"
)

# %%
# The same regression on principal components, and on all pixels.
rivals = {
    "12 principal components": make_pipeline(
        PCA(12), StandardScaler(), LogisticRegression(max_iter=1000)
    ),
    "64 pixels": make_pipeline(
        FunctionTransformer(grey_levels), LogisticRegression(max_iter=1000)
    ),
}
bars = {f"12 escapes, depth {depth}": score for depth, score in zip(depths, scores)}
for name, rival in rivals.items():
    bars[name] = cross_val_score(rival, X, y, cv=3).mean()
    print(f"{name}: accuracy {bars[name]:.3f} in cross-validation")

# %%
# All accuracies.
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
drawn = ax.barh(
    list(bars),
    list(bars.values()),
    color=["#0072B2"] * len(depths) + ["0.6"] * len(rivals),
)
ax.bar_label(drawn, fmt="%.3f", padding=3)
ax.invert_yaxis()
ax.set(xlim=(0, 1.1), xlabel="accuracy, 3-fold cross-validation on 600 digits")
ax.set_title("Logistic regression on escape features")
figure.savefig("escape_features.png", dpi=200)
