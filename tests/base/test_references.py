"""References that fits are compared with: linear models and kernel ridge regression; scales of columns."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skident.base.better_models import better_model
from skident.base.column_scales import scales_for_classes
from skident.base.kernel_reference import kernel_residuals, kernel_squared_errors
from skident.base.linear_reference import linear_accuracy, linear_r2


def test_scores_on_held_out_rows():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((90, 3))
    folds = np.array_split(np.arange(90), 3)
    Y = X @ rng.standard_normal((3, 2))
    assert linear_r2(X, Y, folds) > 0.999 and linear_r2(X, Y[::-1], folds) < 0.3
    # A target that does not vary does not count.
    assert linear_r2(X, np.column_stack([Y[:, 0], np.ones(90)]), folds) > 0.999
    labels = np.digitize(X[:, 0] + 0.5 * rng.standard_normal(90), [-0.5, 0.5])
    model = make_pipeline(StandardScaler(), LogisticRegression())
    expected = np.mean(cross_val_predict(model, X, labels, cv=KFold(3)) == labels)
    assert linear_accuracy(X, labels, folds) == pytest.approx(expected)


def test_one_class_outside_of_a_fold():
    X, labels = np.random.RandomState(0).standard_normal((9, 2)), np.array([0] * 6 + [1] * 3)
    assert linear_accuracy(X, labels, [np.arange(6, 9)]) == 0.0


def test_errors_are_those_of_leaving_one_out():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((20, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(20)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    distances = ((Z[:, None] - Z) ** 2).sum(axis=2).mean()
    K = RBF(np.sqrt(distances / 2))(Z)
    errors = []
    for i in range(20):
        rest = np.arange(20) != i
        # Ridge with a constant that is not penalised: the bordered system.
        A = np.block(
            [[K[np.ix_(rest, rest)] + 0.1 * np.eye(19), np.ones((19, 1))], [np.ones((1, 19)), np.zeros((1, 1))]]
        )
        solution = np.linalg.solve(A, np.append(y[rest], 0.0))
        errors.append((K[i, rest] @ solution[:-1] + solution[-1] - y[i]) ** 2)
    found = kernel_squared_errors(X, y, widths=(1.0,), ridges=np.array([0.1]))
    np.testing.assert_allclose(found, errors, rtol=1e-8)


def test_residuals_of_folds_are_those_of_fits_without_them():
    rng = np.random.RandomState(1)
    X = rng.standard_normal((24, 2))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 0.3 * rng.standard_normal((24, 2))
    folds, scale = np.array_split(np.arange(24), 3), np.mean(np.diag(X @ X.T))
    found, worst = kernel_residuals(X, Y, "linear", folds), []
    for ridge in np.logspace(-4, 1.5, 12) * scale:  # that of the least leave-one-out error is among these
        left = np.empty_like(Y)
        for fold in folds:
            rest = np.setdiff1d(np.arange(24), fold)
            left[fold] = Y[fold] - Ridge(ridge).fit(X[rest], Y[rest]).predict(X[fold])
        worst.append(np.abs(left - found).max())
    assert min(worst) < 1e-10


TARGETS = {
    "a linear model": lambda X: X[:, 0] + X[:, 1],
    "ridge regression on terms of degree two": lambda X: X[:, 0] * X[:, 1],
    "a kernel": lambda X: np.sin(2 * X[:, 0] - X[:, 1] + X[:, 2]),
    "boosting of trees": lambda X: np.sign(X[:, 0]) * (X[:, 1] > 0.5) + np.sign(X[:, 1]),
}


@pytest.mark.parametrize("n_folds", [None, 3])
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_the_best_model_is_named(name, labels, n_folds):
    rng = np.random.RandomState(0)
    X = rng.standard_normal((360, 3))
    y = TARGETS[name](X) + 0.1 * rng.standard_normal(360)
    y = (y > np.median(y)).astype(int) if labels else y
    losses = (rng.uniform(size=360) < 0.35).astype(float) if labels else (y - y.mean()) ** 2 * 0.6
    folds = None if n_folds is None else np.array_split(np.arange(360), n_folds)
    found = better_model(X, y, losses, folds)
    assert found.score > found.own + 0.1 and (labels or found.model == name)
    with pytest.warns(ConvergenceWarning, match=rf"{found.model} (is|may be) better for these data: .* for Network"):
        found.warn("Network", stacklevel=1)
    assert better_model(X, y, 0.01 * losses, folds) is None  # nothing to gain
    assert better_model(X[:9], y[:9], losses[:9]) is None  # too few samples


def test_samples_outside_of_the_folds_do_not_count():
    X, losses, fold = np.random.RandomState(0).standard_normal((200, 2)), np.full(200, np.nan), np.arange(70)
    losses[fold] = 0.5 * np.var(X[:, 0])
    assert better_model(X, X[:, 0], losses, [fold]).own == pytest.approx(0.5)


def table(unit):
    rng = np.random.RandomState(0)
    y = np.arange(100) % 2
    X = 0.1 * rng.standard_normal((100, 20))
    X[:, 0] = 2.0 * y + 0.5 * rng.standard_normal(100)
    X[:, 1] = unit * rng.standard_normal(100)
    return X, y


def test_columns_that_hardly_vary_are_not_lifted():
    X, y = table(0.1)
    np.testing.assert_allclose(scales_for_classes(X, y), np.sqrt(X.var(axis=0) + X.var(axis=0).mean()))


def test_columns_in_other_units_have_their_own():
    X, y = table(1000.0)
    np.testing.assert_allclose(scales_for_classes(X, y), X.std(axis=0))


def test_few_or_constant_rows_have_their_own():
    X, y = table(0.1)
    np.testing.assert_allclose(scales_for_classes(X[:20], y[:20]), X[:20].std(axis=0))
    assert np.all(scales_for_classes(np.ones((50, 2)), y[:50]) == 1.0)
