import numpy as np
import pytest
from scipy.special import expit, softmax

from skident.oracle import (
    BlackBoxError,
    Oracle,
    Precision,
    logits_from_probabilities,
    probabilities_from_logits,
    probability_bounds,
    probability_error,
)

EPS = np.finfo(float).eps


@pytest.mark.parametrize("n_classes", [3, 10])
def test_softmax_keeps_every_digit(n_classes, rng):
    """Logits up to 300 apart: probabilities of 1e-130 have full relative precision."""
    Z = 150.0 * rng.uniform(-1, 1, (200, n_classes))
    Z -= Z.mean(axis=1, keepdims=True)
    found, error = logits_from_probabilities(softmax(Z, axis=1))
    np.testing.assert_allclose(found, Z, atol=4 * EPS * 300)
    # Probabilities of order one are multiples of 2^-53 too, which costs no more than their rounding.
    assert error.max() < 1e-12
    np.testing.assert_allclose(probabilities_from_logits(found), softmax(Z, axis=1), atol=1e-13)


@pytest.mark.parametrize("kind", ["(1 - q, q)", "(q,)", "(q, 1 - q)"])
def test_the_error_is_a_bound(kind):
    """Of log-odds from probabilities of which one is a difference; far out they are bounded, never infinite."""
    z = np.linspace(-60, 60, 2001)
    sign = -1.0 if kind == "(q, 1 - q)" else 1.0
    q = expit(z)
    P = {"(1 - q, q)": np.stack([1 - q, q], 1), "(q,)": q[:, None], "(q, 1 - q)": np.stack([q, 1 - q], 1)}[kind]
    found, error = logits_from_probabilities(P)
    gap = np.abs(sign * found[:, 0] - z)
    finite = np.isfinite(error)
    assert np.all(gap[finite] <= error[finite])
    # No more than 4 eps (2 + |z|) on the precise side, and 2 eps / (1 - q) besides on the other.
    allowed = 4 * EPS * (2 + np.abs(z[finite])) + 2 * EPS * (1 + np.exp(z[finite]))
    assert np.mean(error[finite] <= 1.001 * allowed) > 0.95  # small numbers can be multiples of the grid by chance
    bound = np.log(1e-9 / 2.0**-53)
    np.testing.assert_array_equal(finite, (z < bound) | (np.abs(z - bound) < 0.05) & finite)
    assert np.abs(sign * found[~finite, 0] - bound).max() < 1e-6


@pytest.mark.parametrize("precision", [Precision(), Precision("float32"), Precision("decimals", 4)])
@pytest.mark.parametrize("n_classes", [1, 2, 3, 10])
def test_the_error_is_a_bound_in_every_precision(n_classes, precision, rng):
    """And no more than a hundred times too large, rows that tell nothing aside."""
    Z = (1.5 if precision.decimals else 4.0) * rng.standard_normal((500, n_classes))
    P = expit(Z) if n_classes == 1 else softmax(Z, axis=1)
    P = P.astype(np.float32).astype(float) if precision.kind == "float32" else P
    P = P.round(4) if precision.kind == "decimals" else P
    Z = Z[:, 1:] - Z[:, :1] if n_classes == 2 else Z if n_classes == 1 else Z - Z.mean(axis=1, keepdims=True)
    found, error = logits_from_probabilities(P, precision)
    gap, told = np.abs(found - Z).max(axis=1), np.isfinite(error)
    assert told.mean() > 0.3 and np.mean(gap[told] <= error[told]) > 0.99
    assert np.max(gap[told] / error[told]) > 0.01


@pytest.mark.parametrize("kind", ["softmax", "(1 - q, q)"])
def test_probabilities_in_single_precision(kind):
    """Recognised by their digits; computed in single precision throughout."""
    z = np.linspace(-80, 80, 2001).astype(np.float32)
    q = 1 / (1 + np.exp(-z))
    P = np.stack([np.float32(1) - q, q], 1) if kind == "(1 - q, q)" else softmax(np.stack([0 * z, z], 1), axis=1)
    assert P.dtype == np.float32
    oracle = Oracle(lambda X: P[X[:, 0].astype(int)], 2, response="predict_proba")
    Y, error = oracle.query(np.arange(2001.0)[:, None] * [1.0, 0.0])
    told = np.isfinite(error)
    assert oracle.precision.kind == "float32"
    assert np.mean(np.abs(Y[told, 0] - z[told]) <= error[told]) > 0.99 and 1e-8 < error.min() < 1e-5
    assert z[told].max() > (10 if kind == "(1 - q, q)" else 79) and z[told].min() < -79
    # The digits of a few more outputs do not change that.
    assert oracle.query(np.array([[1000.0, 0.0]]))[1][0] > 1e-8


def test_values_have_no_error_of_their_own():
    Y, error = Oracle(lambda X: X @ [1.0, 2.0], 2).query(np.ones((3, 2)))
    np.testing.assert_array_equal(error, np.zeros(3))


def test_two_precise_columns_have_no_bound():
    z = np.linspace(-300, 300, 1001)
    found, error = logits_from_probabilities(softmax(np.stack([0 * z, z], 1), axis=1))
    np.testing.assert_allclose(found[:, 0], z, atol=1e-12)
    assert np.isfinite(error).all()


def test_probabilities_of_exactly_zero():
    """Bounded: by the grid for two classes, by the smallest number for a softmax of more."""
    two, error = logits_from_probabilities(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert np.isinf(error).all() and two[0, 0] == -two[1, 0] and 15 < two[0, 0] < 17
    three, error = logits_from_probabilities(np.array([[0.0, 0.5, 0.5]]))
    assert np.isinf(error).all() and np.isfinite(three).all()


@pytest.mark.parametrize("n_columns", [1, 2, 5])
def test_probabilities_of_log_odds_and_logits(n_columns, rng):
    Z = 40.0 * rng.standard_normal((50, n_columns))
    P = probabilities_from_logits(Z)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    expected = np.stack([expit(-Z[:, 0]), expit(Z[:, 0])], 1) if n_columns == 1 else softmax(Z, axis=1)
    np.testing.assert_allclose(P, expected, rtol=1e-12)


def test_probability_error_sees_what_can_be_seen():
    """Beyond the bound a wrong logit costs nothing; one on the wrong side of it does."""
    z = np.array([[0.0], [30.0]])
    Z, error = logits_from_probabilities(expit(z))
    gap, lost = probability_error(Z, error, np.array([[0.0], [25.0]]))
    assert gap < 1e-15 and lost == 0.5
    assert probability_error(Z, error, np.array([[0.0], [5.0]]))[0] > 1e-3
    assert probability_error(Z, error, np.array([[1e-3], [30.0]]))[0] > 1e-4


def test_oracle_outputs_logits():
    oracle = Oracle(lambda X: expit(X @ [1.0, 2.0]), 2, response="predict_proba")
    U = np.array([[0.5, 0.5], [50.0, 0.0]])
    Y, error = oracle.query(U)
    assert Y.shape == (2, 1) and Y[0, 0] == pytest.approx(1.5, abs=1e-15) and list(np.isinf(error)) == [False, True]
    assert not oracle.exact and oracle.restricted
    np.testing.assert_allclose(oracle.jacobian(U[:1])[0, 0], [1.0, 2.0], atol=1e-8)


def test_differences_within_the_uncertainty_are_no_noise(rng):
    """The last digit of q near 1 is 1e-4 of a log-odds of 30."""
    box = lambda X: np.minimum(expit(X[:, 0]) + EPS * rng.integers(-1, 1, len(X)), 1.0)  # noqa: E731
    U = np.linspace(-5, 15, 200)[:, None] * [1.0, 0.0]
    assert Oracle(box, 2, response="predict_proba").query_twice(U)[1] < 1e-14
    assert Oracle(lambda X: np.log(box(X)) - np.log1p(-box(X)), 2).query_twice(U)[1] > 1e-12


def test_rows_are_drawn_further_out_until_they_are_precise():
    """At the center the log-odds are 20; further out a second unit takes them back on one side."""
    asked = []

    def draw(n, factor):
        asked.append(factor)
        return factor * np.random.RandomState(0).standard_normal((n, 2))

    oracle = Oracle(lambda X: expit(10.0 + 10.0 * np.tanh(0.3 * X[:, 0] + 3.0)), 2, response="predict_proba")
    U, Y = oracle.query_precise(draw, 50)
    assert len(U) >= 50 and asked[:3] == [1.0, 2.0, 4.0] and len(asked) < 9
    assert Y.max() < np.log(1e-10 / 2.0**-54) + 0.1


def test_rows_that_serve_to_fit_and_how_much_they_tell():
    """Half of the log-odds of a certain classifier are lost; values are all precise."""
    z = np.linspace(-20.0, 20.0, 41)[:, None]
    oracle = Oracle(lambda X: expit(X[:, 0]), 1, response="predict_proba")
    clear = oracle.is_precise(oracle.query(z)[1])
    assert clear[z[:, 0] < 0].all() and not clear[z[:, 0] > 10].any()
    values = Oracle(lambda X: X[:, 0], 1)
    assert values.is_precise(values.query(z)[1]).all()
    assert [oracle.n_independent_outputs(k) for k in (1, 3)] == [1, 2] and [
        values.n_independent_outputs(k) for k in (1, 3)
    ] == [1, 3]


def test_certain_rows_are_refused():
    oracle = Oracle(lambda X: expit(40.0 + np.tanh(X[:, 0])), 2, response="predict_proba")
    with pytest.raises(BlackBoxError, match="only 0 of 50 queries .* the classifier is too confident"):
        oracle.query_precise(lambda n, factor: np.zeros((n, 2)), 50)


WRONG = [
    (lambda X: X, "expects probabilities, but outputs range from -1 to 1"),
    (lambda X: 0.25 + 0.0 * X, "probabilities of the 2 classes sum to 0.5 instead of 1.*multilabel"),
    (lambda X: [np.full((len(X), 2), 0.5)] * 3, "list of 3 tables of probabilities, one per label"),
    (lambda X: np.where(X > 0, np.nan, 0.5), "not finite"),
]


@pytest.mark.parametrize(("box", "message"), WRONG)
def test_outputs_that_are_refused(box, message):
    with pytest.raises(BlackBoxError, match=message):
        Oracle(box, 2, response="predict_proba")(np.array([[-1.0, 1.0]]))


def test_unknown_response():
    with pytest.raises(ValueError, match="response must be one of .*, got 'logits'"):
        Oracle(np.tanh, 2, response="logits")


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (1.001, r"sum to 1\.001 instead of 1: off by \+1\.0e-03, they are rounded too coarsely"),
        (0.9998, r"sum to 0\.9998 instead of 1: off by -2\.0e-04, they are rounded too coarsely"),
        (0.5, r"sum to 0\.5 instead of 1: off by -5\.0e-01, labels that do not exclude each other"),
    ],
)
def test_the_deviation_of_a_sum_is_said(factor, said):
    with pytest.raises(ValueError, match=said):
        logits_from_probabilities(factor * np.array([[0.25, 0.75], [0.5, 0.5]]))


def test_negative_probabilities_of_single_precision():
    """An onnxruntime sigmoid returns up to -6e-8 where it should return 0."""
    P = np.array([[-6e-8], [0.25], [1.0 + 1e-7]])
    Z, error = logits_from_probabilities(P, Precision("float32"))
    assert np.isinf(error[[0, 2]]).all() and np.isfinite(error[1]) and np.isfinite(Z).all()
    with pytest.raises(BlackBoxError, match="expects probabilities"):
        logits_from_probabilities(P - 1e-6, Precision("float32"))


def test_bounds_of_probabilities_in_single_precision():
    """As numpy computes a sigmoid, relatively precise; and as 1/2 + r with r off by 3e-8, on a grid of 2^-25."""
    z = np.linspace(-30.0, 15.0, 20001)
    exact = 1.0 / (1.0 + np.exp(-z.astype(np.float32).astype(float)))
    relative = (1.0 / (1.0 + np.exp(-z.astype(np.float32)))).astype(float)
    absolute = (np.float32(0.5) + (exact - 0.5).astype(np.float32) + np.float32(2.0**-25)).astype(float)
    for P in (relative, absolute):
        assert np.all(np.abs(P - exact) <= probability_bounds(P[:, None], Precision("float32"))[:, 0])
    assert np.median(probability_bounds(relative[:8000, None], Precision("float32"))) < 1e-10
