"""
Learning a hierarchical target on which kernels fail
====================================================

The target is a quadratic DenseNet with two hidden layers, a polynomial of degree 8 in
16 variables (Allen-Zhu and Li, 2020). `HierarchicalQuadraticNet` learns its 134 weights
layer by layer and recovers the target to rounding error from a few hundred samples.
Kernel ridge regression, a perceptron of ReLU units and boosted trees get the same
samples; the kernel's parameters are chosen on the test samples.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.neural_network import MLPRegressor

from skident import HierarchicalQuadraticNet
from skident.datasets import make_hierarchical_target


def best_kernel(X, y, fresh, fresh_y):
    """The kernel ridge regression with the lowest error on the test samples."""
    found = []
    for gamma in (0.003, 0.01, 0.03, 0.1):
        for kernel in (
            {"kernel": "rbf"},
            {"kernel": "poly", "degree": 4},
            {"kernel": "poly", "degree": 8},
        ):
            model = KernelRidge(gamma=gamma, alpha=1e-3, coef0=1.0, **kernel).fit(X, y)
            found.append(
                (np.mean((model.predict(fresh) - fresh_y) ** 2), len(found), model)
            )
    return min(found)[2]


# %%
# Fit four models to more and more samples, and measure them on the same test samples.
target = make_hierarchical_target(16, (3, 2), random_state=0)
fresh = target.sample(5000, random_state=1)
fresh_y = target(fresh)
sizes, curves = (100, 200, 400, 800, 1600), {}
for n_samples in sizes:
    X = target.sample(n_samples, random_state=2)
    y = target(X)
    mlp = MLPRegressor(
        hidden_layer_sizes=(100, 100), max_iter=200, early_stopping=True, random_state=0
    )
    net = HierarchicalQuadraticNet((3, 2), random_state=0)
    models = {
        "HierarchicalQuadraticNet": net,
        "kernel ridge, tuned on the test": best_kernel(X, y, fresh, fresh_y),
        "MLPRegressor": mlp,
        "HistGradientBoosting": HistGradientBoostingRegressor(random_state=0).fit(X, y),
    }
    with (
        warnings.catch_warnings()
    ):  # the smallest N is below the number of weights, which the network says
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp.fit(X, y / y.std())
        net.fit(X, y)
    for name, model in models.items():
        outputs = model.predict(fresh) * (y.std() if model is mlp else 1.0)
        error = np.mean((outputs - fresh_y) ** 2) / fresh_y.var()
        curves.setdefault(name, []).append(error)
        print(f"N = {n_samples}: {name}: relative error {error:.1e}")

# %%
# Test error by number of samples.
figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
for (name, errors), marker in zip(curves.items(), "osv^"):
    ax.loglog(sizes, np.maximum(errors, 1e-16), marker=marker, label=name)
ax.set(xlabel="training samples N", ylabel="test error / variance of the target")
ax.set_xticks(sizes, map(str, sizes))
ax.minorticks_off()
ax.set_title("A polynomial of degree 8 in 16 variables, in layers")
ax.legend(loc="center right")
figure.savefig("hierarchical_target.png", dpi=200)
