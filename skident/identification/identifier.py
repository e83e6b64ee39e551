"""Recovery of all weights of a network from queries: the estimator."""

import time
import warnings
from numbers import Integral

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skident.base.checked_data import checked_model_data
from skident.base.estimator import Estimator
from skident.base.parameters import (
    ACTIVATION_CHOICES,
    AT_LEAST_ONE,
    POSITIVE,
    Interval,
    StrOptions,
    center_and_scale,
    forgotten_on_error,
)
from skident.base.predictions import NetworkPredictions
from skident.network import FeedforwardNetwork
from skident.optim import one_thread
from skident.oracle import BlackBoxError, Budget, NotIdentified, Oracle, OutOfBudgetError
from skident.oracle.black_box import called_as, named_rows, resolve_black_box

from .activation.calibration import declared_calibration
from .diagnosis import budget_named, explained, range_named, refuse_sentinel, warning_of
from .exact_bits import FORMAT_DIGITS, round_validated
from .from_labels import network_from_labels
from .observe import observe, pose, refuse, refuse_large_batches, sharp_bends_of
from .options import IdentifierOptions
from .parameter_errors import standard_errors_of
from .plan import plan
from .problem import Options
from .reductions.chain import reduced
from .reductions.outputs import has_skip, refuse_refuted, with_outputs
from .report import ReportInNotebooks, report_of
from .solve import solve
from .validate import validate


class NetworkIdentifier(ReportInNotebooks, NetworkPredictions, Estimator):
    """Recover all weights and biases of a black-box network from queries.

    Recovers the feedforward network ``f(x) = g_L(W_L^T ... g_1(W_1^T x + tau_1) ... + tau_L)`` with
    ``|f(x) - black_box(x)| <= tol`` times the range of the outputs, and validates it on held-out samples.

    Parameters
    ----------
    estimator : callable, regressor, classifier, torch.nn.Module, FeedforwardNetwork or ONNX model, default=None
        The black box, from (n, D) to (n, m_L) or (n,). Without y it is queried as it is. With y an estimator is
        cloned and fitted on (X, y) first, unless it is inside `FrozenEstimator`. None is a small tanh `MLPRegressor`.
    layer_widths : sequence of int, "auto" or None, default="auto"
        ``(m_1, ..., m_L)``, outputs last. ``"auto"`` recovers depth and widths of up to three hidden layers. None is
        one hidden layer of unknown width. Set the widths if they are known: fewer queries are needed then.
    activation, output_activation : str, default="auto"
        Of the hidden layers and of the output. ``auto`` reads or detects them (about 1,200 queries, most at large
        inputs). Set them if detection is uncertain or its queries are not allowed.
    response_method : {"auto", "predict", "predict_proba", "labels"}, default="auto"
        Queried method. ``predict_proba``: outputs are probabilities of exclusive classes, and the network of their
        logits is recovered. ``auto`` is that for classifiers; set it for callables that return probabilities.
        ``labels``: only labels are queried; one hidden ReLU layer is recovered from the decision boundary.
    input_range : tuple of two array-likes of shape (D,) or float, default=None
        ``(low, high)`` outside which the model is never queried. Infinite entries are no bounds. Without it, queries
        go up to 1e5 standard deviations from the data.
    tol : float, default=1e-8
        Relative maximum error on held-out samples below which the network is called exact: the largest error of an
        output over its largest deviation from its mean. Raise it for models that are not evaluated in float64. Below
        1e-10, ReLU networks with several outputs are fitted to outputs up to three times the parameters, to rounding.
    max_seconds, max_queries : float and int, default=None
        Budget. None is no limit. What is recovered when it ends is returned with a warning; if nothing is, `fit`
        raises an error. The overrun is at most one call of the model and one second.
    weight_dtype : {"float32", "float16", "bfloat16"}, default=None
        Number format of the model's weights. If it is set, recovered weights are rounded to such numbers where the
        evidence allows; `report_.bits` counts them. Set it for torch modules, whose weights are float32.
    options : IdentifierOptions, default=None
        Options that few people change: strategy, stages, validation samples, random starts.
    n_jobs : int, default=None
        Threads for Hessians, processes for random starts, or the backend of `joblib.parallel_config`. The result does
        not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of all random choices. Pass an int for reproducible results.
    verbose : int, default=0
        1 shows progress bars and a line per stage.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        The recovered network, in canonical form. For classifiers, the network of the logits with zero mean over the
        classes, see `skident.network.center_outputs`.
    report_ : IdentificationReport
        Validation, plan and stages; prints as a table, `plot` draws it.
    stderr_ : tuple of (list of ndarray, list of ndarray), or None
        Standard errors of weights and biases to first order, if outputs are noisy or rounded.
    extractor_, completion_ : fitted stages of the Hessian pipeline, or None
    layer_widths_ : tuple of int
    estimator_ : object
        The queried model.
    n_queries_ : int
    n_features_in_ : int
    classes_ : ndarray of shape (K,)
        For classifiers only; ``0 ... K-1`` for a callable.

    Warns
    -----
    ConvergenceWarning
        If the network is not exact, with the failed stage or the noise that limits it; if fewer units than given
        explain all outputs.

    See Also
    --------
    IdentifierOptions : Options that few people change.
    EntangledWeightExtractor, NetworkCompletion : The stages of the Hessian pipeline.

    Notes
    -----
    After the recovery, the network is compared on further held-out samples, one per ten queries spent: half of them or
    more from the normal distribution with the means and standard deviations of X, within `input_range`, up to a quarter
    rows of X, and a quarter near the activation boundaries of the recovered units. If all held-out samples agree, other
    outputs occur on at most ``undetected_share`` of that normal distribution, and on ``undetected_share_of_X`` of the
    distribution of X, each with confidence 0.999: ``1 - 0.001^(1/n)``, about ``6.9 / n`` for n samples of the one
    or the other, 0 if all rows of X are compared, and 1 if the network does not agree. If one differs, the network is
    not exact.

    Methods are chosen by activation: saturation at large inputs, faces, or Hessians near the data (Fiedler et al.
    2021) for tanh, sigmoid and erf; activation boundaries for ReLU; the ReLU limit for softplus, GELU, SiLU, mish, ELU
    and SELU. The guide describes them with their costs.

    References
    ----------
    Fiedler, Fornasier, Klock, Rauchensteiner (2021), "Stable Recovery of Entangled Weights".

    Examples
    --------
    >>> import numpy as np
    >>> from skident import NetworkIdentifier
    >>> from skident.datasets import make_network
    >>> network = make_network((10, 8, 5, 3), random_state=0)
    >>> black_box = lambda X: network(X)
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> identifier = NetworkIdentifier(
    ...     black_box,
    ...     layer_widths=(8, 5, 3),
    ...     activation="tanh",
    ...     output_activation="tanh",
    ...     random_state=0,
    ... ).fit(X)
    >>> print(identifier.report_.relative_max_error < 1e-10)
    True
    """

    _parameter_constraints = {
        "estimator": "no_validation",
        "layer_widths": ["array-like", StrOptions({"auto"}), None],
        "activation": [ACTIVATION_CHOICES, StrOptions({"auto", "leaky_relu"})],
        "output_activation": [ACTIVATION_CHOICES, StrOptions({"auto"})],
        "response_method": [StrOptions({"auto", "predict", "predict_proba", "labels"})],
        "input_range": ["array-like", None],
        "tol": [POSITIVE],
        "max_seconds": [POSITIVE, None],
        "max_queries": [AT_LEAST_ONE, None],
        "weight_dtype": [StrOptions(set(FORMAT_DIGITS)), None],
        "options": [IdentifierOptions, None],
        "n_jobs": [Interval(Integral, None, -1, closed="right"), AT_LEAST_ONE, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator=None,
        *,
        layer_widths="auto",
        activation="auto",
        output_activation="auto",
        response_method="auto",
        input_range=None,
        tol=1e-8,
        max_seconds=None,
        max_queries=None,
        weight_dtype=None,
        options=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.layer_widths = layer_widths
        self.activation = activation
        self.output_activation = output_activation
        self.response_method = response_method
        self.input_range = input_range
        self.tol = tol
        self.max_seconds = max_seconds
        self.max_queries = max_queries
        self.weight_dtype = weight_dtype
        self.options = options
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_is_fitted__(self):
        return hasattr(self, "network_")

    def set_params(self, **params):
        """Set parameters; ``options__n_starts=100`` sets an option, also of the default options.

        Parameters
        ----------
        **params
            Parameters by name.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an option does not exist; the message names the closest option.
        """
        if self.options is None and params.get("options") is None and any(n.startswith("options__") for n in params):
            self.options = IdentifierOptions()
        return super().set_params(**params)

    def fit(self, X, y=None):
        """Query the black box and recover its network.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, D)
            Sets the location and scale of each input. Of a DataFrame, a model that was fitted with column names or
            accepts DataFrames gets the columns by name; only models without names get them by position.
        y : array-like of shape (n_samples,) or (n_samples, m_L), default=None
            Only for an estimator that must be fitted first; labels for a classifier.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not finite or has one row or column; widths are impossible or contradict what was recovered; the
            black box raises, is constant, returns NaN or different outputs for the same inputs; the budget ends
            before a network is recovered; or none is (`skident.oracle.NotIdentified`).
        """
        with forgotten_on_error(self), one_thread(), budget_named():
            began = time.perf_counter()
            frame = X
            X, y, response = self._validated(X, y)
            options = Options.of(self, self._chosen_options(), response)
            with (budget := Budget(self.max_seconds, self.max_queries, began)).limit():
                rng = check_random_state(self.random_state)
                model, called = self._model(X, y, frame, options, rng)
                if response == "labels":
                    return self._fit_labels(X, model, called, rng, budget)
                oracle = self._oracle(X, called, options, budget)
                with range_named(oracle, X):
                    validation, steps = _recover(observe(model, oracle, X, options), model, options, rng)
                self._store(validation, steps)
            if (message := warning_of(validation)) is not None:
                warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def _fit_labels(self, X, model, called, rng, budget):
        """Identify a classifier from its labels alone."""
        place = center_and_scale(X, None)
        network, classes, report = network_from_labels(
            called, X, *place, budget, rng, input_range=self.input_range, verbose=self.verbose
        )
        self.network_, self.layer_widths_, self.report_ = network, network.layer_widths, report
        self.extractor_ = self.completion_ = self.stderr_ = None
        self.estimator_, self.n_queries_, self.classes_ = model, budget.n_queries, classes
        self._one_dimensional, self._labels, self._softmax, self._reduced_outputs = True, classes, False, None
        if not report.agrees:
            warnings.warn(
                f"The network is not exact: {report.boundary_errors} of {report.checked} labels at its decision "
                f"boundary differ, and {report.contradicting_labels} of {report.compared_labels} others. The model may "
                "have more layers, or labels that are not deterministic.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _validated(self, X, y):
        """Samples and targets as arrays, and whether values or probabilities are queried."""
        self._validate_params()
        X, y, response = checked_model_data(self, X, y)
        if X.shape[1] < 2:
            raise ValueError("n_features=1: weights of one input are all parallel; at least 2 features are needed.")
        return X, y, response

    def _chosen_options(self):
        """The options, checked."""
        chosen = IdentifierOptions() if self.options is None else clone(self.options)
        chosen._validate_params()
        return chosen

    def _model(self, X, y, frame, options, rng):
        """The model, fitted if it must be, and the same with the way to call it."""
        classifiers, rows = options.response != "predict", named_rows(X, frame)
        model = resolve_black_box(self.estimator, rows, y, rng.randint(2**31 - 1), classifiers=classifiers)
        return model, called_as(model, frame, options.batch_size, options.vectorized)

    def _oracle(self, X, called, options, budget):
        """An oracle that queries the model around X."""
        center, scale = center_and_scale(X, None if options.extractor is None else options.extractor.center)
        settings = {"response": options.response, "input_range": self.input_range, "budget": budget}
        return Oracle(called, X.shape[1], center=center, scale=scale, **settings)

    def _store(self, validation, steps):
        problem, best = validation.problem, validation.best
        network, bits = validation.network, None
        if self.weight_dtype is not None and not has_skip(problem.oracle):  # its factors have no number format
            network, bits = round_validated(validation, self.weight_dtype, validation.problem.options.emulate)
        self.network_ = with_outputs(network, problem.oracle)
        self.layer_widths_ = self.network_.layer_widths
        self.extractor_, self.completion_, self.estimator_ = best.extractor, best.completion, problem.model
        self.n_queries_ = problem.oracle.n_queries
        self.report_, self.stderr_ = report_of(validation, steps, bits), standard_errors_of(validation)
        self._one_dimensional, self._labels = problem.oracle.one_dimensional, None
        self._softmax = problem.identifies_logits and problem.detected.output.name == "softmax"
        self._reduced_outputs = next((box.reduction for box in problem.oracle.outputs if not box.reduction.whole), None)
        if self.layer_widths_ != network.layer_widths:
            self.stderr_ = None
        if problem.identifies_logits and not self._softmax:
            network = self.network_
            self.network_ = FeedforwardNetwork(network.weights, network.biases, network.activations[0], "sigmoid")
        logits = problem.oracle.response == "predict_proba" and not problem.identifies_logits
        if logits and self._reduced_outputs is None:
            labels = np.arange(max(2, problem.oracle.n_outputs))
            self.classes_ = self._labels = getattr(problem.model, "classes_", labels)


def _is_refusal(error):
    """Whether the model was recognized as another one than a network."""
    return isinstance(error, NotIdentified) and error.stage == "model"


def _refuse_range(problem):
    """Raise if the outputs of a problem are one sentinel value far out, which detection would have noticed."""
    if problem is not None and problem.detected is None and not problem.oracle.restricted:
        refuse_sentinel(problem.oracle, problem.X)


def _recover(readings, model, options, rng):
    """The validation of the first reading that explains the outputs, else of the best one, and its plan."""
    best, failure, problem, readings = None, None, None, iter(readings)
    while best is None or not best[0].explained:
        try:
            reading = next(readings, None)  # queries the model, and keeps what was recovered if the budget ends
            if reading is None:
                break
            problem = pose(reading, model, options, rng)
            with explained(problem):
                chain = reduced(problem)
                steps = plan(chain.problem)
                result = chain.invert(solve(chain.problem, steps))
                validation = validate(problem, result, chain.names, reading.rejected)
            refuse_refuted(problem.oracle)
        except (NotIdentified, OutOfBudgetError, BlackBoxError) as error:
            failure = error if failure is None or isinstance(failure, BlackBoxError) else failure
            if _is_refusal(error):  # of the model, whatever its outputs are taken for
                break
            continue
        if best is None or validation.rank < best[0].rank:
            best = validation, steps
    if not _is_refusal(failure) and (best is None or not best[0].explained):
        refuse_large_batches(problem)
        refuse(declared_calibration(model), options)
        if best is None:
            _refuse_range(problem)
            refuse(sharp_bends_of(problem), options)
    if best is None:
        raise failure
    return best
