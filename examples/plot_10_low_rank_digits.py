"""
Training from small weights goes through low-rank networks
==========================================================

A bias-free ReLU network with four layers of weights is trained on the digits from small
weights. Its loss has plateaus, each near a saddle. After the first escape every layer
has one large singular value, as theory predicts, more clearly in deeper layers; after
the second escape there are two. `SaddleEscapeAnalyzer` predicts speed and rank of the
first escape before training. The picture shows the loss with the detected saddles, and
the singular values of every layer.
"""

import time

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from skident import SaddleEscapeAnalyzer, SaddleToSaddleClassifier
from skident.inspection import EscapeDisplay, SingularSpectrumDisplay

# %%
# Before training: the analyzer predicts the speed and the rank of the first escape.
max_iter = 900
X, y = load_digits(return_X_y=True)
X = (X - X.mean()) / X.std()
analyzer = SaddleEscapeAnalyzer(
    loss="log_loss",
    depth=4,
    width=30,
    n_starts=4,
    max_iter=60,
    dtype="float32",
    random_state=0,
).fit(X, y)
print(
    f"before training: escape speed {analyzer.escape_speed_:.4f}, bottleneck rank "
    f"{analyzer.bottleneck_rank_}"
)

# %%
# Train by gradient descent from small weights. The classifier detects the saddles on
# the way.
start = time.perf_counter()
paper = {
    "n_escapes": "all",
    "standardize": False,
    "relative_step": 0.02,
}  # gradient descent throughout
classifier = SaddleToSaddleClassifier(
    4, 100, max_iter=max_iter, dtype="float32", random_state=0, **paper
).fit(X, y)
print(
    f"trained: {classifier.n_iter_} epochs in {time.perf_counter() - start:.0f} s, "
    f"loss {classifier.loss_:.3f}"
)
for saddle in classifier.saddles_:
    left = (
        "not left"
        if saddle.escape_step is None
        else f"left at step {saddle.escape_step:.0f}"
    )
    ratios = ", ".join(f"{ratio:.2f}" for ratio in saddle.singular_value_ratios)
    print(
        f"saddle at loss {saddle.loss:.3f}, {left}: ranks {saddle.ranks}, s2/s1 = "
        f"{ratios}"
    )

# %%
# The loss, and the singular values of every layer.
figure = plt.figure(figsize=(11, 6.2), layout="constrained")
grid = figure.add_gridspec(2, 4, height_ratios=(3, 2))
EscapeDisplay.from_estimator(classifier, ax=figure.add_subplot(grid[0, :]))
axes = [figure.add_subplot(grid[1, k]) for k in range(4)]
SingularSpectrumDisplay.from_estimator(classifier, ax=axes)
for one in axes:
    one.set_xlabel("step")
figure.suptitle(
    "Digits, four layers from small weights: loss, and the ten largest singular "
    "values of every layer"
)
figure.savefig("low_rank_digits.png", dpi=200)
