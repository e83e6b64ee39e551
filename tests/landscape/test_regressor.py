"""QuadraticNetRegressor: what it learns, what it certifies, what it refuses."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_diabetes, load_linnerud
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_score

from skident import QuadraticNetRegressor
from skident.datasets import make_planted_shallow
from skident.landscape import (
    CertificateOptions,
    HuberLoss,
    LossTerms,
    TrainingTrials,
    landscape_certificate,
    phase_transition,
)
from skident.network import get_activation
from tests.rates import fewest_successes

PLAIN = {"fit_intercept": False, "fit_linear": False, "alpha": 0}


def data(seed=0, n=80, d=4):
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, d)) * 3.0 + 1.0
    return X, X[:, 0] * X[:, 1] + X[:, 2] + rng.standard_normal(n)


@pytest.mark.parametrize("solver", ["convex", "descent"])
@pytest.mark.parametrize("options", [{}, PLAIN, {"output_signs": "positive", **PLAIN}])
def test_a_planted_network_is_found(solver, options):
    X, y = make_planted_shallow(1000, 10, 5, random_state=0)
    fresh, truth = X[500:], y[500:]
    reg = QuadraticNetRegressor(solver=solver, **options).fit(X[:500], y[:500])
    assert reg.certificate_.is_global and reg.solver_ == solver
    error = np.sqrt(np.mean((reg.predict(fresh) - truth) ** 2)) / truth.std()
    # Descent with as many positive units as inputs for a form of half that rank: its minimum is flat to fourth order.
    assert error <= (1e-6 if solver == "descent" and "output_signs" in options else 1e-10)


def test_random_labels_are_fitted_exactly():
    X, y = make_planted_shallow(55, 10, 1, labels="random", random_state=1)
    for solver in ("convex", "descent"):
        reg = QuadraticNetRegressor(solver=solver, **PLAIN).fit(X, y)
        assert np.mean((reg.predict(X) - y) ** 2) <= 1e-20


def test_both_solvers_end_at_the_same_loss():
    X, y = data(1)
    for signs in ("mixed", "positive", "negative"):
        convex, descent = (
            QuadraticNetRegressor(output_signs=signs, solver=s, alpha=0.01).fit(X, y) for s in ("convex", "descent")
        )
        assert convex.certificate_.is_global and descent.certificate_.is_global
        assert convex.certificate_.loss == pytest.approx(descent.certificate_.loss, rel=1e-10)
        assert convex.history_[-1] == pytest.approx(convex.certificate_.loss, rel=1e-12)


@pytest.mark.parametrize("fit_linear", [True, False])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_all_attributes_tell_one_function(fit_linear, fit_intercept):
    X, y = data(2)
    reg = QuadraticNetRegressor(fit_linear=fit_linear, fit_intercept=fit_intercept, alpha=0.01).fit(X, y)
    predicted, Z = reg.predict(X), X - reg.center_
    units = (Z @ reg.hidden_weights_.T) ** 2 @ reg.output_weights_ + Z @ reg.coef_ + reg.intercept_
    assert units == pytest.approx(predicted, rel=1e-10)
    assert reg.network_(X)[:, 0] == pytest.approx(predicted, rel=1e-10)
    Q = reg.hidden_weights_.T @ np.diag(reg.output_weights_) @ reg.hidden_weights_
    assert Q == pytest.approx(reg.quadratic_form_, abs=1e-12)
    assert reg.network_.layer_widths == (8 + 2 * fit_linear, 1)
    assert (reg.intercept_ != 0) == fit_intercept and reg.coef_.any() == fit_linear


def test_the_certificate_is_that_of_the_weights():
    X, y = data(3)
    reg = QuadraticNetRegressor(**PLAIN).fit(X, y)
    direct = landscape_certificate(reg.hidden_weights_, reg.output_weights_, X, y)
    assert direct.is_global and direct.loss == pytest.approx(reg.certificate_.loss, rel=1e-10)
    assert direct.loss == pytest.approx(0.5 * np.mean((reg.predict(X) - y) ** 2), rel=1e-10)


def test_units_of_inputs_and_targets_do_not_matter():
    X, y = data(4)
    plain = QuadraticNetRegressor().fit(X, y)
    other = QuadraticNetRegressor().fit(X * [1e-6, 1, 1e5, 1] + [0, 5, 0, -1e3], 1e4 * y)
    predicted = other.predict(X * [1e-6, 1, 1e5, 1] + [0, 5, 0, -1e3])
    assert predicted == pytest.approx(1e4 * plain.predict(X), rel=1e-6)
    assert other.alpha_ == plain.alpha_ and other.certificate_.is_global


def test_useful_on_a_table():
    X, y = load_diabetes(return_X_y=True)
    score = cross_val_score(QuadraticNetRegressor(), X, y, cv=5).mean()
    assert score >= cross_val_score(Ridge(), X, y, cv=5).mean() - 0.02
    assert score >= 0.46  # ridge regression at its best alpha has 0.48


def test_output_weights_may_be_given():
    X, y = data(5)
    v = np.array([2.0, 0.5, -1, -3, 0, 1, 1, -1, -1])
    reg = QuadraticNetRegressor(output_signs=v, alpha=0.01).fit(X, y)
    assert reg.certificate_.is_global and np.array_equal(reg.output_weights_, v)
    assert reg.certificate_.loss == pytest.approx(
        QuadraticNetRegressor(alpha=0.01).fit(X, y).certificate_.loss, rel=1e-10
    )


@pytest.mark.parametrize("solver", ["convex", "descent"])
@pytest.mark.parametrize("signs", ["mixed", [1.0, 1.0, -1.0]])
def test_too_few_units_are_undecided_and_say_why(solver, signs):
    X, y = make_planted_shallow(60, 6, 1, labels="random", random_state=6)
    reg = QuadraticNetRegressor(3, signs, solver, **PLAIN).fit(X, y)
    assert reg.certificate_.status == "undecided"
    assert "needs d = 6 output weights of each sign; there are 2 positive and 1 negative" in reg.certificate_.reason
    assert reg.certificate_.loss < reg.certificate_.null_loss


def test_too_few_of_one_sign_are_enough_where_the_target_needs_no_more():
    X, _ = data(7)
    reg = QuadraticNetRegressor(output_signs=[1.0, -1.0], **PLAIN).fit(X, X[:, 0] * X[:, 1])
    assert reg.certificate_.is_global and reg.score(X, X[:, 0] * X[:, 1]) == pytest.approx(1.0)


@pytest.mark.parametrize("options", [{}, PLAIN, {"output_signs": "negative"}, {"alpha": 0}, {"fit_intercept": False}])
@pytest.mark.parametrize("solver", ["convex", "descent"])
def test_degenerate_tables(options, solver):
    rng = np.random.RandomState(8)
    X = rng.standard_normal((9, 3))
    constant = X.copy()
    constant[:, 1] = 5.0
    for inputs, y in [
        (X[:1], [3.0]),
        (X[:2], [3.0, 4.0]),
        (constant, X[:, 0]),
        (np.ones((9, 3)), X[:, 0]),
        (X, np.full(9, 7.0)),
        (np.tile(X[:3], (3, 1)), X[:, 0]),
    ]:
        reg = QuadraticNetRegressor(solver=solver, **options).fit(inputs, y)
        assert np.isfinite(reg.predict(inputs)).all()
        assert reg.certificate_.status in ("global", "undecided"), reg.certificate_.reason
        assert reg.certificate_.loss <= reg.certificate_.null_loss * (1 + 1e-12) + 1e-24
    if options.get("fit_intercept", True):
        assert QuadraticNetRegressor(solver=solver, **options).fit(X[:1], [3.0]).predict(X[:1]) == pytest.approx(3.0)


def test_a_matrix_too_large_is_refused_or_avoided(monkeypatch):
    monkeypatch.setattr(CertificateOptions, "max_dense", 10)
    X, y = data(9)
    failed = QuadraticNetRegressor(solver="convex")
    with pytest.raises(ValueError, match=r"min\(80, 14\) = 14, .* GB; at most 10 is allowed"):
        failed.fit(X, y)
    assert not hasattr(failed, "certificate_")
    reg = QuadraticNetRegressor(alpha=0.1).fit(X, y)
    assert reg.solver_ == "descent" and reg.certificate_.is_global  # with a ridge, duality at the point is enough


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_signs": [0.0, 0.0]}, "all 0"),
        ({"output_signs": [1.0, np.nan]}, "NaN"),
        ({"output_signs": [1.0, -1.0], "n_hidden": 3}, "one entry a unit, n_hidden = 3"),
        ({"output_signs": [[1.0, -1.0]]}, "one entry a unit"),
        ({"output_signs": "both"}, "output_signs"),
        ({"alpha": -1.0}, "alpha"),
    ],
)
def test_bad_parameters(options, message):
    X, y = data(10)
    with pytest.raises(ValueError, match=message):
        QuadraticNetRegressor(**options).fit(X, y)


def test_values_that_are_not_finite_are_refused_and_leave_nothing():
    X, y = data(11)
    reg = QuadraticNetRegressor().fit(X, y)
    for bad_X, bad_y in ((np.where(X > 3, np.nan, X), y), (X, np.where(y > 3, np.inf, y))):
        with pytest.raises(ValueError, match="NaN|infinity"):
            reg.fit(bad_X, bad_y)


def test_many_rows_choose_their_ridge_on_some():
    rng = np.random.RandomState(12)
    X = rng.standard_normal((5200, 3))
    y = X[:, 0] * X[:, 1] + rng.standard_normal(5200)
    reg = QuadraticNetRegressor(random_state=0).fit(X, y)
    assert 0 < reg.alpha_ < 0.1 and reg.certificate_.is_global
    assert np.mean((reg.predict(X) - X[:, 0] * X[:, 1]) ** 2) < 0.02


@pytest.mark.filterwarnings("ignore:.* better for these data")
@pytest.mark.parametrize("target", [0, 1, 2])
def test_a_quadratic_part_must_clearly_help(target):
    """Twenty rows: forms that fit sixteen of them by chance are far off on the other four."""
    data = load_linnerud()
    folds = KFold(5, shuffle=True, random_state=0)
    r2 = cross_val_score(QuadraticNetRegressor(), data.data, data.target[:, target], cv=folds).mean()
    assert r2 >= cross_val_score(Ridge(), data.data, data.target[:, target], cv=folds).mean() - 0.5


def test_linear_data_get_a_linear_model_and_quadratic_data_a_quadratic_one():
    n_linear = n_quadratic = 0
    for seed in range(20):
        rng = np.random.RandomState(seed)
        X, noise = rng.standard_normal((60, 4)), rng.standard_normal(60)
        linear = QuadraticNetRegressor().fit(X, X[:, 0] + 0.5 * noise)
        quadratic = QuadraticNetRegressor().fit(X, X[:, 0] * X[:, 1] + 0.5 * noise)
        n_linear += np.abs(linear.quadratic_form_).max() < 0.01 and abs(linear.coef_[0] - 1.0) < 0.2
        n_quadratic += abs(2.0 * quadratic.quadratic_form_[0, 1] - 1.0) < 0.2
        assert linear.certificate_.is_global and quadratic.certificate_.is_global
    # 27 and 23 of 30: the ridge shrinks, and a quadratic part may pay by chance.
    assert n_linear >= fewest_successes(20, 27, 30) and n_quadratic >= fewest_successes(20, 23, 30)


@pytest.mark.parametrize(
    ("parameters", "broken", "match"),
    [
        ({}, lambda X, y: (X, np.full(80, np.nan)), "y contains NaN"),
        ({}, lambda X, y: (X * 1e120, y), "X has entries of magnitude .* Scale X"),
        ({}, lambda X, y: (X, y * 1e120), "y has entries of magnitude .* Scale y"),
        ({}, lambda X, y: (X * 1e-120, y), "X has no entry above .* underflow. Scale X"),
        ({}, lambda X, y: (X, y * 1e-120), "y has no entry above .* underflow. Scale y"),
        ({"output_signs": [0.0, 0.0]}, lambda X, y: (X, y), "output_signs are all 0"),
        ({"alpha": -1.0}, lambda X, y: (X, y), "The 'alpha' parameter"),
    ],
)
def test_a_failed_fit_leaves_nothing_fitted(parameters, broken, match):
    X, y = data(15)
    reg = QuadraticNetRegressor().fit(X, y).set_params(**parameters)
    with pytest.raises(ValueError, match=match):
        reg.fit(*broken(X, y))
    assert not [name for name in vars(reg) if name.endswith("_")]
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        reg.predict(X)


def test_ridges_below_rounding_are_certified():
    X, y = data(16)
    for alpha in (1e-20, 1e-40, 1e-300):
        for signs in ("mixed", "positive"):
            reg = QuadraticNetRegressor(alpha=alpha, output_signs=signs).fit(X, y)
            assert reg.certificate_.is_global, reg.certificate_.reason


def test_arrays_that_must_not_be_written_to_and_other_types():
    X, y = data(17)
    expected = QuadraticNetRegressor().fit(X, y).predict(X)
    X.flags.writeable = y.flags.writeable = False
    for solver in ("convex", "descent"):
        assert QuadraticNetRegressor(solver=solver).fit(X, y).predict(X) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert QuadraticNetRegressor().fit(X.tolist(), y.tolist()).predict(X.tolist()) == pytest.approx(expected, rel=1e-10)
    single = QuadraticNetRegressor().fit(X.astype(np.float32), y.astype(np.float32))
    assert single.predict(X) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("solver", ["convex", "descent"])
def test_a_constant_input_without_linear_terms_is_no_saddle(solver):
    """Its square is a constant, which the intercept has: there is nothing to learn, and rounding is no curvature."""
    rng = np.random.RandomState(18)
    for value in (1.0, 0.1, 3e4):
        X, y = np.full((40, 1), value), rng.standard_normal(40)
        reg = QuadraticNetRegressor(solver=solver, fit_linear=False, alpha=0).fit(X, y)
        assert reg.certificate_.is_global and reg.predict(X) == pytest.approx(np.full(40, y.mean()), rel=1e-6)


@pytest.mark.parametrize("at", ["optimum", "zero"])
def test_the_curvature_of_a_strict_minimum_is_its_smallest_eigenvalue(at):
    rng = np.random.RandomState(19)
    x = rng.standard_normal((20, 1))
    y = 2.0 * x[:, 0] ** 2 if at == "optimum" else -(x[:, 0] ** 2)
    w = np.sqrt(2.0) if at == "optimum" else 0.0
    certificate = landscape_certificate([[w]], [1.0], x, y)
    second = np.mean(6.0 * w**2 * x[:, 0] ** 4 - 2.0 * y * x[:, 0] ** 2)  # of 1/2 mean (w^2 x^2 - y)^2
    assert certificate.is_global and certificate.curvature == pytest.approx(second, rel=1e-10)


def test_one_weight_and_a_slope_of_any_sign():
    """The slope, a start of Lanczos' method, may be opposite to the other start."""
    X, y = data(20)
    for w in (-1.0, 0.5, 1.0):
        found = landscape_certificate([[w]], [1.0], X[:, :1], y, activation=get_activation("tanh"))
        assert np.isfinite(found.curvature) and found.curvature_converged


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W": np.ones((4, 8))}, "looks transposed"),
        ({"v": np.ones((1, 8))}, "v must have 1 dimension"),
        ({"W": 1j * np.ones((8, 4))}, "W is complex"),
    ],
)
def test_what_no_certificate_is_given_for(change, message):
    X, y = data(21)
    with pytest.raises(ValueError, match=message):
        landscape_certificate(**{"W": np.ones((8, 4)), "v": np.ones(8), "X": X, "y": y, **change})


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        (LossTerms, {"alpha": "auto"}, "alpha must be >= 0, got 'auto'"),
        (LossTerms, {"alpha": -1.0}, "alpha must be >= 0"),
        (LossTerms, {"alpha": np.nan}, "alpha must be >= 0"),
        (LossTerms, {"linear_weight": 0.0}, "linear_weight must be > 0"),
        (CertificateOptions, {"tol": 0.0}, "tol must be > 0"),
        (CertificateOptions, {"max_products": 0}, "max_products must be an integer >= 1"),
        (CertificateOptions, {"max_dense": 1.5}, "max_dense must be an integer >= 0"),
    ],
)
def test_options_that_are_none(options, change, message):
    with pytest.raises(ValueError, match=message):
        options(**change)


def test_certificates_compare():
    X, y = data(22)
    one, other = (landscape_certificate(np.zeros((8, 4)), np.tile([1.0, -1.0], 4), X, y) for _ in range(2))
    assert one == other and one != landscape_certificate(np.zeros((8, 4)), np.ones(8), X, y)


def test_one_sign_beside_linear_terms_with_hardly_more_rows_than_unknowns():
    """Then not every vector that makes R definite is found by a guess; 5 rows, 3 quadratic and 2 linear unknowns."""
    rng = np.random.RandomState(23)
    proven = 0
    for _ in range(20):
        X, y = rng.standard_normal((5, 2)), rng.standard_normal(5)
        reg = QuadraticNetRegressor(output_signs="positive", fit_intercept=False, alpha=0).fit(X, y)
        proven += reg.certificate_.is_global
    assert proven == 20


def test_one_sign_is_decided_if_the_samples_nearly_determine_the_form():
    """Of such fits, whose Hessians are nearly singular, conjugate gradients decide all but one in a hundred."""
    seeds = [80012, 80085, 80491, *range(30)]
    proven = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 13))
        n = int(rng.integers(max(3, d // 2), d * (d + 1) // 2 + 2 * d + 4))
        X, W = rng.standard_normal((n, d)), rng.standard_normal((2, d))
        y = [((X @ W.T) ** 2).sum(axis=1), (X @ W.T) ** 2 @ [1, -1], rng.standard_normal(n)][seed % 3]
        y = y + 0.1 * rng.standard_normal(n) * (seed % 2)
        reg = QuadraticNetRegressor(output_signs="negative" if seed % 5 == 0 else "positive", alpha=0).fit(X, y)
        proven.append(reg.certificate_.is_global)
    assert all(proven)


def test_a_sweep_of_sizes_takes_integers():
    for values in ([1.5, 2], [0, 1], ["a", "b"]):
        with pytest.raises(ValueError, match="must be integers >= 1"):
            phase_transition(20, 8, values, trials=TrainingTrials(n_trials=1, n_starts=1))


# -- several outputs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"output_signs": "positive", "alpha": 0}, {"loss": HuberLoss(0.5)}])
def test_several_outputs_are_fitted_like_each_alone(options):
    rng = np.random.default_rng(50)
    X = rng.standard_normal((90, 4))
    Y = np.column_stack([X[:, 0] * X[:, 1], X[:, 2] ** 2 + X[:, 3], rng.standard_normal(90)])
    reg = QuadraticNetRegressor(**options).fit(X, Y)
    alone = [QuadraticNetRegressor(**options).fit(X, y) for y in Y.T]
    predicted = np.column_stack([one.predict(X) for one in alone])
    assert_allclose(reg.predict(X), predicted, rtol=0, atol=1e-13 * np.abs(predicted).max())
    assert [one.status for one in reg.certificates_] == [one.certificate_.status for one in alone]
    assert reg.certificate_ in reg.certificates_ and len(reg.certificates_) == 3
    assert reg.certificate_.is_global == all(one.is_global for one in reg.certificates_)
    values = (reg.hidden_weights_ @ (X - reg.center_).T) ** 2
    assert_allclose(
        values.T @ reg.output_weights_ + (X - reg.center_) @ reg.coef_.T + reg.intercept_, predicted, atol=1e-10
    )
    assert_allclose(reg.network_(X), predicted, atol=1e-10)
    assert_allclose(QuadraticNetRegressor(**options).fit(X, Y[:, :1]).predict(X), predicted[:, :1])


def test_a_warning_names_the_column_of_y():
    rng = np.random.RandomState(40)
    X = rng.uniform(-1, 1, (150, 2))
    y = np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(150)
    with pytest.warns(ConvergenceWarning, match=r"a kernel is better .* for QuadraticNetRegressor, column 1 of y"):
        QuadraticNetRegressor().fit(X, np.column_stack([X[:, 0], y]))


# -- what other models reach -------------------------------------------------------------------------------------------


def test_a_table_beyond_second_degree_is_warned_of():
    rng = np.random.RandomState(40)
    X = rng.uniform(-1, 1, (150, 2))
    y = np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(150)
    with pytest.warns(ConvergenceWarning, match=r"a kernel is better .* R\^2 on held-out samples is about 0\.9"):
        reg = QuadraticNetRegressor().fit(X, y)
    assert reg.linear_score_ < reg.held_out_score_ < 0.9


def test_a_network_that_is_worse_than_a_linear_model_says_so():
    X = np.random.RandomState(41).standard_normal((60, 3))
    with pytest.warns(ConvergenceWarning, match="a linear model is better for these data"):
        reg = QuadraticNetRegressor(fit_linear=False, alpha=0.1).fit(X, X @ [1.0, 2.0, -1.0])
    assert reg.linear_score_ > 0.99 and np.isnan(reg.held_out_score_)


def test_a_sparse_product_is_found_among_other_inputs():
    rng = np.random.RandomState(42)
    X = rng.standard_normal((600, 12))
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.5 * rng.standard_normal(600)
    reg = QuadraticNetRegressor().fit(X[:150], y[:150])  # of 90 unknowns; .72 with all inputs in the same units
    assert reg.score(X[150:], y[150:]) > 0.8
    assert reg.certificate_.is_global


def test_predictions_to_noisy_samples_are_constant_far_outside():
    X, y = data()
    noisy = QuadraticNetRegressor(random_state=0).fit(X, y)
    low, high = X.min(axis=0), X.max(axis=0)
    assert_allclose(noisy.input_range_, [low - 0.25 * (high - low), high + 0.25 * (high - low)])
    far = np.array([[1e3, 0.0, 0.0, 0.0]])
    assert_allclose(noisy.predict(far), noisy.network_(np.clip(far, *noisy.input_range_))[:, 0])
    assert_allclose(noisy.predict(X), noisy.network_(X)[:, 0])


def test_exact_fits_and_given_penalties_extrapolate():
    X, _ = data()
    y = X[:, 0] * X[:, 1] + X[:, 2]
    exact, given = QuadraticNetRegressor(random_state=0).fit(X, y), QuadraticNetRegressor(alpha=0.1).fit(*data())
    assert given.input_range_ is None and exact.input_range_ is None
    assert_allclose(exact.predict(100.0 * X), 1e4 * X[:, 0] * X[:, 1] + 100.0 * X[:, 2], rtol=1e-6)
