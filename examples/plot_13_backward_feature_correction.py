"""
Measuring backward feature correction
=====================================

The target has three hidden layers with decreasing contributions, alpha_l = 1, a, a^2. If the first layer of the
learner is trained alone, it also fits part of what higher layers should explain: its features have an error of
about a^2 (squared, relative, up to rotation). With one more layer the error decreases to a^4, and with all
layers to rounding. The second panel is the protocol of Figure 9 of Allen-Zhu and Li (2020): the loss that
remains if lower layers are kept fixed.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

from skident import HierarchicalQuadraticNet
from skident.datasets import make_hierarchical_target
from skident.hierarchical import backward_feature_correction
from skident.inspection import BackwardCorrectionDisplay
from skident.metrics import feature_recovery_error

WIDTHS = (3, 2, 2)


def feature_errors(a):
    """Of the first layer after training 1, 2 and all 3 hidden layers."""
    alphas = (1.0, a, a**2)
    target = make_hierarchical_target(12, WIDTHS, alphas=alphas, kappa=1.0, random_state=0)
    X, fresh = target.sample(5000, random_state=0), target.sample(10_000, random_state=1)
    y, truth, net, errors = target(X), target.features(fresh, layer=2), None, []
    for depth in (2, 3, 4):
        new = HierarchicalQuadraticNet(WIDTHS, alphas=alphas, readout="sum", n_starts=5, random_state=0)
        net = new.fit_layers(X, y, depth=depth, start=net)
        errors.append(feature_recovery_error(truth, net.transform(fresh, layer=2)))
    return errors


def main(output="backward_feature_correction.png"):
    sizes = (0.08, 0.04, 0.02)
    errors = np.array([feature_errors(a) for a in sizes])
    for name, column in zip(("layer 2 alone", "with layer 3"), errors.T):
        print(f"{name}: slope {np.polyfit(np.log(sizes), np.log(column), 1)[0]:.2f}")
    print(f"all layers: maximum error {errors[:, 2].max():.1e}")

    target = make_hierarchical_target(12, WIDTHS, alphas=(1.0, 0.3, 0.1), kappa=1.0, random_state=0)
    X, fresh = target.sample(5000, random_state=0), target.sample(10_000, random_state=1)
    net = HierarchicalQuadraticNet(WIDTHS, alphas=(1.0, 0.3, 0.1), readout="sum", random_state=0)
    result = backward_feature_correction(net, X, target(X), X_test=fresh, y_test=target(fresh), target=target)
    print(result)

    figure = plt.figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subfigures(1, 2)
    ax = left.subplots()
    for name, column, marker in zip(("layer 2 alone", "with layer 3", "with layers 3 and 4"), errors.T, "osv"):
        ax.loglog(sizes, np.maximum(column, 1e-16), marker=marker, label=name)
    for power in (2, 4):
        ax.loglog(sizes, np.array(sizes) ** power, "--", color="0.6", label=f"$a^{power}$")
    ax.set(xlabel="a", ylabel="error of the first layer's features")
    ax.set_xticks(sizes, map(str, sizes))
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize="small")
    ax.set_title("Higher layers correct the first layer", fontsize="medium")
    BackwardCorrectionDisplay(result).plot(right.subplots(2, 1, sharex=True, height_ratios=(2, 1)))
    figure.savefig(output, dpi=100)
    plt.close(figure)
    print(f"picture: {output}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--output", default="backward_feature_correction.png", help="where to write the picture")
    main(parser.parse_args().output)
