"""The whole identification: extraction, completion, polish, and an honest last look."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skident._validation import (
    ACTIVATION_CHOICES,
    AT_LEAST_ONE,
    POSITIVE,
    StrOptions,
    center_and_scale,
    check_answers_vary,
    check_layer_widths,
    forgotten_on_error,
    needs_targets,
    resolve_activations,
    resolve_black_box,
)
from skident.completion import NetworkCompletion
from skident.extraction import EntangledWeightExtractor
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import Oracle
from skident.recovery import (
    NotSaturatingError,
    StageLog,
    change_inputs,
    design_points,
    find_first_layer,
    network_from_vertices,
    polish_from_oracle,
)

__all__ = ["NetworkIdentifier"]

_HELD_OUT = 1000  # fresh rows of the last look


class NetworkIdentifier(RegressorMixin, BaseEstimator):
    """Weights and shifts of a black-box network, from its answers.

    Finds the feedforward network ``f(x) = g_L(W_L^T ... g_1(W_1^T x + tau_1) ... + tau_L)`` with
    ``max_x |f(x) - black_box(x)| <= tol max |black_box|``: entangled weights first, then scales and shifts, then all
    parameters at once to rounding error. What was found is compared with the black box on fresh inputs, and only called
    exact when it agrees.

    Parameters
    ----------
    estimator : callable, regressor, torch.nn.Module or FeedforwardNetwork, default=None
        The black box: maps (n, D) to (n, m_L) or (n,). A regressor inside `FrozenEstimator` is taken as it is, another
        one is cloned and fitted on (X, y) first; None is a small tanh `MLPRegressor`.
    layer_widths : sequence of int, default=None
        ``(m_1, ..., m_L)``, the last one the number of outputs. None: one hidden layer of a width to be found, linear
        output.
    activation, output_activation : str, default="auto"
        ``auto`` reads them off black boxes that tell and takes tanh with linear output for the others.
    strategy : {"auto", "saturation", "hessian"}, default="auto"
        ``saturation``: first layer from far away, then the rest of the network where the first layer is saturated (any
        depth, any shift). ``hessian``: `EntangledWeightExtractor` and `NetworkCompletion` (the paper's pipeline, up
        to three layers). ``auto`` starts with saturation where there is a limit to reach and neither `extractor` nor
        `completion` is given, and turns to the pipeline where that fails; one hidden layer with linear output always
        goes through the pipeline, whose first layer then comes from saturation.
    extractor : EntangledWeightExtractor, default=None
        Its own black box, widths, activations, random state, jobs and verbosity are replaced by these. Its parameters
        can be tuned as ``extractor__radius`` and so on.
    completion : NetworkCompletion, default=None
        Likewise.
    polish : bool, default=True
        Fit all weights and shifts at the end.
    tol : float, default=1e-8
        Relative maximum error on fresh inputs below which the network is called exact.
    n_attempts : int, default=4
        Tries before giving up: saturation; then the pipeline at the centre, at the first layer's inflection point, and
        at random points near.
    n_jobs : int, default=None
        Threads that sample Hessians.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 shows progress bars and a line a stage.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        In canonical form: the black box's weights and shifts up to its symmetries.
    report_ : sklearn.utils.Bunch
        ``relative_max_error`` on fresh inputs (of the worst output, relative to its largest deviation from its mean),
        ``exact`` (whether it is below `tol`), ``stages`` (list of dicts with name, seconds, queries, residual),
        ``attempts``, ``noise``.
    extractor_, completion_ : fitted stages of the attempt that was kept; None where it went through saturation
    layer_widths_ : tuple of int
    estimator_ : object
        The black box that was asked.
    n_queries_ : int
        Rows the black box was asked in all.
    n_features_in_ : int

    Warns
    -----
    ConvergenceWarning
        When the network is not exact; names the stage that failed.

    See Also
    --------
    EntangledWeightExtractor, NetworkCompletion : The stages, as a Pipeline.

    Notes
    -----
    Queries: about ``m_1 (D + 70)`` for the first layer, ``8 P / m_L`` for vertices or ``6 (m / m_L) (2 D^2 + 1)`` for
    Hessians, and ``3.5 P / m_L`` for the polish. The polish costs ``O(n P^2)`` a step up to 3000 parameters P and
    ``O(n P)`` a conjugate gradient iteration beyond, in memory ``O(P^2)`` and ``O(n m + sum m_l m_{l-1}^2)``.

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
        "layer_widths": ["array-like", None],
        "activation": [ACTIVATION_CHOICES, StrOptions({"auto"})],
        "output_activation": [ACTIVATION_CHOICES, StrOptions({"auto"})],
        "strategy": [StrOptions({"auto", "saturation", "hessian"})],
        "extractor": [EntangledWeightExtractor, None],
        "completion": [NetworkCompletion, None],
        "polish": ["boolean"],
        "tol": [POSITIVE],
        "n_attempts": [AT_LEAST_ONE],
        "n_jobs": [Integral, None],
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
        strategy="auto",
        extractor=None,
        completion=None,
        polish=True,
        tol=1e-8,
        n_attempts=4,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.layer_widths = layer_widths
        self.activation = activation
        self.output_activation = output_activation
        self.strategy = strategy
        self.extractor = extractor
        self.completion = completion
        self.polish = polish
        self.tol = tol
        self.n_attempts = n_attempts
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = needs_targets(self.estimator)
        tags.target_tags.multi_output = True
        # Predictions are those of a given black box, whatever y says.
        tags.regressor_tags.poor_score = not needs_targets(self.estimator)
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "network_")

    def fit(self, X, y=None):
        """Ask the black box and identify it.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
            Where the black box is used: sets the centre and the inputs' units.
        y : array-like of shape (n_samples,) or (n_samples, m_L), default=None
            Only for an estimator that must be fitted first.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not finite or has one row or column; widths are impossible or contradict what was found; the
            activation allows neither route; the black box raises, is constant, answers with NaN or differently when
            asked twice.
        """
        self._validate_params()
        if y is not None:
            X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        else:
            X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        if X.shape[1] < 2:
            raise ValueError("n_features=1: weights of one input are all parallel; at least 2 features are needed.")
        with forgotten_on_error(self):
            self._fit(X, y)
        return self

    def _fit(self, X, y):
        job = self._start(X, y)
        trials, attempt = [], 0
        for route in self._routes(job):
            attempt += 1
            trial = route(job, X, trials)
            trials += [] if trial is None else [trial]
            if trial is not None and trial.error < self.tol:
                break
        if not trials:
            raise ValueError(
                f"the first layer does not show {job.widths[0]} units where the black box should saturate; check "
                f"layer_widths and activation={job.names[0]!r}, or use strategy='hessian'."
            )
        best = min(trials, key=lambda trial: trial.error)
        self._store(job, best, attempt)
        if best.error >= self.tol:
            warnings.warn(self._failure(best, attempt), ConvergenceWarning, stacklevel=3)

    def _start(self, X, y):
        """Black box, oracle, activations, widths and the rows for the last look."""
        rng = check_random_state(self.random_state)
        box = resolve_black_box(self.estimator, X, y, rng.randint(2**31 - 1))
        template = self.extractor if self.extractor is not None else EntangledWeightExtractor()
        center, scale = center_and_scale(X, template.center)
        oracle = Oracle(box, X.shape[1], center=center, scale=scale)
        rows = oracle.from_inputs(X)
        noise = check_answers_vary(oracle, rows[:100], noise_tolerance=1e-9)
        names = resolve_activations(box, self.activation, self.output_activation)
        widths = self.layer_widths
        if widths is not None:
            widths = check_layer_widths(widths, oracle.n_outputs)
        elif names[1] != "identity":
            raise ValueError(
                f"layer_widths=None finds one hidden layer with linear output, got output_activation={names[1]!r}; "
                "give layer_widths."
            )
        U = np.concatenate([rows[:_HELD_OUT], rng.standard_normal((_HELD_OUT, X.shape[1]))])
        return _Job(box, template, oracle, rng, StageLog(self.verbose), names, widths, U, oracle(U), noise)

    def _routes(self, job):
        """The attempts in order: callables of (job, X, earlier trials)."""
        pipeline = [lambda job, X, earlier, k=k: self._by_pipeline(job, X, k, earlier) for k in range(self.n_attempts)]
        shallow = job.widths is None or (len(job.widths) == 2 and job.names[1] == "identity") or len(job.widths) == 1
        can_saturate = get_activation(job.names[0]).saturating and not shallow
        can_pipeline = shallow or len(job.widths) <= 3
        saturation = [self._by_saturation] if can_saturate else []
        if self.strategy == "saturation" and not can_saturate and not shallow:
            raise ValueError(
                "strategy='saturation' needs an activation that saturates (tanh, sigmoid, erf), got "
                f"{job.names[0]!r}; use strategy='hessian'."
            )
        if self.strategy == "saturation" and can_saturate:
            return saturation * self.n_attempts
        if self.strategy == "hessian" or self.extractor is not None or self.completion is not None:
            saturation = []
        routes = saturation + (pipeline if can_pipeline else saturation * (self.n_attempts - 1))
        if not routes:
            raise ValueError(
                f"layer_widths={job.widths}: the Hessian route tells inner layers apart up to three layers; deeper "
                "networks need a saturating activation and strategy='saturation'."
            )
        return routes[: self.n_attempts]

    def _by_saturation(self, job, X, earlier):
        """First layer from far away, the rest on its vertices, then the polish; None where that cannot work."""
        try:
            with job.log.stage("first layer (saturation)", job.oracle, job.widths[0]) as entry:
                first = find_first_layer(
                    job.oracle,
                    activation=job.names[0],
                    n_units=job.widths[0],
                    rng=job.rng,
                    callback=entry["progress"],
                )
        except NotSaturatingError:
            return None
        found = len(first.biases)
        if found > job.widths[0]:
            raise ValueError(
                f"layer_widths says {job.widths[0]} first-layer units, but {found} different ones were found where the "
                f"black box saturates; try layer_widths={(found, *job.widths[1:])}. If it clips its inputs, the "
                "clipping shows as units: stay near the data with extractor=EntangledWeightExtractor(first_layer='hessian')."
            )
        if found < job.widths[0]:
            return None
        with job.log.stage("rest of the network (vertices)", job.oracle) as entry:
            network, misfit = network_from_vertices(
                job.oracle, first, job.widths, *job.names, job.rng, callback=entry["progress"]
            )
            entry["residual"] = misfit
        stage = "vertices" if misfit > 1e-3 else "polish"
        return self._trial(job, network, misfit, stage)

    def _by_pipeline(self, job, X, attempt, earlier):
        """Extraction, completion and polish at one centre."""
        extractor = self._extract(job, X, self._center(job, attempt, earlier))
        job.extraction_queries += extractor.n_queries_
        network, completion = self._complete(job, extractor)
        missing = sum(extractor.layer_widths_) > len(extractor.components_)
        stage = "extraction" if missing else "completion" if completion.misfit_ > 0.1 else "polish"
        return self._trial(job, network, completion.misfit_, stage, extractor, completion)

    def _trial(self, job, network, misfit, stage, extractor=None, completion=None):
        if self.polish:
            network, misfit = polish_from_oracle(job.oracle, network, job.rng, job.log)
        error = _worst_error(job.held_out_answers, network(job.held_out))
        return _Trial(network, extractor, completion, error, stage, misfit)

    def _center(self, job, attempt, earlier):
        """Where attempt k looks: the centre; the first layer's inflection point; random points near the centre."""
        center, scale = job.oracle.center, job.oracle.scale
        if attempt == 0 or job.template.center is not None:
            return center
        extractor = next((t.extractor for t in earlier if t.extractor is not None), None)
        if attempt == 1 and extractor is not None and extractor.scales_ is not None:
            W, b = _first_layer(extractor, job.oracle)
            return center - scale * np.linalg.lstsq(W.T, b, rcond=1e-2)[0]
        return center + 0.3 * scale * job.rng.standard_normal(len(center)) / np.sqrt(len(center))

    def _extract(self, job, X, center):
        """The fitted extractor of this attempt; its warnings are judged by the last look instead."""
        frozen = FrozenEstimator(job.box) if hasattr(job.box, "predict") and hasattr(job.box, "fit") else job.box
        extractor = clone(job.template).set_params(
            estimator=frozen,
            layer_widths=job.widths,
            activation=job.names[0],
            output_activation=job.names[1],
            center=center,
            n_jobs=self.n_jobs,
            random_state=job.rng.randint(2**31 - 1),
            verbose=self.verbose,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            extractor.fit(X)
        job.log.stages.extend(extractor.report_)
        return extractor

    def _complete(self, job, extractor):
        """Scales and shifts on fresh inputs: a network of standardised inputs, and the fitted completion."""
        widths = self._found_widths(extractor)
        V = _components(extractor, widths, job.rng)
        ridge = len(widths) == 2 and job.names[1] == "identity"
        V = V[: widths[0]] if ridge else V
        with job.log.stage("completion", job.oracle) as entry:
            U = self._completion_inputs(job, extractor, widths)
            Z, Y = job.oracle.to_inputs(U) @ V.T, job.oracle(U)
            template = self.completion if self.completion is not None else NetworkCompletion()
            completion = clone(template).set_params(
                layer_widths=widths,
                activation=job.names[0],
                output_activation=job.names[1],
                random_state=job.rng.randint(2**31 - 1),
                verbose=max(0, self.verbose - 1),
            )
            if completion.start is None and extractor.scales_ is not None and len(extractor.scales_) == widths[0]:
                completion.set_params(start=(extractor.scales_, extractor.shifts_))
            completion.fit(Z, Y)
            entry["residual"] = completion.misfit_
        inner = completion.network_
        network = FeedforwardNetwork([V.T @ inner.weights[0], *inner.weights[1:]], inner.biases, *job.names)
        return change_inputs(network, job.oracle.center, job.oracle.scale), completion

    def _found_widths(self, extractor):
        """The widths asked for, or fewer first-layer units where saturation found fewer."""
        widths = extractor.layer_widths_
        first = int(np.sum(extractor.layer_assignment_ == 0))
        return (first, *widths[1:]) if len(widths) == 2 and 0 < first else widths

    def _completion_inputs(self, job, extractor, widths):
        """Inputs near enough for eq. (18) to be solvable, and many enough to overdetermine it."""
        D, rng = job.oracle.n_inputs, job.rng
        n = 10 * 3 * sum(widths) // widths[-1] + 4 * D + 4 * widths[0]
        if extractor.scales_ is None or len(extractor.scales_) != widths[0]:
            return rng.standard_normal((n, D)) / np.sqrt(D)
        W, b = _first_layer(extractor, job.oracle)
        if len(widths) > 2 or job.names[1] != "identity":
            return design_points(W, b, n, 0.25, rng, near=0.0)
        return design_points(W, b, n, 1.0, rng)

    def _store(self, job, best, attempts):
        center, scale = job.oracle.center, job.oracle.scale
        self.network_ = change_inputs(best.network, -center / scale, 1.0 / scale).canonical()
        self.extractor_, self.completion_, self.estimator_ = best.extractor, best.completion, job.box
        self.layer_widths_ = self.network_.layer_widths
        self.n_queries_ = job.oracle.n_queries + job.extraction_queries
        self.report_ = Bunch(
            relative_max_error=best.error,
            exact=bool(best.error < self.tol),
            stages=job.log.stages,
            attempts=attempts,
            noise=job.noise,
        )
        self._one_dimensional = job.oracle.one_dimensional

    def _failure(self, best, attempts):
        """What to say when the network is not exact."""
        advice = {
            "extraction": "weights are missing: try another center, a larger n_hessians, or check layer_widths",
            "completion": "scales and shifts were not found: check layer_widths and the activations, or raise "
            "completion__n_init",
            "vertices": "no start fits the saturated answers: check layer_widths and the activations",
            "polish": "the fit ended in a local minimum or is limited by rounding: check layer_widths and the "
            "activations (two parallel first-layer units look like one), raise n_attempts, or loosen tol",
        }[best.stage]
        return (
            f"the network is not exact: relative maximum error {best.error:.1e} on fresh inputs "
            f"(tol={self.tol:.0e}) after {attempts} attempt(s). Stage {best.stage!r} failed with misfit "
            f"{best.misfit:.1e}; {advice}."
        )

    def predict(self, X):
        """Answers of the identified network.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, m_L)
            Of the shape that the black box answers with.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        Y = self.network_(X)
        return Y[:, 0] if self._one_dimensional else Y


def _worst_error(answers, found):
    """Largest error of any output, in units of that output's own range: no offset and no neighbour can hide it."""
    largest = np.abs(answers).max(axis=0)
    unit = np.maximum(np.abs(answers - answers.mean(axis=0)).max(axis=0), 1e-6 * largest)
    if not np.isfinite(found).all():
        return np.inf
    return float(np.max(np.abs(found - answers) / np.maximum(unit, np.finfo(float).tiny)))


def _first_layer(extractor, oracle):
    """First-layer weights (D, m_1) and shifts from saturation, in the oracle's coordinates."""
    W = extractor.components_[: len(extractor.scales_)].T * extractor.scales_
    return W * oracle.scale[:, None], extractor.shifts_ + W.T @ oracle.center


def _components(extractor, widths, rng):
    """Components layer by layer, (m, D); missing ones replaced by random directions for the polish to turn."""
    rows = []
    for layer, m in enumerate(widths):
        V = extractor.components_[extractor.layer_assignment_ == layer][:m]
        fill = rng.standard_normal((m - len(V), extractor.components_.shape[1])) / extractor.scale_
        rows += [V, fill / np.linalg.norm(fill, axis=1, keepdims=True)]
    return np.concatenate(rows)


@dataclass
class _Job:
    """What all attempts share."""

    box: object
    template: EntangledWeightExtractor
    oracle: Oracle
    rng: np.random.RandomState
    log: StageLog
    names: tuple
    widths: tuple | None
    held_out: np.ndarray
    held_out_answers: np.ndarray
    noise: float
    extraction_queries: int = 0


@dataclass
class _Trial:
    """What one attempt gave."""

    network: FeedforwardNetwork
    extractor: EntangledWeightExtractor | None
    completion: NetworkCompletion | None
    error: float
    stage: str
    misfit: float
