"""Sums of squares with signs: quadratic forms from few samples, hierarchical targets, counts of units, warnings."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import HierarchicalQuadraticNet, HierarchicalQuadraticNetClassifier
from skident.datasets import make_hierarchical_target
from skident.hierarchical.layer_regression import _common_turn
from tests.rates import fewest_successes


def quadratic_form(seed, signs, noise, d=15, n=200):
    """Samples of a quadratic form of given signs, and a larger sample without noise."""
    rng = np.random.default_rng(seed)
    W, X, Z = rng.standard_normal((d, len(signs))), rng.standard_normal((n, d)), rng.standard_normal((2000, d))
    y, z = ((V @ W) ** 2 @ np.array(signs, dtype=float) for V in (X, Z))
    return X, y + noise * y.std() * rng.standard_normal(n), Z, z


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_quadratic_forms_of_all_signs(noise):
    patterns = [(1, -1), (-1, -1), (1, 1, -1), (-1, 1, -1)]
    successes = 0
    for seed, signs in enumerate(patterns):
        X, y, Z, z = quadratic_form(seed, signs, noise)
        net = HierarchicalQuadraticNet(widths=(len(signs),), random_state=0).fit(X, y)
        right = net.readout_ == "sum" and sorted(net.layer_signs_[2]) == sorted(signs)
        successes += right and net.score(Z, z) > 0.98
    assert successes >= fewest_successes(len(patterns), 160, 160)


@pytest.mark.parametrize(("d", "widths", "n"), [(10, (3,), 400), (10, (3, 2), 1000), (10, (2, 2, 2), 2000)])
def test_hierarchical_targets_with_signs(d, widths, n):
    target = make_hierarchical_target(d, widths, signed=True, random_state=3)
    assert [signs.tolist().count(-1.0) for signs in target.signs] == [k // 2 for k in widths]
    X, Z = target.sample(n, random_state=4), target.sample(1000, random_state=5)
    net = HierarchicalQuadraticNet(widths=widths, random_state=0).fit(X, target(X))
    assert net.exact_ and 1.0 - net.score(Z, target(Z)) < 1e-12
    assert [sum(net.layer_signs_[layer]) for layer in net.layer_signs_] == [signs.sum() for signs in target.signs]


def test_widths_of_a_signed_sum():
    target = make_hierarchical_target(10, (3,), signed=True, random_state=20)
    X = target.sample(400, random_state=6)
    net = HierarchicalQuadraticNet(widths="auto", random_state=0).fit(X, target(X))
    assert net.exact_ and net.widths_ == (3,) and sorted(net.layer_signs_[2]) == [-1.0, 1.0, 1.0]


@pytest.mark.parametrize("signs", [(1.0, -1.0, 1.0), (1.0, 1.0, 1.0, 1.0)])
def test_the_turn_of_a_layer(signs):
    """Q preserves ``diag(s)`` and diagonalizes ``Q_0^T D_m Q_0``."""
    rng, s, k = np.random.default_rng(0), np.array(signs), len(signs)
    K = rng.standard_normal((k, k))
    K = 0.2 * s[:, None] * (K - K.T)  # exp(K) preserves the form: s K is skew
    Q0 = np.linalg.solve(np.eye(k) - K / 2.0, np.eye(k) + K / 2.0)  # Cayley's transform does, too
    np.testing.assert_allclose(Q0.T * s @ Q0, np.diag(s), atol=1e-12)
    N = np.einsum("pi,mp,pj->mij", Q0, rng.standard_normal((5, k)), Q0)
    Q = _common_turn(N, s)
    np.testing.assert_allclose(Q.T * s @ Q, np.diag(s), atol=1e-9)
    D = np.linalg.inv(Q).T @ N @ np.linalg.inv(Q)
    np.testing.assert_allclose(D - D * np.eye(k), 0.0, atol=1e-9)


def test_terms_of_degree_two_are_the_reference():
    """One unit cannot be a form of rank eight, which ridge regression on terms of degree two is."""
    X, y, _, _ = quadratic_form(0, (1, -1) * 4, 0.02, d=8, n=300)
    with pytest.warns(ConvergenceWarning, match="ridge regression on terms of degree two is better for these data"):
        HierarchicalQuadraticNet(widths=(1,), random_state=0).fit(X, y)


@pytest.mark.slow
def test_algorithm1_names_widths_that_it_changes():
    target = make_hierarchical_target(8, (3, 2), random_state=4242)
    X = target.sample(3000, random_state=0)
    net = HierarchicalQuadraticNet(widths=(3, 2), solver="algorithm1", random_state=0)
    net.set_params(algorithm1_options={"determine_widths": True})
    with pytest.warns(ConvergenceWarning, match=r"determined the widths \(3, 1\) .* not the given \(3, 2\)"):
        net.fit(X, target(X))


@pytest.mark.slow
def test_signs_in_the_loss_of_theorem_4():
    target = make_hierarchical_target(3, (2,), signed=True, random_state=22)
    (X, y), (Z, z) = target.sample_signs(1500, 0), target.sample_signs(3000, 1)
    clf = HierarchicalQuadraticNetClassifier((2,), loss="theorem4", offset_column=0, n_starts=2, random_state=0).fit(
        X, y
    )
    assert clf.score(Z, z) > 0.97 and sorted(clf.layer_signs_[2]) == [-1.0, 1.0]


@pytest.mark.parametrize(
    ("solver", "n", "bar"),
    [pytest.param("algorithm1", 300, 1e-2, marks=pytest.mark.slow), ("lbfgs", 300, 1e-10), ("adam", 2000, 1e-2)],
)
def test_every_solver_on_a_signed_sum(solver, n, bar):
    target = make_hierarchical_target(4, (2,), signed=True, random_state=21)
    X, Z = target.sample(n, random_state=7), target.sample(1000, random_state=8)
    net = HierarchicalQuadraticNet(widths=(2,), solver=solver, readout="sum", random_state=0)
    net.set_params(algorithm1_options={"n_units": 10, "polish": 20}).fit(X, target(X))
    assert sorted(net.layer_signs_[2]) == [-1.0, 1.0] and 1.0 - net.score(Z, target(Z)) < bar
