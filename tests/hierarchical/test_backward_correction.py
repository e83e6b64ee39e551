"""Targets, metrics and displays of hierarchical learning."""

import matplotlib
import numpy as np
import pytest

from skident import HierarchicalQuadraticNet
from skident.datasets import make_hierarchical_target
from skident.hierarchical import BackwardCorrection
from skident.inspection import BackwardCorrectionDisplay, LayerFeatureDisplay
from skident.metrics import feature_recovery_error, neuron_correlation


@pytest.mark.parametrize("distribution", ["gaussian", "mixture"])
def test_targets_are_normalised(distribution):
    target = make_hierarchical_target(8, (3, 2), distribution=distribution, random_state=0)
    X = target.sample(50_000, random_state=1)
    # Proposition 5.1: every input has variance one. 50 000 draws: standard error 0.007 of a variance, five of them.
    np.testing.assert_allclose(X.var(axis=0), 1.0, atol=0.035)
    for layer in (2, 3):
        assert np.mean(target.features(X, layer) ** 2) == pytest.approx(1.0, abs=0.15)
    expected = np.sum(target.features(X, 2) ** 2, axis=1) + 0.3 * np.sum(target.features(X, 3) ** 2, axis=1)
    np.testing.assert_allclose(target(X), expected)


def test_conditioning_and_the_features_by_hand():
    target = make_hierarchical_target(6, (2, 2), connections=[(0, 1), (0, 1, 2)], kappa=3.0, random_state=0)
    for W in (W for blocks in target.weights for W in blocks.values()):
        s = np.linalg.svd(W, compute_uv=False)
        assert s[0] / s[-1] == pytest.approx(3.0)
    x = target.sample(5, random_state=0)
    S2 = x @ target.weights[0][0].T + (x**2 - 1) @ target.weights[0][1].T
    S3 = x @ target.weights[1][0].T + (x**2 - 1) @ target.weights[1][1].T + S2**2 @ target.weights[1][2].T
    np.testing.assert_allclose(target.features(x, 3), S3)


def test_mixtures_differ_between_components_and_signs_are_balanced():
    target = make_hierarchical_target(6, (2,), distribution="mixture", n_components=4, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(target.roots, axis=2), 1.0)
    assert np.linalg.norm(target.roots[0] @ target.roots[0].T - target.roots[1] @ target.roots[1].T) > 0.1
    X, y = target.sample_signs(20_000, random_state=0)
    assert X.shape == (20_000, 7) and 0.3 < np.mean(y == 1) < 0.7
    assert np.std(X[:, 0]) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"n_features": 1}, "n_features must be an integer >= 2"),
        ({"widths": ()}, "widths must hold at least k_2"),
        ({"widths": (0,)}, "every width"),
        ({"alphas": (1.0,)}, "alphas must be 2 positive numbers"),
        ({"connections": "full"}, "connections must be 'paper'"),
        ({"connections": [(0, 1), (0,)]}, "every J_l with l - 1"),
        ({"kappa": 0.5}, "kappa must be a finite number >= 1"),
        ({"distribution": "cauchy"}, "distribution must be"),
    ],
)
def test_bad_targets(kwargs, match):
    with pytest.raises(ValueError, match=match):
        make_hierarchical_target(**kwargs)


def test_feature_error_sees_rotations_and_units(rng):
    S = rng.standard_normal((200, 3))
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    assert feature_recovery_error(S, S @ Q) < 1e-28
    assert feature_recovery_error(S, 1.1 * S) == pytest.approx(0.01)
    assert feature_recovery_error(S, np.zeros((200, 2))) == pytest.approx(1.0)
    # A unit too many counts with its energy, whatever it shows.
    extra = np.column_stack([S @ Q, np.full(200, 1e-3)])
    assert feature_recovery_error(S, extra) < 1e-5
    with pytest.raises(ValueError, match="200 and 100 rows"):
        feature_recovery_error(S, S[:100])
    with pytest.raises(ValueError, match="all zero"):
        feature_recovery_error(0 * S, S)


def test_neuron_correlation(rng):
    A = rng.standard_normal((5, 7))
    assert neuron_correlation(A, 3 * A) == pytest.approx(1.0)
    assert neuron_correlation(A, -A) == pytest.approx(-1.0)
    assert neuron_correlation(A, -A[::-1], match=True) == pytest.approx(1.0)
    assert neuron_correlation(A, 0 * A) == 0.0
    with pytest.raises(ValueError, match="one shape"):
        neuron_correlation(A, A[:3])


def test_displays():
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    common = {"score": 0.5, "feature_errors": {}, "correlation_start": 0.1, "correlation_after": 0.9}
    rows = [
        {"protocol": protocol, "layer": layer, "fixed": fixed, "error": error, **common}
        for protocol, layer, fixed, error in [
            ("only", 2, 1, 0.3),
            ("only", 3, 1, 0.1),
            ("fixed", 2, 2, 0.2),
            ("fixed", 3, 3, 0.1),
            ("fixed", 3, 2, 0.05),
            ("all", 2, 1, 0.0),
            ("all", 3, 1, 0.0),
        ]
    ]
    result = BackwardCorrection(rows, n_layers=4, classifies=False)
    assert result.error("fixed", 3, 2) == 0.05
    display = BackwardCorrectionDisplay(result).plot()
    assert len(display.ax_.lines) == 4 and len(display.correlation_ax_.lines) == 2
    plt.close(display.figure_)
    X = np.random.RandomState(0).standard_normal((200, 6))
    net = HierarchicalQuadraticNet((2,), n_starts=1, random_state=0).fit(X, (X[:, 0] + X[:, 1]) ** 2 + X[:, 2] ** 2)
    display = LayerFeatureDisplay.from_estimator(net, X, n_units=2, image_shape=(2, 3))
    assert display.gradients.shape == (2, 2, 3) and display.ax_.shape == (2, 2)
    # Some true gradient: of the unit at its image, with the sign that raises its size.
    assert np.abs(display.gradients).max() > 0.1
    plt.close(display.figure_)
    with pytest.raises(ValueError, match=r"image_shape=\(2, 2\) has 4 pixels, X has 6"):
        LayerFeatureDisplay.compute(net, X, image_shape=(2, 2))
    with pytest.raises(ValueError, match="array of Axes of shape"):
        LayerFeatureDisplay.compute(net, X, image_shape=(2, 3)).plot(np.empty((1, 1), dtype=object))
