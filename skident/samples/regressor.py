"""Depth-2 ReLU networks learned from samples.

The paper's algorithms on tensors are in `skident.samples.paper`: `units_from_tensors` (Algorithms 1 and 6),
`recover_scalars` (2), `fix_signs` (3), `recover_up_to_signs` (4); that of Algorithm 5 is `regress_on_ridges`.
"""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from scipy.stats import norm
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skident.base.checked_data import checked_data, checked_weights, merged_order
from skident.base.estimator import ReportedEstimator
from skident.base.parameters import AT_LEAST_ONE, Interval, StrOptions, forgotten_on_error
from skident.base.progress import StageLog
from skident.base.undetected import undetected_share
from skident.budget.constants import PREDICTED_ROWS, RANGE_MARGIN, REPEATED_ROWS
from skident.network import FeedforwardNetwork
from skident.optim import gram_work, one_thread

from .checks import check_sizes, warn_doubts, warn_of_better_models, warn_of_other_inputs
from .learning import Search, learn_relu_network
from .missing_unit import missing_unit_test
from .paper.decomposition import order_for
from .paper.literal import learn_literally
from .sample import Sample
from .unit_signs import as_relu

# Heavy tails: of a thousand times as many rows of a power law, the largest value is (z_3 / z_30)^3 times as large; z_r
# has rank r. Ranks above one keep single outliers out, and the ratio of Gaussian tails is divided out. Narrower bounds
# cost more: with the second power, one of 20,000 new lognormal rows was clipped for half of the networks, with up to a
# hundred times the error of all others together.
_RANK = 3
_TAIL_RANK = 30  # statistics: ten times the rank above, so that their ratio is that of ten times as many rows
_TAIL_POWER = 3  # statistics: ten times as many rows, three times, are a thousand times as many
_FEWEST_ROWS = 300  # below, rank 30 is no tail
_LARGEST_FACTOR = 10.0  # of the largest value, beyond which a straight line is not continued


class TensorReLURegressor(RegressorMixin, ReportedEstimator):
    """Learns ``f(x) = sum_i a_i relu(w_i . x + b_i)`` from samples, by tensors of its Hermite expansion or a wide fit.

    Minimizes ``sum_n s_n (y_n - f(x_n))^2`` over the weights, biases and output weights of m hidden units, a linear
    function and a constant. For Gaussian x the expansion of f in Hermite polynomials has the coefficient tensors
    ``T_k = sum_i a_i h_k(b_i) w_i^{(x) k}``, which samples estimate and whose decomposition gives the units [1]_; that
    start is then polished by Gauss-Newton steps on the data. More than 20 units start from a stochastic fit of twice as
    many, of which those that others replace are taken away: no tensors, and no assumption on x. Without noise the
    result is exact, with noise as good as least squares from the true network, as long as one of the starts leads
    there.

    Parameters
    ----------
    n_units : int, default=None
        Number m of hidden units. None finds it: the rank of T_2, then units are added and removed while they
        gain more than noise allows.
    order : "auto" or int, default="auto"
        Order l of the tensors, which bounds the number of units by ``C(d + l - 1, l)``: as many as features for 1,
        ``d (d + 1) / 2`` for 2. "auto" is the smallest order that allows `n_units`. If units are counted, the search
        starts within 1 and, when all of these units are used, continues within the first order that allows more than
        20, at most 4. Set 1 to save time where there are known to be fewer units than features.
    method : {"refined", "literal"}, default="refined"
        ``literal`` is the paper's own algorithm, for comparison: raw moments, separate decompositions of
        ``T_{2 l + 1}`` and ``T_{2 l + 2}``, recovery of scalars and regression on the units (Algorithms 4, 2 and 5).
        It needs `n_units`, and far more samples.
    alpha : "auto" or float, default="auto"
        Penalty ``alpha n sum_i |a_i (w_i, b_i)|^2`` on the units and likewise on the linear part, for columns of X and
        y of variance 1. "auto" chooses it together with the number of units where rows are few, and takes 0 where they
        are many or have no noise. The network is then that of these units which is closest to the mean of plausible
        networks, with more units and fewer. 0 is least squares.
    n_candidates : int, default=16
        Starts of the decomposition; those that end in different places are all polished. Beyond 20 units there is one
        start, the wide fit.
    polish : bool, default=True
        Whether Gauss-Newton steps follow the tensors. Without them the number of units is the rank of T_2.
    batch_size : int, default=None
        Rows treated at a time; None for blocks of 4 MB.
    noise_level : float, default=None
        Standard deviation of the noise in y, in units of y, if it is known: where a fit reaches it, no more units are
        tried.
    n_jobs : int, default=None
        Blocks treated at the same time, by joblib: in threads, or by what `joblib.parallel_config` chooses. The result
        does not depend on it.
    random_state : int, RandomState or None, default=None
        Draws starts.
    verbose : int, default=0
        1 prints a line a step on stderr.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        The ReLU units: unit-norm weight columns, biases, and output weights. ``predict(X)`` is
        ``network_(X)[:, 0] + X @ linear_ + intercept_``, see also :meth:`to_network`. Where no unit is supported by the
        data, one with output weight 0.
    linear_ : ndarray of shape (n_features,)
        Linear part that the units do not explain: zero where they do, which is tested.
    intercept_ : float
    n_units_ : int
    tensor_estimate_ : FeedforwardNetwork or None
        The units before the polish, of the tensors or of the wide fit, up to signs of (w_i, b_i) that a linear function
        makes up for; None without units.
    signs_margin_ : ndarray of shape (n_units_,)
        How well the data determine on which side of its hyperplane a unit is active: 1 fully, 0 not at all. It is 0 if
        other signs give the same function: where ``a_i w_i`` of some units add up to zero, or `linear_` is not zero.
    spectrum_ : ndarray of shape (k,)
        Eigenvalues of T_2, largest absolute value first, in units of y; k is the rank of X.
    spectrum_noise_ : float
        Absolute value up to which sampling alone may put them.
    candidate_losses_ : ndarray
        Mean squared residuals of the candidates, ascending: polished, though not to the last digit; with
        ``polish=False`` as the tensors left them.
    alpha_ : float
        Penalty of the fit, 0 for least squares.
    loss_ : float
        Weighted mean squared residual.
    exact_ : bool
        Whether the residuals are rounding and the rows determine the network: every unit has k + 2 active and k + 2
        inactive rows, the Gauss-Newton matrix has full rank, every row is predicted by the others to rounding
        (leave-one-out residuals), and no other signs of the units give the same function (`signs_margin_`). It is a
        statement about the rows given: a unit that is active on none of n rows has no effect.
    undetected_share_ : float
        Regions that hold no row have at most this share of new rows from the same distribution, with confidence 0.999:
        about ``6.9 / n``; 1 unless `exact_`.
    input_box_ : InputBox or None
        Range of the whitened inputs to which `predict` clips; None if `exact_`, or if only signs are undetermined: then
        the function is exact.
    n_iter_ : int
        Gauss-Newton steps of the last fit, at least 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where X has string column names.

    Warns
    -----
    UserWarning
        If columns of X are far from Gaussian: the tensors then determine little, and the result rests on the polish of
        several starts; or discrete, with ten values at most: where units bend between these is then open.
    ConvergenceWarning
        If residuals are rounding, but the rows do not determine the units, or not their signs. With a given `n_units`:
        if more units would still pay, candidates disagree where rows are too few for a decision, or units cannot be
        separated from noise. With ``n_units=None``: if there are too few rows for one unit, or more units would pay
        than `order` or the rows allow, or if leave-one-out errors are clearly above those of kernel ridge regression,
        or above those of the mean.

    Notes
    -----
    X is whitened. The span of the units are the leading eigenvectors of T_2; T_3 and T_4 are estimated in that span, as
    matrices of ``(p (p + 1) / 2)^2`` entries with ``p = min(m, d)``, from blocks of rows: X and y may be
    `numpy.memmap`, of float32 or float64. Up to 131 072 rows enter while candidates are compared, all of them at the
    end. Memory beyond X and y is for four times these rows, a few blocks, ``O(p^4)`` numbers for the tensors (2 MB for
    20 units, 7 MB for 30), and for the polish ``O(P^2)`` with ``P = m (d + 1) + d + 1``, or up to 400 MB
    from 300 parameters on.

    With n rows, moments cost ``O(n (d^2 + p^4 / 4))``, a Gauss-Newton step ``O(n m d + min(n, 64 P) P^2 + P^3)``, and
    from 300 parameters on ``O(n m d)`` for each of at most 30 products with the matrix. A step of the fit of the
    tensors costs ``O(m^3 p^3)`` a candidate, whatever n is. The wide fit, 8000 steps with 512 rows each, costs
    ``O(m d)`` a row. It starts the polish if more than 20 units are requested, or T_2 shows more than 10 in more
    than 20 dimensions and their number is to be recovered (with the default of `polish`); with
    fewer units it is tried where a further unit would still pay, and kept where it leaves smaller residuals.

    The polish fits ``sum_i c_i |w_i . x + b_i|`` and a linear function, so it needs no signs of (w_i, b_i); those are
    read off the linear function afterwards: d equations, which noise leaves solvable for up to 30 units, more units
    than d among them; beyond that where there are no more units than d.

    Sample weights count as repetitions of rows in all sums. How many rows there are to distinguish units from noise is
    ``(sum w)^2 / sum w^2``, so that the unit of the weights does not matter. For inputs with a known density p that is
    not normal, weights ``phi(x) / p(x)`` make the moments right.

    Of the tables of the benchmarks, a dozen rows (linnerud) and squares of squares with their heavy tails (hierarchical
    targets) are lost to linear models and kernels.

    References
    ----------
    .. [1] P. Awasthi, A. Tang, A. Vijayaraghavan (2021). Efficient Algorithms for Learning Depth-2 Neural Networks with
       General ReLU Activations.

    Examples
    --------
    >>> import numpy as np
    >>> from skident import TensorReLURegressor
    >>> from skident.datasets import make_relu_network
    >>> X, y, network = make_relu_network(2000, n_features=6, n_units=3, random_state=0)
    >>> reg = TensorReLURegressor(random_state=0).fit(X, y)
    >>> print(reg.n_units_, reg.exact_, abs(reg.predict(X) - y).max() < 1e-10)
    3 True True
    """

    _reported = ("n_units_", "exact_", "undetected_share_", "alpha_", "loss_", "n_iter_")

    _parameter_constraints = {
        "n_units": [AT_LEAST_ONE, None],
        "order": [StrOptions({"auto"}), AT_LEAST_ONE],
        "method": [StrOptions({"refined", "literal"})],
        "alpha": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "n_candidates": [AT_LEAST_ONE],
        "polish": ["boolean"],
        "batch_size": [AT_LEAST_ONE, None],
        "noise_level": [Interval(Real, 0, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_units=None,
        *,
        order="auto",
        method="refined",
        alpha="auto",
        n_candidates=16,
        polish=True,
        batch_size=None,
        noise_level=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_units = n_units
        self.order = order
        self.method = method
        self.alpha = alpha
        self.n_candidates = n_candidates
        self.polish = polish
        self.batch_size = batch_size
        self.noise_level = noise_level
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y, sample_weight=None):
        """Learn the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            With one feature, units are the breakpoints of a piecewise linear function. Arrays of float64 and float32
            are not copied.
        y : array-like of shape (n_samples,)
            A column (n_samples, 1) is taken as (n_samples,), with a DataConversionWarning, as `MLPRegressor` does.
        sample_weight : array-like of shape (n_samples,), default=None
            Nonnegative; integer weights count as repetitions, of up to 131 072 rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is none of those allowed (an InvalidParameterError); values are not finite, or their squares
            are not; y or all of X is constant; weights are negative or all zero; `n_units`
            is beyond what `order` allows or more than the rows determine (the message gives the number needed), or
            missing where ``method="literal"``.

        Warns
        -----
        UserWarning, ConvergenceWarning
            See the class.
        """
        with forgotten_on_error(self), one_thread(gram_work(X)):
            self._validate_params()
            sample = self._read(X, y, sample_weight)
            max_units = check_sizes(sample, self.n_units, self.order, self.method)
            warn_of_other_inputs(sample)
            learned = self._learn(sample, max_units)
            self._store(sample, learned)
            warn_doubts(sample, learned, self.n_units, self.order)
            if self.n_units is None and self.polish and self.noise_level is None:
                warn_of_better_models(sample, learned, check_random_state(self.random_state))
        return self

    def _read(self, X, y, sample_weight):
        X, y = checked_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True, ensure_min_samples=2)
        if len(X) <= REPEATED_ROWS:
            rows, weights = merged_order(X, y, sample_weight)
        else:
            rows, weights = None, None if sample_weight is None else checked_weights(sample_weight, X)
        parts = (X, y) if rows is None else (X[rows], y[rows])
        return Sample(*parts, weights, origin=rows, batch_size=self.batch_size, n_jobs=self.n_jobs)

    def _learn(self, sample, max_units):
        rng = check_random_state(self.random_state)
        if self.method == "literal":
            order = self.order if self.order != "auto" else order_for(sample.dim, self.n_units)
            return learn_literally(sample, self.n_units, order=order, rng=rng)
        search = Search(
            max_units=min(max_units, sample.dim) if self.order == "auto" else max_units,
            most_units=max_units if self.order == "auto" else None,
            n_units=self.n_units,
            n_candidates=self.n_candidates,
            polish=self.polish,
            noise_variance=None if self.noise_level is None else (self.noise_level / sample.y_scale) ** 2,
            alpha=None if self.alpha == "auto" else self.alpha,
        )
        log = StageLog(self.verbose, type(self).__name__)
        return learn_relu_network(sample, search, rng=rng, say=log.say)

    def _store(self, sample, learned):
        fit = learned.signed.fit
        self.network_, self.linear_, self.intercept_ = _in_inputs(sample, fit.model)
        self.n_units_ = fit.model.n_units
        self.tensor_estimate_ = None
        if learned.tensor_model.n_units:
            self.tensor_estimate_ = _in_inputs(sample, as_relu(learned.tensor_model))[0]
        self.signs_margin_ = learned.signed.margins
        self.spectrum_ = learned.stage.spectrum * sample.y_scale
        self.spectrum_noise_ = learned.stage.noise * sample.y_scale
        self.candidate_losses_ = learned.candidate_losses * sample.y_scale**2
        self.alpha_ = fit.alpha
        self.loss_ = fit.rss / sample.total * sample.y_scale**2
        self.exact_ = learned.exact
        self.undetected_share_ = undetected_share(sample.n_rows if learned.exact else 0)
        self.input_box_ = None if learned.exact or learned.n_flippable else InputBox.of(sample)
        self.n_iter_ = max(1, fit.n_iter)

    def to_network(self):
        """The whole function as one ReLU network: with a linear part, two more units (Claim D.14 of [1]_).

        Returns
        -------
        FeedforwardNetwork
            `network_` with `intercept_` as the bias of its output, and `linear_` as a pair of units where it is not
            zero. It can be saved, converted to torch, or handed to `NetworkCompressor`.
        """
        check_is_fitted(self)
        (W, a), b, size = self.network_.weights, self.network_.biases[0], np.linalg.norm(self.linear_)
        used = a[:, 0] != 0.0
        W, b, a = W[:, used], b[used], a[used]
        if size > 0.0 or not len(a):
            w = np.divide(self.linear_, size, out=np.zeros_like(self.linear_), where=size > 0.0)
            W, b, a = np.column_stack([W, w, -w]), np.append(b, [0.0, 0.0]), np.vstack([a, [[size], [-size]]])
        return FeedforwardNetwork([W, a], [b, [self.intercept_]], "relu")

    def missing_unit_test(self, X, y, *, n_simulations=199):
        """Test whether the network lacks a unit, with a p-value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples of the fit.
        y : array-like of shape (n_samples,)
        n_simulations : int, default=199
            Simulations of the noise. Raise it for p-values below 0.005.

        Returns
        -------
        MissingUnitTest
            With `p_value`, the unit (`weights`, `bias`) that correlates most with the residuals, and `statistic`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If there are hardly more samples than parameters, or shapes do not match.

        Notes
        -----
        The statistic is ``sup_w |<r, relu(w . x + b)>|``, residuals and unit projected off the derivatives of the
        network. It is compared with the same search on Gaussian noise, so that it needs no noise level. Sample weights
        are not taken into account.
        """
        check_is_fitted(self)
        X, y = checked_data(self, X, y, dtype=np.float64, reset=False, y_numeric=True)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        options = {"linear": self.linear_, "n_simulations": n_simulations, "random_state": seed}
        return missing_unit_test(self.network_, X, np.asarray(y, dtype=np.float64), **options)

    def predict(self, X):
        """The network's values; unless the fit is exact, those at the nearest whitened inputs in `input_box_`.

        The box is the range of the training rows and a quarter of it more on each side, or up to ten times the largest
        value if the tails are heavy. Ordinary new rows are within it; beyond it, where a fit to noisy rows extrapolates
        without bound, predictions are held constant.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        X = checked_data(self, X, dtype=[np.float64, np.float32], reset=False)
        y = np.empty(len(X))
        for start in range(0, len(X), PREDICTED_ROWS):
            rows = X[start : start + PREDICTED_ROWS]
            rows = rows if self.input_box_ is None else self.input_box_.clipped(rows)
            y[start : start + len(rows)] = self.network_(rows)[:, 0] + rows @ self.linear_ + self.intercept_
        return y


def _in_inputs(sample, model):
    """A model of kind "relu" in the coordinates of X and units of y: network, linear part, intercept."""
    W = sample.whitener @ model.V
    b = model.beta - sample.center @ W
    lengths = np.linalg.norm(W, axis=0)
    lengths = np.where(lengths > 0, lengths, 1.0)
    if model.n_units:
        parts = W / lengths, b / lengths, model.s * lengths * sample.y_scale
    else:
        parts = np.zeros((len(sample.center), 1)), np.zeros(1), np.zeros(1)
    network = FeedforwardNetwork([parts[0], parts[2][:, None]], [parts[1], np.zeros(1)], "relu")
    linear = sample.whitener @ model.u * sample.y_scale
    return network, linear, float(sample.y_center + sample.y_scale * model.c - sample.center @ linear)


@dataclass(frozen=True)
class InputBox:
    """Bounds of whitened inputs ``z = (x - center) @ whitener``: the range of the training rows, a quarter wider.

    Heavy tails are continued up to ten times the largest value.

    Attributes
    ----------
    center : ndarray of shape (d,)
    whitener : ndarray of shape (d, k)
    low, high : ndarray of shape (k,)
        Bounds of z.
    """

    center: np.ndarray
    whitener: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, sample):
        """The box of the rows of a sample, or of the standardized columns if rows are too few to whiten others."""
        # Whitened, new rows have n / (n - k) times the variance of the rows: the margin is for less.
        if sample.dim > RANGE_MARGIN * (sample.n_rows - sample.dim):
            sample = sample.standardized()
        low, high = sample.extremes(_TAIL_RANK)
        margin, few = RANGE_MARGIN * (high[0] - low[0]), sample.n_rows < _FEWEST_ROWS
        lowest, highest = (z[0] if few else z[0] * _tail_factor(np.abs(z), sample.n_rows) for z in (low, high))
        return cls(
            sample.center, sample.whitener, np.minimum(low[0] - margin, lowest), np.maximum(high[0] + margin, highest)
        )

    def clipped(self, X):
        """Rows whose whitened inputs are within the bounds.

        X (n, d); returns (n, d).
        """
        Z = (X - self.center) @ self.whitener
        outside = np.any((self.low > Z) | (self.high < Z), axis=1)
        if not outside.any():
            return X
        X = np.array(X, dtype=np.float64)
        X[outside] = self.center + np.clip(Z[outside], self.low, self.high) @ np.linalg.pinv(self.whitener)
        return X


def _tail_factor(z, n_rows):
    """How many times the largest values (k,) new rows may be, from values (30, k) by descending size."""
    gaussian = norm.isf(_RANK / n_rows) / norm.isf(_TAIL_RANK / n_rows)
    ratio = z[_RANK - 1] / np.maximum(z[-1], np.finfo(float).tiny)
    return np.clip((ratio / gaussian) ** _TAIL_POWER, 1.0, _LARGEST_FACTOR)
