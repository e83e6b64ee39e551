"""The estimator of feedforward networks from samples (X, y), without queries."""

import time
import warnings
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skident.base.checked_data import checked_data, checked_weights
from skident.base.estimator import Estimator
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
from skident.budget.constants import NOISELESS, PREDICTED_ROWS, SOME_SAMPLES
from skident.fitting.width_search import SearchLimits, search_weights, search_widths
from skident.network import Architecture, get_activation
from skident.optim import WorkBudget, gram_work, one_thread
from skident.samples.checks import said_of_classes

from .final_fit import final_fit, some_of
from .profile_interval import profile_interval
from .undetermined import information, lone_rows, spread_of
from .validation import Evidence, PassiveReport, idle_features, judge
from .whitened_table import Table
from .width_selection import units_above_noise

_HELD_OUT = 0.15  # share of held-out samples (statistics: a lack of fit of 10 % is significant)
_FIRST_ORDER = (
    "standard errors are of first order, and too small if the noise leaves other networks: the budget ended before "
    "fits to fresh noise were made; raise max_work or max_seconds"
)
_RIVALS = (
    "the samples do not determine the activation: {} has the lowest information criterion, and {} nearly the same; set "
    "activation, or take more samples"
)
_STOPPED = (
    "max_seconds={:g} ended the search before its budget of work did: on another machine another network may be "
    "recovered for the same random_state; raise max_seconds, or lower max_work"
)
_CANDIDATES = ("tanh", "softplus", "relu", "sin", "gelu", "silu")  # tried by "auto": smooth ones first
_SAME_CRITERION = 10.0  # difference of information criteria below which the odds of two activations are within 150
_CONSTANT = 450.0  # units of rounding of the largest target: 1e-13 in double precision


class PassiveNetworkIdentifier(RegressorMixin, Estimator):
    """Weights, biases and widths of the network behind samples (X, y), without queries.

    Minimizes ``sum_n s_n |f(x_n) - y_n|^2`` over all weights and biases of the feedforward network f, whose widths are
    those with the least Bayesian information criterion, or of noisy rows those of all units that explain more than the
    best of units that are not there (in 95 of 100 cases). Without noise the network behind the samples is recovered to
    rounding, up to its symmetries, as long as one of the starts leads there and the rows determine it; with noise it is
    the network closest to the posterior mean, with standard errors. X may have any distribution with a density.

    Parameters
    ----------
    layer_widths : sequence of int or "auto", default="auto"
        ``(m_1, ..., m_L)``, the last one the number of outputs. ``"auto"`` finds them, of networks of one to three
        layers (up to two hidden ones).
    activation : str, default="tanh"
        Of the hidden layers; one of `skident.network.get_activation`, but not ``identity``. ``"auto"`` fits networks of
        tanh, softplus, relu, sin, gelu and silu, and chooses the one of the lowest Bayesian information criterion, or
        the first that meets all samples to rounding (sigmoid units are tanh units with other weights).
    output_activation : str, default="identity"
    tol : float, default=1e-8
        Relative maximum error on held-out rows below which the network may be called exact.
    n_starts : int, default=16
        Random starts of every size tried; twice as many of the chosen widths.
    max_neurons : int, default=200
        Hidden units at most.
    max_work : float or None, default=1e11
        Floating-point products that the search may form, and as many again for the last fit and the standard errors: a
        step of one start counts outputs times squared parameters, a batch of steps a million more. One core forms some
        3e9 per second. The best network until then is kept, with a warning if it explains too little.
    max_seconds : float or None, default=None
        No step is made afterwards. If it ends the fit, a warning says so: a slower or busier machine may then recover
        another network for the same `random_state`. By default, the budget of work alone ends a search.
    random_state : int, RandomState or None, default=None
        Draws held-out rows and starts.
    verbose : int, default=0
        1 prints a line a size tried on stderr.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        In canonical form, a function of X as it is. Where no hidden unit is supported by the rows, a linear function.
    layer_widths_ : tuple of int
    activation_ : str
        Of the hidden layers, chosen among the keys of `activation_scores_` if ``activation="auto"``.
    activation_scores_ : dict
        The Bayesian information criterion of the best network of each activation; the difference of two is twice the
        log of their odds. No further ones were fitted once one met the samples to rounding.
    stderr_ : (list of ndarray, list of ndarray)
        Standard errors of weights and biases, shaped like the network's; infinite for parameters that the rows do not
        determine, and for all if the residuals are no noise. Of several targets the
        noise is taken as alike, relative to their deviations.
    report_ : PassiveReport
        What may be claimed, what is undetermined, and what the search cost.
    n_iter_ : int
        Sizes tried, at least 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where X has string column names.

    Warns
    -----
    ConvergenceWarning
        If it is undetermined: no small network explains the rows better than noise allows ("not a network of this
        class"), too few or repeated rows, columns that are constant, collinear or all discrete, outliers, parameters
        that the rows do not determine.
    UserWarning
        If y takes ten values or fewer, as numbers of classes do: a classifier fits logits instead.

    Notes
    -----
    X is whitened. All starts of a size take their Levenberg-Marquardt steps in one batch of matrix products, and the
    worse ones are dropped on the way; units of the best are then left out, three candidates of every layer in one
    batch, as long as the criterion falls. Where ``g(z) - g(-z)`` is linear (softplus, gelu, silu, relu), a unit that
    faces the wrong way is right but for a linear function: fits of one hidden layer have linear units beside the
    others, and the sign is chosen such that these vanish. A step costs ``O(B N P^2)`` for B starts and N outputs.

    Noisy targets are fitted with a Gaussian prior on all parameters but the output's bias: pre-activations of variance
    4, 2 or 1, whichever has the largest evidence. Without it some units follow the noise at single rows, and the
    standard errors describe another minimum than the true network's. There are often several minima within the noise.
    The posterior distribution is sampled by 24 fits to targets with fresh noise (randomized maximum likelihood [1]_),
    each the best from all minima; the network is the one whose outputs are closest to the mean of theirs, on up to 8192
    rows, and the best minimum beyond. Standard errors are those of first order, or the deviations of the 24 fits from
    this network if these are larger than chance allows. If widths are not given, a part of the fits has one more unit.
    A parameter whose standard error exceeds half the broadest prior's standard deviation is not determined.

    Widths are searched for on up to 8192 rows; the last fit and the standard errors read all of them in blocks, so that
    X and y may be `numpy.memmap`: beyond 131 072 rows nothing is copied, and memory is bounded by 200 MB and
    ``24 P^2`` bytes. Sample weights count as repetitions of rows; ``(sum w)^2 / sum w^2`` is how many there are.

    References
    ----------
    .. [1] Y. Chen, D. S. Oliver, "Ensemble randomized maximum likelihood method as an iterative ensemble smoother",
       Mathematical Geosciences 44, 2012.
    .. [2] D. M. Bates, D. G. Watts, "Nonlinear Regression Analysis and Its Applications", Wiley, 1988, section 6.1.2.

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
        "activation": [ACTIVATION_CHOICES, StrOptions({"auto"})],
        "output_activation": [ACTIVATION_CHOICES],
        "tol": [POSITIVE],
        "n_starts": [AT_LEAST_ONE],
        "max_neurons": [AT_LEAST_ONE],
        "max_work": [Interval(Real, 0, None, closed="neither"), None],
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
        max_work=1e11,
        max_seconds=None,
        random_state=None,
        verbose=0,
    ):
        self.layer_widths = layer_widths
        self.activation = activation
        self.output_activation = output_activation
        self.tol = tol
        self.n_starts = n_starts
        self.max_neurons = max_neurons
        self.max_work = max_work
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
            Nonnegative; integer weights count as repetitions, of up to 131 072 rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is none of those allowed (an InvalidParameterError); values are not finite or beyond 1e100; y
            or all of X is constant; weights are negative or all zero; given `layer_widths` have more parameters than
            there are outputs, or do not end in the number of outputs.

        Warns
        -----
        ConvergenceWarning
            See the class.
        """
        with forgotten_on_error(self), one_thread(gram_work(X)):
            started = time.perf_counter()
            self._validate_params()
            table, widths = self._read(X, y, sample_weight)
            rng = check_random_state(self.random_state)
            fitted, held_out = table.split(_HELD_OUT, SOME_SAMPLES, rng)
            rows = table.rows(some_of(fitted, rng))
            limits = self._limits(rows, started)
            found, scores = self._search(rows, widths, limits, rng)
            if widths is None:
                some = table.rows(some_of(np.arange(len(table.X)), rng))
                found = units_above_noise(found, some, limits, rng)
            limits.budget.extend()
            final = final_fit(table, rows, found, limits, rng, widths_given=widths is not None)
            self.activation_, self.activation_scores_ = found.fitted.architecture.activation, scores
            self._store(table, rows, table.rows(held_out), found, final, limits)
            self.report_ = replace(self.report_, seconds=time.perf_counter() - started)
        return self

    def _read(self, X, y, sample_weight):
        """The table, and the given widths or None."""
        X, y = checked_data(
            self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        Y = y.reshape(len(y), -1)
        check_magnitudes(X=X, y=Y)
        self._one_dimensional = y.ndim == 1
        if sample_weight is not None:
            sample_weight = checked_weights(sample_weight, X)
        table = Table(X, Y, sample_weight, get_activation(self.output_activation).name == "identity")
        rounding = _CONSTANT * (np.finfo(y.dtype).eps if y.dtype.kind == "f" else np.finfo(np.float64).eps)
        if np.all(np.ptp(table.Y, axis=0) <= rounding * np.abs(table.Y).max(axis=0)):
            raise ValueError(
                "y is constant up to rounding: it determines no parameter of a network but the bias of its output. If "
                "y has a large offset, subtract it before y is rounded."
            )
        for sentence in said_of_classes(Y):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        if not table.n_inputs:
            raise ValueError("all columns of X are constant: nothing can be learned about a network from them.")
        if self.activation == "identity":
            raise ValueError("activation='identity' makes a linear function of every network; its widths mean nothing.")
        return table, None if isinstance(self.layer_widths, str) else self._widths(table)

    def _widths(self, table):
        widths = check_layer_widths(self.layer_widths, table.n_outputs, outputs="y has {} target(s)")
        P, n = Architecture(widths).n_parameters(table.n_inputs), int(0.8 * table.n_distinct) * table.n_outputs
        if P > n:
            raise ValueError(
                f"layer_widths={widths} has {P} parameters, and {table.n_distinct} different rows with "
                f"{table.n_outputs} targets each leave {n} to fit them on: give more rows or fewer units."
            )
        return widths

    def _limits(self, rows, started):
        deadline = np.inf if self.max_seconds is None else started + self.max_seconds
        budget = WorkBudget(np.inf if self.max_work is None else self.max_work, rows.Y.size, deadline)
        return SearchLimits(self.n_starts, self.max_neurons, budget, StageLog(self.verbose, type(self).__name__).say)

    def _search(self, rows, widths, limits, rng):
        """The network of the lowest criterion over activations, and all criteria; candidates have equal budgets."""
        names = _CANDIDATES if self.activation == "auto" else (get_activation(self.activation).name,)
        output, budget = get_activation(self.output_activation).name, limits.budget
        best, scores = None, {}
        for k, name in enumerate(names):
            budget.limit = budget.work + (budget.max_work - budget.work) / (len(names) - k)
            if widths is None:
                found = search_widths(rows, Architecture((rows.n_outputs,), name, output), limits, rng)
            else:
                found = search_weights(rows, Architecture(widths, name, output), limits, rng)
            scores[name] = float(found.fitted.score)
            limits.say(f"activation {name}: widths {found.fitted.widths}, score {found.fitted.score:.0f}")
            best = found if best is None or found.fitted.score < best.fitted.score else best
            if found.fitted.cost <= NOISELESS**2 * rows.total:
                break
        budget.limit = budget.max_work
        return best, scores

    def _store(self, table, rows, held_out, found, final, limits):
        """Validate the fit on held-out rows, and keep what came of it."""
        self.network_ = table.in_inputs(final.network).canonical()
        network = table.in_whitened(self.network_)
        info = information(network, table)
        spread = spread_of(self.network_, table, info, final)
        evidence = Evidence(
            held_out_error=_largest_error(final.without_held_out, held_out),
            n_held_out=len(held_out.U),
            residuals=network(rows.U) - rows.Y,
            noise=final.noise,
            settled=found.settled,
            lack_of_fit=final.lack_of_fit,
            n_lone=lone_rows(network, table, info),
            n_undetermined=spread.n_undetermined,
            info=info,
        )
        exact, opened = judge(network, table, evidence, self.tol)
        if final.minima and not spread.n_resampled and spread.n_undetermined < network.n_parameters:
            opened.append(_FIRST_ORDER)
        opened += _rivals(self.activation_scores_, self.network_)
        opened += [_STOPPED.format(self.max_seconds)] if limits.budget.late else []
        self.stderr_ = spread.stderr
        self.layer_widths_, self.n_iter_ = self.network_.layer_widths, max(1, len(found.tried))
        self.report_ = PassiveReport(
            exact=exact,
            open=opened,
            **evidence.entries,
            **spread.entries,
            n_minima=len(final.minima[0].x) if final.minima else 1,
            n_rows=len(table.X),
            n_distinct=table.n_distinct,
            n_parameters=network.n_parameters,
            values_per_parameter=table.n_values / network.n_parameters,
            idle_features=idle_features(self.network_, self.stderr_[0][0]),
            tried=found.tried,
            work=limits.budget.work,
            stopped_by=limits.budget.stopped_by,
        )
        if opened:
            warnings.warn(f"{'; '.join(opened)}.", ConvergenceWarning, stacklevel=3)

    def profile_interval(self, X, y, layer, index, *, level=0.95):
        """Confidence interval of a weight or bias, also if the curvature does not describe it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples of the fit.
        y : array-like of shape (n_samples,) or (n_samples, m_L)
        layer : int
            0 for the first one.
        index : (int, int) or int
            Position in ``network_.weights[layer]``, or in ``network_.biases[layer]``.
        level : float, default=0.95
            Confidence.

        Returns
        -------
        ndarray of shape (2,)
            The ends. One is infinite if the residuals hardly grow on its side, up to 128 standard errors away.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If there are no more outputs than parameters, or layer, index or level do not exist.

        Notes
        -----
        The parameter is moved away from the least squares fit nearest to `network_`, and all others are fitted again,
        until the residual sum of squares exceeds its minimum by the noise variance times the squared Student quantile
        [2]_. That takes up to 40 fits. Noise of equal variance in all outputs is assumed; the prior of the fit and
        sample weights are not taken into account. If the contribution of a unit hardly exceeds the noise, intervals of
        its parameters contain the true value less often than `level`.
        """
        check_is_fitted(self)
        X, y = checked_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=False)
        Y, network = np.asarray(y, dtype=np.float64).reshape(len(X), -1), self.network_
        if not (isinstance(level, Real) and 0 < level < 1):
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        if Y.shape[1] != network.n_outputs or Y.size <= network.n_parameters:
            raise ValueError(
                f"y has shape {np.shape(y)}: a profile needs {network.n_outputs} output(s) per sample, and more values "
                f"in total than the network has parameters, {network.n_parameters}. Pass the samples of the fit."
            )
        with one_thread():
            return profile_interval(network, X, Y, _position(network, layer, index), level)

    def predict(self, X):
        """Values of the recovered network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, m_L)
        """
        check_is_fitted(self)
        X = checked_data(self, X, dtype=[np.float64, np.float32], reset=False)
        Y = np.empty((len(X), self.network_.n_outputs))
        for start in range(0, len(X), PREDICTED_ROWS):
            Y[start : start + PREDICTED_ROWS] = self.network_(X[start : start + PREDICTED_ROWS])
        return in_shape_of_targets(Y, self._one_dimensional)


def _position(network, layer, index):
    """The position of one weight (i, j), or bias j, among all parameters of a network."""
    layers = list(zip(network.weights, network.biases, strict=True))
    if not isinstance(layer, Integral) or not 0 <= layer < len(layers):
        raise ValueError(f"layer must be an integer from 0 to {len(layers) - 1}, got {layer!r}.")
    W, b = layers[layer]
    index = (index,) if isinstance(index, Integral) else tuple(index)
    shape = W.shape if len(index) == 2 else b.shape
    if len(index) != len(shape) or not all(0 <= i < m for i, m in zip(index, shape, strict=True)):
        raise ValueError(f"index must be (i, j) of weights {W.shape} or j of biases {b.shape}, got {index!r}.")
    before = sum(W.size + b.size for W, b in layers[:layer])
    return before + (index[0] * W.shape[1] + index[1] if len(index) == 2 else W.size + index[0])


def _rivals(scores, network):
    """What is undetermined of the activation, from the criterion of each candidate."""
    least, own = min(scores.values()) + _SAME_CRITERION, network.activation
    rivals = [name for name, score in scores.items() if score < least and name != own]
    return [_RIVALS.format(own, " and ".join(rivals))] if rivals and len(network.weights) > 1 else []


def _largest_error(network, rows):
    """Over the targets' largest deviation from 0, the worst of all outputs; NaN without rows."""
    if not len(rows.U):
        return np.nan
    errors, sizes = np.abs(network(rows.U) - rows.Y).max(axis=0), np.abs(rows.Y).max(axis=0)
    return float(np.max(errors / np.where(sizes > 0, sizes, 1.0)))
