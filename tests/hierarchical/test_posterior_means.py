"""widths="auto" with noise: posterior means do not depend on the start."""

import numpy as np
import pytest

from skident import HierarchicalQuadraticNet
from skident.datasets import make_hierarchical_target


@pytest.fixture(scope="module")
def noisy():
    """Data with noise of 0.3 standard deviations, and noise-free test data."""
    target = make_hierarchical_target(6, (2,), random_state=41)
    X, X_test = target.sample(240, random_state=42), target.sample(4000, random_state=43)
    y = target(X)
    return X, y + 0.3 * y.std() * np.random.default_rng(44).standard_normal(len(y)), X_test, target(X_test)


def test_noise_leaves_no_lottery(noisy):
    X, y, X_test, y_test = noisy
    nets = [HierarchicalQuadraticNet("auto", random_state=seed).fit(X, y) for seed in range(2)]
    scores = [net.score(X_test, y_test) for net in nets]
    assert min(scores) > 0.9 and np.ptp(scores) < 0.02
    assert not nets[0].exact_ and np.isnan(nets[0].l2_)
    again = HierarchicalQuadraticNet("auto", random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.predict(X_test), nets[0].predict(X_test))
