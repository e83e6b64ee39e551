"""Which smooth network did these samples come from? The estimator."""

from __future__ import annotations

import time
import warnings
from numbers import Real

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from skident.base.parameters import (
    ACTIVATION_CHOICES,
    AT_LEAST_ONE,
    POSITIVE,
    Interval,
    StrOptions,
    check_layer_widths,
    check_magnitudes,
    forgotten_on_error,
)
from skident.base.predictions import in_shape_of_targets
from skident.base.progress import StageLog
from skident.fitting.batched_fits import BatchedNetworkFits, network_of, parameters_of
from skident.fitting.width_search import Limits, search_weights, search_widths
from skident.network import Architecture, get_activation
from skident.optim import Ending, batched_levenberg_marquardt

from .noisy_widths import units_above_noise
from .openness import information, lone_rows, standard_errors_of
from .residuals import lack_of_fit
from .table import Table
from .verdict import Evidence, PassiveReport, idle_features, judge

__all__ = ["PassiveNetworkIdentifier"]

_SEARCHED = 2**13  # rows at most that widths are looked for on
_HELD_OUT, _MOST_HELD_OUT = 0.15, 2000
_PREDICTED_ROWS = 2**16
_CONSTANT = 1e-13  # spread relative to the largest target that is rounding


class PassiveNetworkIdentifier(RegressorMixin, BaseEstimator):
    """Weights, shifts and widths of the network behind samples (X, y), without a question asked.

    Minimises ``sum_n s_n |f(x_n) - y_n|^2`` over all weights and shifts of the feedforward network f, whose widths are
    those with the least Bayesian information criterion, or of noisy rows those of all units that explain more than the
    best of units that are not there (in 95 of 100 cases). Without noise the network behind the samples is found to
    rounding, up to its symmetries, as long as one of the starts leads there and the rows determine it; with noise it is
    the least-squares fit, with standard errors. X may have any distribution with a density.

    Parameters
    ----------
    layer_widths : sequence of int or "auto", default="auto"
        ``(m_1, ..., m_L)``, the last one the number of outputs. ``"auto"`` finds them, of networks of one to three
        layers (up to two hidden ones).
    activation : str, default="tanh"
        Of the hidden layers; one of `skident.network.get_activation`, but not ``identity``.
    output_activation : str, default="identity"
    tol : float, default=1e-8
        Relative maximum error on held-out rows below which the network may be called exact.
    n_starts : int, default=16
        Random starts of every size tried; twice as many of the widths found.
    max_neurons : int, default=200
        Hidden units at most.
    max_seconds : float or None, default=30
        After which no step is made; what was found until then is returned, with a warning where it explains too little.
    random_state : int, RandomState or None, default=None
        Draws held-out rows and starts.
    verbose : int, default=0
        1 prints a line a size tried on stderr.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        In canonical form, a function of X as it is. Where no hidden unit is supported by the rows, a linear function.
    layer_widths_ : tuple of int
    stderr_ : (list of ndarray, list of ndarray)
        Standard errors of weights and shifts, shaped like the network's, to first order in the noise; infinite where
        the rows leave a parameter open. Of several targets the noise is taken as alike, relative to their deviations.
    report_ : PassiveReport
        ``exact`` (whether held-out rows are met to `tol`, nothing is open and no unit is too many), ``open`` (list of
        str), ``held_out_error`` (of a fit without these rows; largest error over largest deviation of the targets),
        ``n_held_out``, ``noise`` (of the targets, relative to their deviation, per degree of freedom),
        ``lack_of_fit`` (chance that noise alone is as close to functions of X as the residuals; below 0.001 they are
        called no noise), ``n_rows``, ``n_distinct``, ``n_parameters``, ``answers_per_parameter``, ``spectrum`` (of the
        Gauss-Newton matrix scaled to unit diagonal, ascending), ``idle_features`` (columns of X that do not matter),
        ``tried`` (sizes and what they came to) and ``seconds``.
    n_iter_ : int
        Sizes tried, at least 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where X has string column names.

    Warns
    -----
    ConvergenceWarning
        If something is open: no small network explains the rows better than noise allows ("not a network of this
        class"), too few or repeated rows, columns that are constant, collinear or all discrete, outliers, parameters
        that the rows do not determine.

    Notes
    -----
    X is whitened. All starts of a size take their Levenberg-Marquardt steps in one batch of matrix products, and the
    worse ones are dropped on the way; units of the best are then left out, three candidates of every layer in one
    batch, as long as the criterion falls. Where ``g(z) - g(-z)`` is linear (softplus, gelu, silu, relu), a unit that
    faces the wrong way is right but for a linear function: fits of one hidden layer have linear units beside the
    others, and the sides are chosen such that these vanish. A step costs ``O(B N P^2)`` for B starts and N answers.

    Widths are looked for on up to 8192 rows; the last fit and the standard errors read all of them in blocks, so that
    X and y may be `numpy.memmap`: beyond 131 072 rows nothing is copied, and memory is bounded by 200 MB and
    ``24 P^2`` bytes. Sample weights count as repetitions of rows; ``(sum w)^2 / sum w^2`` is how many there are.

    Examples
    --------
    >>> import numpy as np
    >>> from skident import PassiveNetworkIdentifier
    >>> from skident.datasets import make_network
    >>> truth = make_network((4, 3, 1), output_activation="identity", random_state=0)
    >>> X = np.random.default_rng(0).laplace(size=(300, 4))
    >>> identifier = PassiveNetworkIdentifier(random_state=0).fit(X, truth(X)[:, 0])
    >>> print(identifier.layer_widths_, identifier.report_.exact)
    (3, 1) True
    """

    _parameter_constraints = {
        "layer_widths": ["array-like", AT_LEAST_ONE, StrOptions({"auto"})],
        "activation": [ACTIVATION_CHOICES],
        "output_activation": [ACTIVATION_CHOICES],
        "tol": [POSITIVE],
        "n_starts": [AT_LEAST_ONE],
        "max_neurons": [AT_LEAST_ONE],
        "max_seconds": [Interval(Real, 0, None, closed="neither"), None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        layer_widths="auto",
        *,
        activation="tanh",
        output_activation="identity",
        tol=1e-8,
        n_starts=16,
        max_neurons=200,
        max_seconds=30.0,
        random_state=None,
        verbose=0,
    ):
        self.layer_widths = layer_widths
        self.activation = activation
        self.output_activation = output_activation
        self.tol = tol
        self.n_starts = n_starts
        self.max_neurons = max_neurons
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y, sample_weight=None):
        """Find the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, m_L)
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is none of those allowed (an InvalidParameterError); values are not finite or beyond 1e100; y
            or all of X is constant; weights are negative or all zero; given `layer_widths` have more parameters than
            there are answers, or do not end in the number of outputs.

        Warns
        -----
        ConvergenceWarning
            See the class.
        """
        with forgotten_on_error(self):
            started = time.perf_counter()
            self._validate_params()
            table, widths = self._read(X, y, sample_weight)
            rng = check_random_state(self.random_state)
            fitted, held_out = table.split(_HELD_OUT, _MOST_HELD_OUT, rng)
            rows = table.rows(_some_of(fitted, rng))
            found = self._search(table, rows, widths, started, rng)
            self._store(table, rows, table.rows(held_out), found, rng)
            self.report_["seconds"] = time.perf_counter() - started
        return self

    def _read(self, X, y, sample_weight):
        """The table, and the widths asked for or None."""
        X, y = validate_data(
            self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        Y = y.reshape(len(y), -1)
        check_magnitudes(X=X, y=Y)
        self._one_dimensional = y.ndim == 1
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            if not np.any(sample_weight > 0):
                raise ValueError("sample_weight is zero everywhere: no row is left.")
        table = Table(X, Y, sample_weight, get_activation(self.output_activation).name == "identity")
        if np.all(np.ptp(table.Y, axis=0) <= _CONSTANT * np.abs(table.Y).max(axis=0)):
            raise ValueError("y is constant: it tells nothing of a network but the shift of its output.")
        if not table.n_inputs:
            raise ValueError("all columns of X are constant: nothing can be learned about a network from them.")
        if get_activation(self.activation).symmetry == "linear":
            raise ValueError("activation='identity' makes a linear function of every network; its widths mean nothing.")
        return table, None if isinstance(self.layer_widths, str) else self._widths(table)

    def _widths(self, table):
        widths = check_layer_widths(self.layer_widths, table.n_outputs)
        P, n = Architecture(widths).n_parameters(table.n_inputs), int(0.8 * table.n_distinct) * table.n_outputs
        if P > n:
            raise ValueError(
                f"layer_widths={widths} has {P} parameters, and {table.n_distinct} different rows with "
                f"{table.n_outputs} targets each leave {n} to fit them on: give more rows or fewer units."
            )
        return widths

    def _search(self, table, rows, widths, started, rng):
        log = StageLog(self.verbose, type(self).__name__)
        deadline = np.inf if self.max_seconds is None else started + self.max_seconds
        limits = Limits(self.n_starts, self.max_neurons, deadline, log.say)
        architecture = Architecture(
            (rows.n_outputs,) if widths is None else widths,
            get_activation(self.activation).name,
            get_activation(self.output_activation).name,
        )
        if widths is not None:
            return search_weights(rows, architecture, limits, rng)
        found = search_widths(rows, architecture, limits, rng)
        return units_above_noise(found, table.rows(_some_of(np.arange(len(table.X)), rng)), limits, rng)

    def _store(self, table, rows, held_out, found, rng):
        """Judge the fit on held-out rows, fit again to all of them, and keep what came of it."""
        architecture, k = found.fitted.architecture, table.n_inputs
        x = _refit(architecture, rows, found.fitted.x)
        error, misfit = (
            _largest_error(network_of(x, k, architecture), held_out),
            lack_of_fit(architecture, rows, x, rng),
        )
        x = _refit(architecture, table, x)
        self.network_ = table.in_inputs(network_of(x, k, architecture)).canonical()
        network = table.in_whitened(self.network_)
        residuals = network(rows.U) - rows.Y
        cost = float(BatchedNetworkFits(architecture, table).cost(parameters_of(network)[None])[0])
        noise = float(np.sqrt(cost / max(table.n_answers - network.n_parameters, 1.0)))
        info = information(network, table)
        evidence = Evidence(
            error, len(held_out.U), residuals, noise, found.settled, misfit, lone_rows(network, table, info), info
        )
        exact, opened = judge(network, table, evidence, self.tol)
        self.stderr_ = standard_errors_of(network, table, info, noise)
        self.layer_widths_, self.n_iter_ = self.network_.layer_widths, max(1, len(found.tried))
        self.report_ = PassiveReport(
            exact=exact,
            open=opened,
            held_out_error=error,
            n_held_out=len(held_out.U),
            noise=noise,
            lack_of_fit=misfit,
            n_rows=len(table.X),
            n_distinct=table.n_distinct,
            n_parameters=network.n_parameters,
            answers_per_parameter=table.n_answers / network.n_parameters,
            spectrum=info.spectrum,
            idle_features=idle_features(self.network_, self.stderr_[0][0]),
            tried=found.tried,
        )
        if opened:
            warnings.warn(f"{'; '.join(opened)}.", ConvergenceWarning, stacklevel=3)

    def predict(self, X):
        """Values of the network found.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, m_L)
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        Y = np.empty((len(X), self.network_.n_outputs))
        for start in range(0, len(X), _PREDICTED_ROWS):
            Y[start : start + _PREDICTED_ROWS] = self.network_(X[start : start + _PREDICTED_ROWS])
        return in_shape_of_targets(Y, self._one_dimensional)


def _some_of(index, rng):
    """As many rows as are searched."""
    return index if len(index) <= _SEARCHED else np.sort(rng.permutation(index)[:_SEARCHED])


def _refit(architecture, rows, x):
    """A few steps more, to rounding or to the minimum."""
    result = batched_levenberg_marquardt(
        BatchedNetworkFits(architecture, rows), x[None], Ending(max_iter=30, ftol=1e-8, damping=1e-8)
    )
    return result.x[0]


def _largest_error(network, rows):
    """Over the targets' largest deviation from 0, the worst of all outputs; NaN without rows."""
    if not len(rows.U):
        return np.nan
    errors, sizes = np.abs(network(rows.U) - rows.Y).max(axis=0), np.abs(rows.Y).max(axis=0)
    return float(np.max(errors / np.where(sizes > 0, sizes, 1.0)))
