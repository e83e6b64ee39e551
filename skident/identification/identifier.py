"""The whole identification: extraction, completion, polish, and an honest last look."""

from __future__ import annotations

import functools
import warnings
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.validation import validate_data

from skident.base.parameters import (
    ACTIVATION_CHOICES,
    AT_LEAST_ONE,
    POSITIVE,
    Interval,
    StrOptions,
    center_and_scale,
    check_layer_widths,
    check_targets,
    forgotten_on_error,
)
from skident.base.predictions import NetworkPredictions
from skident.base.progress import StageLog
from skident.fitting.design import design_points
from skident.fitting.redundancy import redundant_units
from skident.fitting.standard_errors import standard_errors
from skident.network import center_outputs, change_inputs
from skident.oracle import BlackBoxError, Oracle, above_rounding, measure_noise, probability_error
from skident.oracle.black_box import (
    check_answers_vary,
    resolve_activations,
    resolve_black_box,
    resolve_response,
)

from .completion import NetworkCompletion
from .extractor import EntangledWeightExtractor
from .hints import clipping_hint, far_hint, probability_hint
from .input_range import confine, fresh_rows, rows_inside, spaced
from .inquiry import Job, where_units_move
from .routes import attempts_in_order

__all__ = ["NetworkIdentifier"]

_HELD_OUT = 100  # fresh rows of the last look
_COMPARED = 1000  # rows on which a classifier's probabilities are compared
_TOO_NOISY = 0.05  # difference of two answers to one question, relative to the largest, that is refused


class NetworkIdentifier(NetworkPredictions, BaseEstimator):
    """Weights and shifts of a black-box network, from its answers.

    Finds the feedforward network ``f(x) = g_L(W_L^T ... g_1(W_1^T x + tau_1) ... + tau_L)`` with
    ``|f(x) - black_box(x)| <= tol`` times the range of the answers: structure first, then all parameters at once to
    rounding error. What was found is compared with the black box on fresh inputs, and only called exact when it agrees.

    Parameters
    ----------
    estimator : callable, regressor, classifier, torch.nn.Module or FeedforwardNetwork, default=None
        The black box: maps (n, D) to (n, m_L) or (n,). A regressor or classifier inside `FrozenEstimator` is taken as
        it is, another one is cloned and fitted on (X, y) first; None is a small tanh `MLPRegressor`. Scalers in front
        of a network become part of its first layer: the network found is a function of X as it is
        (`skident.network.unfold_inputs` takes them out again).
    layer_widths : sequence of int or "auto", default=None
        ``(m_1, ..., m_L)``, the last one the number of outputs. None: one hidden layer of a width to be found, linear
        output. ``"auto"``: the smallest network of up to three hidden layers that explains the answers; needs an
        activation that saturates.
    activation, output_activation : str, default="auto"
        ``auto`` reads them off black boxes that tell and takes tanh with linear output for the others. Of a classifier
        they are those of the network of its logits.
    response_method : {"auto", "predict", "predict_proba"}, default="auto"
        ``predict_proba``: the answers are probabilities of K exclusive classes, (n, K), or (n,) of the second of two;
        they are turned into logits, ``log p_k - mean_j log p_j`` (n, K), or the log-odds of the second of two
        classes, (n, 1), and the network of these is identified. Of an estimator this method is asked. ``auto`` asks
        classifiers for probabilities and takes the answers of all others as they are.
    input_range : tuple of two array-likes of shape (D,) or float, default=None
        ``(low, high)``: the black box is never asked outside; infinite entries are no bounds. Where the range is too
        small to see the first layer saturated, it is looked for by Hessians near the centre.
    strategy : {"auto", "saturation", "hessian"}, default="auto"
        ``saturation``: first layer from far away, then the rest of the network where the first layer is saturated (any
        depth, any shift). ``hessian``: `EntangledWeightExtractor` and `NetworkCompletion`, the paper's pipeline, up to
        three layers; its first layer still comes from saturation, unless `extractor` has ``first_layer="hessian"``.
        ``auto`` starts with saturation where there is a limit to reach and neither `extractor` nor `completion` is
        given, and turns to the pipeline where that fails; one hidden layer with linear output always goes through the
        pipeline, whose first layer then comes from saturation. relu networks of one hidden layer are found by kinks.
    extractor : EntangledWeightExtractor, default=None
        Its own black box, widths, activations, random state, jobs and verbosity are replaced by these. When given,
        its parameters can be tuned as ``extractor__radius`` and so on.
    completion : NetworkCompletion, default=None
        Likewise.
    polish : bool, default=True
        Fit all weights and shifts at the end.
    tol : float, default=1e-8
        Relative maximum error on fresh inputs below which the network is called exact: the largest error of an output
        over the largest deviation of that output's answers from their mean (or a millionth of its largest answer, if
        that is more), the worst of all outputs.
    n_attempts : int, default=4
        Tries before giving up: saturation, twice; then, up to three layers, the pipeline at the centre, at the first
        layer's inflection point, and at random points near.
    max_neurons : int, default=200
        Hidden units at most that ``layer_widths="auto"`` may find.
    n_starts : int, default=None
        Random starts at most of every fit of the layers behind a saturated first one; by default between 24 and 40,
        more for smaller networks.
    max_seconds : float, default=None
        Random starts end and no further attempt begins after this time; what was found until then is polished and
        returned, with a warning if it is not exact (``layer_widths="auto"`` raises). None is no limit.
    n_jobs : int, default=None
        Threads that sample Hessians, processes that fit random starts. The result does not depend on it.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 shows progress bars and a line a stage.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        In canonical form: the black box's weights and shifts up to its symmetries. Of a classifier the network of its
        logits: of all networks with these probabilities the one whose output weights and shifts have zero mean over
        the classes (`skident.network.center_outputs` brings another one to this form).
    report_ : sklearn.utils.Bunch
        ``relative_max_error`` on fresh inputs (of the worst output, relative to its largest deviation from its mean),
        ``exact`` (whether it is below `tol`), ``stages`` (list of dicts with name, seconds, queries, residual),
        ``attempts``, ``route`` (which way found the network) and ``reason`` (why it was taken), ``noise`` (of the
        answers, relative to their standard deviation; 0 at rounding level), ``repeatable`` (whether the same question
        gets the same answer); of a classifier also ``probability_error`` (largest error of a probability on rows of X,
        as far as these tell) and ``lost`` (share of the rows of X whose logits are lost in rounding).
    stderr_ : tuple of (list of ndarray, list of ndarray), or None
        Where the answers are noisy or rounded: standard errors of the weights and shifts of `network_`, to first
        order. None where they are exact, or the network does not explain them.
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
        When the network is not exact, with the stage that failed, or the noise that limits it; when fewer units than
        asked for explain all answers.

    See Also
    --------
    EntangledWeightExtractor, NetworkCompletion : The stages, as a Pipeline.

    Notes
    -----
    Queries: for the first layer about ``m_1 (D + 58)``, or ``m_1 (25 + sqrt(D)) + D`` and some where three or more
    outputs let several units be seen at once; ``5 P / m_L`` with P parameters of the widest network tried for the
    layers behind it, and ``4 m_1 (20 + 4.5 m_1 / m_L)`` for exact shifts where these are needed; ``6 (m / m_L) (2 D^2 +
    1)`` for Hessians; ``1.5 P / m_L`` to ``2.5 P / m_L`` for the polish, ten with noise; some 300 to check. A start of
    the layers behind the first, and the polish, cost ``O(n P^2)`` a step up to 2000 and 3000 parameters and ``O(n P)``
    a conjugate gradient iteration beyond, in memory ``O(P^2)`` and ``O(n m + sum m_l m_{l-1}^2)``.

    Behind a saturated first layer: at the true widths a fit has many local minima; wider networks have few, and
    pruning units that the others can replace leads back from a wide fit to the true network. With one or two outputs,
    with unknown widths, or after a failure, the first layer's shifts come from gradients: those of the rest lie in the
    span of the second layer's weights, which is a proper subspace if that layer is narrower (`find_first_shifts`); its
    dimension is the layer's width.

    Where probabilities are asked, this is a classifier: `predict` gives labels, `predict_proba` probabilities,
    `decision_function` the logits, and `score` is the accuracy. Binary classifiers that answer ``(1 - q, q)`` lose
    large positive log-odds in rounding; parameters are fitted where the log-odds are exact to 1e-13.

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
        "activation": [ACTIVATION_CHOICES, StrOptions({"auto"})],
        "output_activation": [ACTIVATION_CHOICES, StrOptions({"auto"})],
        "response_method": [StrOptions({"auto", "predict", "predict_proba"})],
        "input_range": ["array-like", None],
        "strategy": [StrOptions({"auto", "saturation", "hessian"})],
        "extractor": [EntangledWeightExtractor, None],
        "completion": [NetworkCompletion, None],
        "polish": ["boolean"],
        "tol": [POSITIVE],
        "n_attempts": [AT_LEAST_ONE],
        "max_neurons": [AT_LEAST_ONE],
        "n_starts": [AT_LEAST_ONE, None],
        "max_seconds": [POSITIVE, None],
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
        n_attempts=4,
        max_neurons=200,
        n_starts=None,
        max_seconds=None,
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
        self.n_attempts = n_attempts
        self.max_neurons = max_neurons
        self.n_starts = n_starts
        self.max_seconds = max_seconds
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
        self._validate_params()
        response = resolve_response(self.estimator, self.response_method)
        if y is not None:
            numeric = response == "predict"
            X, y = validate_data(
                self, X, y, dtype=np.float64, multi_output=True, y_numeric=numeric, ensure_min_samples=2
            )
            y = check_targets(y, response)
        else:
            X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        if X.shape[1] < 2:
            raise ValueError("n_features=1: weights of one input are all parallel; at least 2 features are needed.")
        with forgotten_on_error(self):
            job, X, confined = self._start(X, y, response)
            try:
                self._fit(job, X, confined)
            except BlackBoxError as error:
                raise BlackBoxError(f"{error}{far_hint(job.oracle, error)}") from error
            except np.linalg.LinAlgError:
                raise
            except ValueError as error:
                hint = clipping_hint(job.oracle)
                if not hint:
                    raise
                raise ValueError(f"{error}{hint}") from error
        return self

    def _fit(self, job, X, confined):
        trials, attempt, refusal = [], 0, None
        given = confined or self.extractor is not None or self.completion is not None
        for route in attempts_in_order(job, self.strategy, given, self.n_attempts):
            if job.late and trials:
                break
            attempt += 1
            try:
                trial = route(job, X, trials)
            except (BlackBoxError, np.linalg.LinAlgError):
                raise
            except ValueError as error:
                # A later attempt that cannot work does not take back what an earlier one found.
                if not trials:
                    raise
                refusal = error
                break
            trials += [] if trial is None else [trial]
            if trial is not None and trial.error < job.enough:
                break
        if not trials:
            units = "any" if job.widths is None else job.widths[0]
            raise ValueError(
                f"the first layer does not show {units} units where the black box should saturate; check "
                f"layer_widths and activation={job.names[0]!r}, or use "
                "extractor=EntangledWeightExtractor(first_layer='hessian')."
            )
        best = min(trials, key=lambda trial: trial.error)
        redundant = redundant_units(best.network, where_units_move(best.network))
        hint = ""
        if best.error >= job.enough:
            hint = clipping_hint(job.oracle) + probability_hint(job.oracle, job.held_out_answers)
        self._store(job, best, attempt, redundant)
        hint += self._compare_probabilities(job, X)
        self._warn(job, best, attempt, redundant, refusal, hint)

    def _start(self, X, y, response):
        """What all attempts share (black box, oracle, fresh rows, ...), the rows to ask, whether to stay near them."""
        rng = check_random_state(self.random_state)
        seed = rng.randint(2**31 - 1)
        box = resolve_black_box(self.estimator, X, y, seed, classifiers=response == "predict_proba")
        extractor, completion = self._stages()
        center, scale = center_and_scale(X, extractor.center)
        oracle = Oracle(box, X.shape[1], center=center, scale=scale, response=response, input_range=self.input_range)
        X = rows_inside(oracle, X)
        rows = oracle.from_inputs(X)
        _, spread = check_answers_vary(oracle, spaced(rows, 20), noise_tolerance=_TOO_NOISY)
        names = resolve_activations(box, self.activation, self.output_activation)
        if response == "predict_proba" and names[1] == "sigmoid":
            raise ValueError(
                f"output_activation={self.output_activation!r} would come before the softmax; of probabilities the "
                "network of their logits is identified, so leave output_activation='auto'."
            )
        discover = isinstance(self.layer_widths, str)
        widths = None if discover else self.layer_widths
        if discover:
            pass  # found on the way
        elif widths is not None:
            widths = check_layer_widths(widths, oracle.n_outputs)
        elif names[1] != "identity":
            raise ValueError(
                f"layer_widths=None finds one hidden layer with linear output, got output_activation={names[1]!r}; "
                "give layer_widths."
            )
        confined = confine(oracle, extractor, names[0], widths, self.strategy)
        rows = spaced(rows, _HELD_OUT)
        U, Y = oracle.ask_near(functools.partial(fresh_rows, rows, spread, rng), len(rows) + _HELD_OUT)
        room = min(0.5 * oracle.reach, 0.5)  # for the short lines on which noise is measured
        sigma, repeatable = measure_noise(oracle, oracle.confined(U[:200], room), rng)
        job = Job(
            box=box,
            oracle=oracle,
            rng=rng,
            log=StageLog(self.verbose),
            names=names,
            widths=widths,
            held_out=U,
            held_out_answers=Y,
            sigma=above_rounding(sigma, Y),
            repeatable=repeatable,
            extractor=extractor,
            completion=completion,
            polish=self.polish,
            tol=self.tol,
            discover=discover,
            max_neurons=self.max_neurons,
            n_starts=self.n_starts,
            max_seconds=self.max_seconds,
            n_jobs=self.n_jobs,
        )
        return job, X, confined

    def _stages(self):
        """The pipeline's two stages, unfitted, with this estimator's jobs and verbosity."""
        extractor = EntangledWeightExtractor() if self.extractor is None else clone(self.extractor)
        completion = NetworkCompletion() if self.completion is None else clone(self.completion)
        extractor.set_params(n_jobs=self.n_jobs, verbose=self.verbose)
        return extractor, completion.set_params(verbose=max(0, self.verbose - 1))

    def _store(self, job, best, attempts, redundant):
        center, scale = job.oracle.center, job.oracle.scale
        network = change_inputs(best.network, -center / scale, 1.0 / scale)
        if job.oracle.response == "predict_proba" and job.names[1] == "identity":
            network = center_outputs(network)
        self.network_ = network.canonical()
        self.extractor_, self.completion_, self.estimator_ = best.extractor, best.completion, job.box
        self.layer_widths_ = self.network_.layer_widths
        self.n_queries_ = job.oracle.n_queries + job.extraction_queries
        if best.error < 0.01 * job.noise:
            job.sigma = None  # agreement refutes it: where most units are saturated, steps look like noise
        self.report_ = Bunch(
            relative_max_error=best.error,
            exact=bool(best.error < self.tol and job.noise < self.tol and not any(redundant)),
            redundant_units=redundant,
            stages=job.log.stages,
            attempts=attempts,
            route=best.route,
            reason=job.reason,
            noise=job.noise,
            repeatable=job.repeatable,
        )
        self.stderr_ = self._standard_errors(job) if best.error < job.enough else None
        self._one_dimensional, self._labels = job.oracle.one_dimensional, None
        if job.oracle.response == "predict_proba":
            n_classes = max(2, job.oracle.n_outputs)
            self.classes_ = self._labels = getattr(job.box, "classes_", np.arange(n_classes))

    def _compare_probabilities(self, job, X):
        """A classifier's last look also at rows of X whose logits are lost; says how many there are."""
        if job.oracle.response == "predict":
            return ""
        U = job.oracle.from_inputs(spaced(X, _HELD_OUT))
        gap, lost = probability_error(*job.oracle.ask(U), self.network_(job.oracle.to_inputs(U)))
        self.n_queries_ += len(U)
        self.report_.update(probability_error=gap, lost=lost, exact=self.report_.exact and gap < 100.0 * self.tol)
        return f" Of {lost:.0%} of the rows of X the logits are lost: probabilities 0 or 1 to 1e-7." if lost else ""

    def _standard_errors(self, job):
        """Of `network_`, on inputs like those of the polish; None where the answers are exact."""
        network = self.network_
        if job.sigma is None or network.n_parameters > 3000:
            return None
        n = 10 * network.n_parameters // network.n_outputs + 4 * network.n_inputs
        center, scale = job.oracle.center, job.oracle.scale
        inner = change_inputs(network, center, scale)
        U = design_points(inner.weights[0], inner.biases[0], n, 1.0, np.random.RandomState(0))
        try:
            return standard_errors(network, job.oracle.to_inputs(job.oracle.confined(U)), job.sigma)
        except (ValueError, np.linalg.LinAlgError):
            return None

    def _warn(self, job, best, attempts, redundant, refusal, hint):
        """Say what is not as it was asked for."""
        if best.error >= self.tol and best.error < job.enough and not any(redundant):
            message = (
                f"the answers carry noise or rounding of {job.noise:.1e} of their standard deviation: the network "
                f"agrees with them to {best.error:.1e}, and its weights are known to the standard errors in stderr_."
            )
            if job.discover:
                message += " Its widths are the smallest that the noise does not refute; the true ones may be larger."
        elif best.error >= self.tol:
            message = self._failure(best, attempts) + hint
            message += "" if refusal is None else f" A last attempt ended in: {refusal}"
        elif any(redundant):
            fewer = tuple(m - r for m, r in zip(self.layer_widths_, (*redundant, 0), strict=True))
            message = (
                f"the answers do not determine all weights: with layer_widths={self.layer_widths_} the network "
                f"answers as the black box does (error {best.error:.1e}), but {redundant} units of its hidden layers "
                f"are not needed. Stage 'widths' failed; try layer_widths={fewer}."
            )
        elif job.widths is not None and self.layer_widths_ != job.widths:
            message = (
                f"layer_widths={job.widths} was asked for, but only {self.layer_widths_} show and explain all answers: "
                "the other units do nothing, or are parallel to these."
            )
        else:
            return
        warnings.warn(message, ConvergenceWarning, stacklevel=4)

    def _failure(self, best, attempts):
        """What to say when the network is not exact."""
        advice = {
            "extraction": "weights are missing: try another center, a larger n_hessians, or check layer_widths",
            "completion": "scales and shifts were not found: check layer_widths and the activations, or raise "
            "completion__n_init",
            "vertices": "no random start fits the layers behind the first one: check layer_widths and the activations, "
            "or raise n_starts",
            "polish": "the fit ended in a local minimum or is limited by rounding: check layer_widths and the "
            "activations (two parallel first-layer units look like one), raise n_attempts, or loosen tol",
        }[best.stage]
        return (
            f"the network is not exact: relative maximum error {best.error:.1e} on fresh inputs "
            f"(tol={self.tol:.0e}) after {attempts} attempt(s). Stage {best.stage!r} failed with misfit "
            f"{best.misfit:.1e}; {advice}."
        )
