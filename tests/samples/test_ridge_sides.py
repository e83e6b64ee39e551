"""Signs of units from absolute values and a linear function."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import TensorReLURegressor
from skident.samples.ridges import fit_ridges, regress_on_ridges
from skident.samples.sample import Sample
from skident.samples.unit_signs import resolve_signs
from tests.samples.planted import in_z, planted


@pytest.mark.parametrize(
    ("d", "m", "noise"), [(4, 4, 0.0), (4, 4, 0.1), (3, 5, 0.0), (3, 5, 0.1), (14, 14, 0.05), (6, 16, 0.02)]
)
def test_signs(d, m, noise):
    sample, U, b, a = planted(12, d, m, 6000, noise)
    fit = fit_ridges(sample, regress_on_ridges(sample, *in_z(sample, U, b)).model)
    signed = resolve_signs(sample, fit, np.random.RandomState(0))
    model = signed.fit.model
    assert not model.skip and 0 <= signed.margins.min() and signed.margins.max() <= 1
    found = model.V / np.linalg.norm(model.V, axis=0)
    # Signed directions: noise .1 and 4000 rows leave .02 or so.
    assert (in_z(sample, U, b)[0] @ found).max(axis=1).min() > (0.995 if noise else 1 - 1e-9)


def test_a_linear_part_that_signs_do_not_explain_is_kept():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((3000, 3))
    sample = Sample(X, np.maximum(X[:, 0], 0) + 5.0 * X[:, 1])
    signed = resolve_signs(sample, fit_ridges(sample, regress_on_ridges(sample, np.eye(3)[:1], np.zeros(1)).model), rng)
    assert signed.fit.model.skip and signed.fit.rss < 1e-20 * sample.total


def cancelling(seed, d, k, extra, equal, zero=True):
    """A network whose first k units have weighted directions with sum zero, or a generic one, and samples of inputs."""
    rng = np.random.default_rng(seed)
    a = np.ones(k + extra) if equal else rng.choice([-1.0, 1.0], k + extra) * rng.uniform(0.5, 2.0, k + extra)
    W = rng.standard_normal((d, k + extra))
    if zero:
        W[:, k - 1] = -(W[:, : k - 1] @ a[: k - 1]) / a[k - 1]
    b, X = rng.uniform(-1.0, 1.0, k + extra) * (k != 4), rng.standard_normal((4000, d))
    return X, np.maximum(X @ W + b, 0.0) @ a, W, rng


# Dependent directions in both cases where there are more units than inputs.
@pytest.mark.parametrize(
    ("d", "k", "extra", "equal", "noise"),
    [(6, 3, 0, True, 0.0), (6, 4, 1, False, 0.0), (5, 6, 0, True, 0.0), (3, 3, 2, False, 0.0), (6, 3, 1, False, 0.05)],
)
def test_signs_of_units_whose_weights_cancel(d, k, extra, equal, noise):
    X, y, W, rng = cancelling(k, d, k, extra, equal)
    reg = TensorReLURegressor(n_units=k + extra, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reg.fit(X, y + noise * y.std() * rng.standard_normal(len(y)))
    cosines = np.abs(reg.network_.weights[0].T @ (W / np.linalg.norm(W, axis=0)))
    free = cosines.argmax(axis=1) < k
    assert not reg.exact_ and reg.signs_margin_[free].max() < 0.1
    if not noise:
        assert reg.signs_margin_[~free].min(initial=1.0) == 1.0 and reg.input_box_ is None
        assert np.abs(reg.predict(X) - y).max() < 1e-9
        assert [f"the signs of {k} of {k + extra} units are undetermined" in str(w.message) for w in caught] == [True]


@pytest.mark.parametrize(("d", "k", "extra"), [(6, 4, 1), (5, 6, 0), (3, 3, 2)])
def test_signs_of_other_units_are_determined(d, k, extra):
    X, y, _, _ = cancelling(k, d, k, extra, False, zero=False)
    reg = TensorReLURegressor(n_units=k + extra, random_state=0).fit(X, y)
    assert reg.exact_ and reg.signs_margin_.min() > 1 - 1e-6


def test_a_linear_part_leaves_signs_undetermined():
    X = np.random.default_rng(0).standard_normal((2000, 3))
    with pytest.warns(ConvergenceWarning, match="the signs of 1 of 1 units are undetermined.*the linear part makes up"):
        reg = TensorReLURegressor(n_units=1, random_state=0).fit(X, np.maximum(X[:, 0], 0) + 5.0 * X[:, 1])
    assert not reg.exact_ and reg.signs_margin_ == 0.0 and reg.input_box_ is None
