"""The whole identification: extraction, completion, polish, and an honest last look."""

from __future__ import annotations

import time
import warnings
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from skident.base.parameters import (
    ACTIVATION_CHOICES,
    AT_LEAST_ONE,
    POSITIVE,
    Interval,
    StrOptions,
    center_and_scale,
    check_targets,
    forgotten_on_error,
)
from skident.base.predictions import NetworkPredictions
from skident.base.progress import StageLog
from skident.network import FeedforwardNetwork
from skident.optim import one_thread
from skident.oracle import Clock, NotIdentified, Oracle, OutOfBudgetError
from skident.oracle.black_box import resolve_black_box, resolve_response

from .completion import NetworkCompletion
from .extractor import EntangledWeightExtractor
from .hints import budget_named, explained
from .input_range import keep_near_centre
from .observe import first_look
from .plan import plan_routes
from .problem import Inquiry, Limits, Pipeline, ask_fresh, sought_widths
from .report import ReportInNotebooks
from .solve import make_attempts
from .validate import judge, report_of, stderr_of, warning_of

__all__ = ["NetworkIdentifier"]


class NetworkIdentifier(ReportInNotebooks, NetworkPredictions, BaseEstimator):
    """Weights and shifts of a black-box network, from its answers.

    Finds the feedforward network ``f(x) = g_L(W_L^T ... g_1(W_1^T x + tau_1) ... + tau_L)`` with
    ``|f(x) - black_box(x)| <= tol`` times the range of the answers: structure first, then all parameters at once to
    rounding error. What was found is compared with the black box on fresh inputs, and only called exact when it agrees.

    Parameters
    ----------
    estimator : callable, regressor, classifier, torch.nn.Module, FeedforwardNetwork or ONNX model, default=None
        The black box: maps (n, D) to (n, m_L) or (n,). A regressor or classifier inside `FrozenEstimator` is queried as
        it is, another one is cloned and fitted on (X, y) first: a fitted one with a warning, unless `clone` of this
        estimator (in `GridSearchCV`) has made it unfitted. None is a small tanh `MLPRegressor`. An ONNX model is an
        `onnxruntime.InferenceSession` or the path of an ``.onnx`` file; rows get the shape of its input. Scalers
        become part of the first layer (`skident.network.unfold_inputs` takes them out again).
    layer_widths : sequence of int or "auto", default=None
        ``(m_1, ..., m_L)``, the last one the number of outputs. None: one hidden layer of a width to be found, linear
        output. ``"auto"``: the smallest network of up to three hidden layers that explains the answers; needs an
        activation that saturates. Of relu and leaky relu networks depth and widths are found either way; of hard tanh,
        softplus, gelu, silu and elu ones the width of the one hidden layer that they may have.
    activation, output_activation : str, default="auto"
        ``auto`` reads them off black boxes that tell. Of others they are looked for, some 1200 queries, most of them
        far out (`skident.identification.activation`): ``report_.activation``. Before a softmax, or the sigmoid of one
        output, the network of the logits is identified. Where the output's is in doubt, it is taken as linear, and,
        with widths given, as its rival if that fails. Where far out nothing may be asked (`input_range`,
        probabilities, ``max_queries`` below 10 000), they are taken as tanh and linear. Of a classifier they are those
        of the network of its logits. ``"leaky_relu"``: of one slope, found. ``"hard_tanh"``: ``max(-1, min(z, 1))``.
        Clipped linear outputs are detected: `network_` then has the output activation `skident.network.clip`.
    response_method : {"auto", "predict", "predict_proba"}, default="auto"
        ``predict_proba``: the answers are probabilities of K exclusive classes, (n, K), or (n,) of the second of two;
        they are turned into logits, ``log p_k - mean_j log p_j`` (n, K), or the log-odds of the second of two
        classes, (n, 1), and the network of these is identified. Of an estimator this method is asked. ``auto`` asks
        classifiers for probabilities and takes the answers of all others as they are.
    input_range : tuple of two array-likes of shape (D,) or float, default=None
        ``(low, high)``: the black box is never asked outside; infinite entries are no bounds. Where the range is too
        small to see the first layer saturated, it is looked for by Hessians near the centre; where it leaves most of
        the parameters open, that is warned of first and the function is fitted: ``report_.determined`` (share of the
        parameters) and ``report_.spectrum`` (`skident.fitting.standard_errors`) say what is known.
    strategy : {"auto", "saturation", "hessian"}, default="auto"
        ``saturation``: first layer from far away, then the rest of the network where the first layer is saturated (any
        depth, any shift). ``hessian``: `EntangledWeightExtractor` and `NetworkCompletion`, the paper's pipeline, up to
        three layers; its first layer still comes from saturation, unless `extractor` has ``first_layer="hessian"``.
        ``auto`` starts with saturation where there is a limit to reach and neither `extractor` nor `completion` is
        given, and turns to the pipeline where that fails; one hidden layer with linear output always goes through the
        pipeline, whose first layer then comes from saturation. relu, leaky relu and hard tanh networks are found by
        their kinks; one hidden layer of softplus, gelu, silu or elu units by their profiles far out, where the answers
        are exact and `input_range` is None, before the pipeline (which elu has none of).
    extractor : EntangledWeightExtractor, default=None
        Its model, widths, activations, random state, jobs and verbosity are replaced. Tuned as ``extractor__radius``.
    completion : NetworkCompletion, default=None
        Likewise.
    polish : bool, default=True
        Fit all weights and shifts at the end.
    tol : float, default=1e-8
        Relative maximum error on fresh inputs below which the network is called exact: the largest error of an output
        over the largest deviation of that output's answers from their mean (or a millionth of its largest answer, if
        that is more), the worst of all outputs.
    n_check : int, default=200
        Rows at most on which the network found is compared with the black box: half of them of X where it has so many,
        the others normal around its mean, with its standard deviations. What none of them meets goes unseen: a bump of
        the answers that takes up a share p of the inputs with probability ``(1 - p)^n_check``. At least 20.
    n_attempts : int, default=4
        Tries before giving up: saturation, twice; then, up to three layers, the pipeline at the centre, at the first
        layer's inflection point, and at random points near.
    max_neurons : int, default=200
        Hidden units at most that ``layer_widths="auto"`` may find.
    n_starts : int, default=None
        Random starts at most of every fit of the layers behind a saturated first one; by default between 24 and 40,
        more for smaller networks.
    max_seconds, max_queries : float and int, default=None
        Time, and rows asked, at most; None is no limit. Looked at wherever something is asked or iterated: a call of
        the black box is the longest that the time is overrun by, and a second for the last look. Three quarters of the
        time are for random starts, the rest for the polish. What was found until then is returned with a warning, and
        never called exact where the last look was cut short; nothing found is a ValueError that says how far it came.
    n_jobs : int, default=None
        Threads that sample Hessians, processes that fit random starts, or what `joblib.parallel_config` chooses; see
        Notes. The result does not depend on it.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 shows progress bars and a line a stage.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        In canonical form. Of a classifier the network of its logits: of all with these probabilities the one whose
        output weights and shifts have zero mean over the classes, as `skident.network.center_outputs` makes it.
    report_ : IdentificationReport
        Prints as a table, also in notebooks; `plot` draws it. ``exact``: whether, on the rows that were looked at, the
        network agrees with the black box to `tol`, with no unit too many, and neither noise nor the rounding of the
        inputs could hide more, and no farther row or plateau contradicts it; ``agrees``: or as close as these tell.
        ``relative_max_error`` on these rows (of the worst output, relative to its largest deviation from its mean;
        `network_` as it is, and in standardised inputs, the larger), ``checked`` (how many rows), ``checked_spread``
        (their standard deviation, (D,)) and ``checked_range`` (the smallest box that holds them, low and high, (D,)
        each), ``input_rounding`` (error that the rounding of inputs may make, far from 0, in the same units).
        ``stages`` (list of dicts with name, seconds, queries, residual), ``n_queries``, ``attempts``, ``route`` (which
        way found the network) and ``reason`` (why it was taken), ``noise`` (of the answers, relative to their standard
        deviation, single precision and rounding to decimals included; 0 at the rounding of double precision),
        ``repeatable`` (whether the same question gets the same answer); of a classifier also ``probability_error``
        (largest error of a probability on rows of X, as far as these tell) and ``lost`` (share of the rows of X whose
        logits are lost in rounding). Of networks with kinks ``never_active`` and ``always_active``, how many units of
        every hidden layer never change their side within three standard deviations; with several hidden layers
        ``explained``, the share of ``explained_of`` further answers that the network explains, and ``sign_doubt``, how
        far from 1 the signs of the last hidden layer came out as a linear problem.
    stderr_ : tuple of (list of ndarray, list of ndarray), or None
        Where the answers are noisy or rounded: standard errors of the weights and shifts of `network_`, to first
        order. None if the outputs are exact, the network does not explain them, or the time is over.
    extractor_, completion_ : fitted stages of the attempt that was kept; None where it went through saturation
    layer_widths_ : tuple of int
    estimator_ : object
        The black box that was asked.
    n_queries_ : int
        Rows the black box was asked in all.
    n_features_in_ : int
    classes_ : ndarray of shape (K,)
        Only where probabilities are asked: the classifier's; ``0 ... K-1`` for a callable.

    Warns
    -----
    ConvergenceWarning
        When the network is not exact, with the stage that failed, or the noise or rounding that limits it; when fewer
        units than asked for explain all answers; before a search for wide layers that no `max_seconds` bounds.

    See Also
    --------
    EntangledWeightExtractor, NetworkCompletion : The stages, as a Pipeline.

    Notes
    -----
    Queries: for the first layer about ``m_1 (D + 58)``, or ``m_1 (25 + sqrt(D)) + D`` and some where three or more
    outputs let several units be seen at once; ``5 P / m_L`` with P parameters of the widest network tried for the
    layers behind it, and ``4 m_1 (20 + 4.5 m_1 / m_L)`` for exact shifts where these are needed; ``6 (m / m_L) (2 D^2 +
    1)`` for Hessians; ``1.5 P / m_L`` to ``2.5 P / m_L`` for the polish, ten with noise; some 450 to check. A start of
    the layers behind the first, and the polish, cost ``O(n P^2)`` a step up to 2000 and 3000 parameters and ``O(n P)``
    a conjugate gradient iteration beyond, in memory ``O(P^2)`` and ``O(n m + sum m_l m_{l-1}^2)``.

    Behind a saturated first layer: at the true widths a fit has many local minima; wider networks have few, and
    pruning units that the others can replace leads back from a wide fit to the true network; several hidden layers
    below one or two linear outputs start with small weights (`network_from_small_starts`). With one or two outputs,
    with unknown widths, or after a failure, the first layer's shifts come from gradients: those of the rest lie in the
    span of the second layer's weights, which is a proper subspace if that layer is narrower (`find_first_biases`); its
    dimension is the layer's width. Of two hidden layers with few outputs, the second as wide as the first or wider,
    Taylor coefficients on patches where few first-layer units are free tell the rest, 40 to 110 answers a parameter; a
    stage that fails says why as ``failed``, and the next route is taken.

    On a cluster, with the same bits: ``client = dask.distributed.Client(address)``, then ``with
    joblib.parallel_config(backend="dask"):`` around ``identifier.fit(X)``. Processes ask copies of the black box: their
    questions are counted and keep to the budgets, what they remember is lost. One that no copy can be made of (by
    cloudpickle) is asked by threads.

    Where probabilities are asked, this is a classifier: `predict` gives labels, `predict_proba` probabilities,
    `decision_function` the logits, and `score` is the accuracy. Binary classifiers that answer ``(1 - q, q)`` lose
    large positive log-odds in rounding; parameters are fitted where the log-odds are exact to 1e-12.

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
    ...     black_box, layer_widths=(8, 5, 3), activation="tanh", output_activation="tanh", random_state=0).fit(X)
    >>> print(identifier.report_.relative_max_error < 1e-10)
    True
    """

    _parameter_constraints = {
        "estimator": "no_validation",
        "layer_widths": ["array-like", StrOptions({"auto"}), None],
        "activation": [ACTIVATION_CHOICES, StrOptions({"auto", "leaky_relu"})],
        "output_activation": [ACTIVATION_CHOICES, StrOptions({"auto"})],
        "response_method": [StrOptions({"auto", "predict", "predict_proba"})],
        "input_range": ["array-like", None],
        "strategy": [StrOptions({"auto", "saturation", "hessian"})],
        "extractor": [EntangledWeightExtractor, None],
        "completion": [NetworkCompletion, None],
        "polish": ["boolean"],
        "tol": [POSITIVE],
        "n_check": [Interval(Integral, 20, None, closed="left")],
        "n_attempts": [AT_LEAST_ONE],
        "max_neurons": [AT_LEAST_ONE],
        "n_starts": [AT_LEAST_ONE, None],
        "max_seconds": [POSITIVE, None],
        "max_queries": [AT_LEAST_ONE, None],
        "n_jobs": [Interval(Integral, None, -1, closed="right"), AT_LEAST_ONE, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator=None,
        *,
        layer_widths=None,
        activation="auto",
        output_activation="auto",
        response_method="auto",
        input_range=None,
        strategy="auto",
        extractor=None,
        completion=None,
        polish=True,
        tol=1e-8,
        n_check=200,
        n_attempts=4,
        max_neurons=200,
        n_starts=None,
        max_seconds=None,
        max_queries=None,
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
        self.strategy = strategy
        self.extractor = extractor
        self.completion = completion
        self.polish = polish
        self.tol = tol
        self.n_check = n_check
        self.n_attempts = n_attempts
        self.max_neurons = max_neurons
        self.n_starts = n_starts
        self.max_seconds = max_seconds
        self.max_queries = max_queries
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_is_fitted__(self):
        return hasattr(self, "network_")

    def fit(self, X, y=None):
        """Ask the black box and identify it.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
            Where the black box is used: sets the centre and the inputs' units.
        y : array-like of shape (n_samples,) or (n_samples, m_L), default=None
            Only for an estimator that must be fitted first; labels for a classifier.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not finite or has one row or column; widths are impossible or contradict what was found; the
            activation allows neither route; the black box raises, is constant, answers with NaN or differently when
            asked twice, or with no probabilities where these are expected; `input_range` leaves no room.
        """
        with forgotten_on_error(self), one_thread(), budget_named():
            began = time.perf_counter()
            X, y, response = self._validated(X, y)
            with (clock := Clock(self.max_seconds, self.max_queries, began)).limit():
                verdict, reason = self._best_reading(*self._begin(X, y, response, clock))
                self._store(verdict, reason)
            if (message := warning_of(verdict)) is not None:
                warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def _validated(self, X, y):
        """Rows and targets as arrays, and whether values or probabilities are asked."""
        self._validate_params()
        response = resolve_response(self.estimator, self.response_method)
        checks = {"dtype": np.float64, "ensure_min_samples": 2}
        if y is not None:
            X, y = validate_data(self, X, y, multi_output=True, y_numeric=response == "predict", **checks)
            y = check_targets(y, response)
        else:
            X = validate_data(self, X, **checks)
        if X.shape[1] < 2:
            raise ValueError("n_features=1: weights of one input are all parallel; at least 2 features are needed.")
        return X, y, response

    def _begin(self, X, y, response, clock):
        """The black box, a first look at it, and the random state."""
        rng = check_random_state(self.random_state)
        box = resolve_black_box(self.estimator, X, y, rng.randint(2**31 - 1), classifiers=response == "predict_proba")
        center, scale = center_and_scale(X, None if self.extractor is None else self.extractor.center)
        limits = self.input_range
        oracle = Oracle(box, X.shape[1], center=center, scale=scale, response=response, input_range=limits, clock=clock)
        first = first_look(oracle, box, X, (self.activation, self.output_activation), self.strategy)
        return box, first, rng

    def _best_reading(self, box, first, rng):
        """The verdict on the first reading of the answers that explains them, or else the best; and why its routes."""
        best, refusal = None, None
        for reading in first.readings(box, (self.activation, self.output_activation), self.layer_widths):
            try:
                inquiry = self._inquiry(box, reading, rng)
                with explained(inquiry):
                    plan = plan_routes(inquiry, self.strategy, self.n_attempts)
                    if plan.warning:
                        warnings.warn(plan.warning, ConvergenceWarning, stacklevel=3)
                    verdict = judge(inquiry, make_attempts(inquiry, plan.routes, plan.last_resort))
            except (NotIdentified, OutOfBudgetError) as error:
                refusal = error if refusal is None else refusal
                continue
            if best is None or verdict.rank < best[0].rank:
                best = verdict, plan.reason
            if verdict.explained:
                break
        if best is None:
            raise refusal
        best[0].inquiry.oracle.n_queries = reading.oracle.n_queries  # of all readings
        return best

    def _inquiry(self, box, first, rng):
        """The inquiry: the black box, what is looked for, and fresh answers to judge by."""
        oracle, activations = first.oracle, first.activations
        pipeline = Pipeline.of(self.extractor, self.completion, self.n_jobs, self.verbose)
        widths, discover = sought_widths(self.layer_widths, oracle.n_outputs, activations[1], first.seen)
        if keep_near_centre(oracle, pipeline.extractor, activations[0], widths, self.strategy):
            pipeline = Pipeline(pipeline.extractor.set_params(first_layer="hessian"), pipeline.completion, first=True)
        return Inquiry(
            box=box,
            oracle=oracle,
            X=first.X,
            activations=activations,
            widths=widths,
            discover=discover,
            fresh=ask_fresh(oracle, first.X, first.spread, rng, self.n_check),
            pipeline=pipeline,
            limits=Limits(self.tol, self.polish, self.max_neurons, self.n_starts, self.n_jobs),
            rng=rng,
            log=StageLog(self.verbose),
            seen=first.seen,
        )

    def _store(self, verdict, reason):
        inquiry, best = verdict.inquiry, verdict.outcome.best
        self.network_, self.layer_widths_ = verdict.network, verdict.network.layer_widths
        self.extractor_, self.completion_, self.estimator_ = best.extractor, best.completion, inquiry.box
        self.n_queries_ = inquiry.oracle.n_queries
        self.report_, self.stderr_ = report_of(verdict, reason), stderr_of(verdict)
        self._one_dimensional, self._labels = inquiry.oracle.one_dimensional, None
        self._softmax = inquiry.takes_logits and inquiry.seen.output.name == "softmax"
        if inquiry.takes_logits and not self._softmax:
            found = self.network_
            self.network_ = FeedforwardNetwork(found.weights, found.biases, found.activations[0], "sigmoid")
        if inquiry.oracle.response == "predict_proba" and not inquiry.takes_logits:
            self.classes_ = self._labels = getattr(inquiry.box, "classes_", np.arange(max(2, inquiry.oracle.n_outputs)))
