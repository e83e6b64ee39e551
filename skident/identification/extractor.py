"""Entangled weights of a black-box network, as a scikit-learn transformer."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skident.base.parameters import (
    ACTIVATION_CHOICES,
    AT_LEAST_ONE,
    POSITIVE,
    Interval,
    StrOptions,
    center_and_scale,
    check_layer_widths,
    forgotten_on_error,
)
from skident.base.progress import StageLog
from skident.fitting.design import design_points
from skident.linalg import find_rank_one, n_free_entries, projection_norms, svec, svec_outer
from skident.network import get_activation
from skident.oracle import DERIVATIVES, Oracle
from skident.oracle.black_box import (
    check_answers_vary,
    needs_targets,
    resolve_activations,
    resolve_black_box,
)

from .hessians.layer_assignment import (
    cluster_directions,
    detect_first_layer,
    detect_last_layer,
    last_layer_from_jacobian,
    match_directions,
)
from .hessians.subspace import entangled_subspace, sample_hessians
from .saturation.circles import NotSaturatingError
from .saturation.first_layer import find_first_layer

__all__ = ["EntangledWeightExtractor"]

# Candidates this close (18 degrees) to each other are taken for unconverged copies of one weight.
_COPY_COSINE = 0.95
# Measured at D = 50: 0.5, 0.3 and 0.01 for m = 200, 400, 500 (weights right), 5e-5 and less from m = 550 (most wrong).
_INDEPENDENT = 1e-3


class EntangledWeightExtractor(TransformerMixin, BaseEstimator):
    """Entangled weights of a feedforward network that can only be asked.

    The entangled weights at ``x*`` are ``V_l = (prod_{k<l} W_k G_k(x*)) W_l``: layer l's weights as the input sees
    them. They span the Hessians near ``x*``, so they are found as the rank-one matrices that maximise
    ``||P_W(u u^T)||_F^2`` over unit vectors u, W being the leading subspace of sampled Hessians. Where the network
    saturates, the first layer is read from far away instead, from function values alone.

    Parameters
    ----------
    estimator : callable, regressor, torch.nn.Module or FeedforwardNetwork, default=None
        The black box: maps (n, D) to (n, m_L) or (n,). A regressor inside `FrozenEstimator` is taken as it is, another
        one is cloned and fitted on (X, y) first; None is a small tanh `MLPRegressor`.
    layer_widths : sequence of int, default=None
        ``(m_1, ..., m_L)``, the last one the number of outputs. None: one hidden layer whose width saturation finds.
        Widths are compared with what saturation finds; Hessians alone show too many units only by weights that
        are nearly dependent, which is warned about.
    activation, output_activation : str, default="auto"
        Names as in `FeedforwardNetwork`. ``auto`` reads them off black boxes that tell (FeedforwardNetwork,
        MLPRegressor, torch Sequential) and takes tanh with linear output for the others.
    center : array-like of shape (D,), default=None
        x*; the mean of X by default. Best where the units are near their inflection points.
    radius : float, default=0.01
        Radius R of the sphere on which Hessians are sampled, in units of the inputs' standard deviations.
    n_hessians : int, default="auto"
        Points at which Hessians are taken; ``auto`` is ``6 ceil(m / m_L)``, and 0 where no Hessian is needed (two
        layers with the first from saturation). The paper's ``20 ceil(m / m_L)`` gains a few per cent in accuracy.
    first_layer : {"auto", "saturation", "hessian"}, default="auto"
        ``saturation`` follows the steps of the saturated network on large circles: function values only, any m_1.
        ``hessian`` is Algorithm 4. ``auto`` tries saturation where the activation has limits.
    last_layer : {"jacobian", "hessian"}, default="jacobian"
        The Jacobian at x* is the last layer's entangled weights; ``hessian`` is Algorithm 5.
    derivatives : {"auto", "exact", "finite_difference"}, default="auto"
        See `Oracle`.
    step_size : float, default=1e-3
        Step of the Hessians' central differences, in units of the inputs' standard deviations.
    max_iter : int, default=1000
        Iterations of the subspace power method.
    tol : float, default=1e-8
        Length of a step at which a start of the power method has converged.
    n_init : int, default=None
        Random starts of its first round; twice the number of missing weights by default.
    n_jobs : int, default=None
        Threads that sample Hessians. More than one asks the black box from several threads at once.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 shows progress and a line a stage.

    Attributes
    ----------
    components_ : ndarray of shape (m, D)
        Unit vectors, first layer first, last layer last; signs are free but for the last layer's, whose rows are in the
        outputs' order and have the gradients' signs (taken at another point where an output does not move at x*).
    layer_assignment_ : ndarray of shape (m,)
        Layer of every component, 0 the first; -1 for inner layers that cannot be told apart (four layers and more).
    phi_ : ndarray of shape (m,)
        ``||P_W(v v^T)||_F^2``, 1 for a weight exactly in the subspace; NaN where no Hessian shows the weight.
    subspace_ : ndarray of shape (D (D + 1) / 2, k) or None
        Orthonormal basis of W as `skident.linalg.svec` vectors, in the inputs' own units.
    singular_values_ : ndarray
        Of the stacked Hessians (in standardised inputs), descending; empty without Hessians.
    layer_widths_ : tuple of int
    center_, scale_ : ndarray of shape (D,)
        x* and the inputs' units.
    scales_, shifts_ : ndarray of shape (m_1,) or None
        From saturation: a first-layer unit reads about ``g(scales_ * (components_ @ x) + shifts_)``, lengths to
        1e-3 and better, the shifts only to about 0.1.
    first_layer_method_ : {"saturation", "hessian", "jacobian"}
    estimator_ : object
        The black box that was asked.
    n_queries_ : int
        Rows it was asked. n_derivatives_ : rows of exact Jacobians and Hessians.
    n_iter_ : int
        Iterations of the power method's longest run; 1 where it had nothing to find.
    report_ : list of dict
        Seconds, queries and residual of every stage.
    n_features_in_ : int

    See Also
    --------
    NetworkCompletion : The next step of the pipeline.
    NetworkIdentifier : All steps at once, polished to rounding error.

    Notes
    -----
    Hessians by differences cost ``2 D^2 + 1`` queries a point, the saturation search about ``256 + k (D + 70)`` a half
    circle with k new units. Linear algebra is ``O(n_h m_L D^2 min(n_h m_L, D^2))`` for the subspace and
    ``O(m^2 D^2)`` an iteration of the power method.

    References
    ----------
    Fiedler, Fornasier, Klock, Rauchensteiner (2021), "Stable Recovery of Entangled Weights", Algorithms 1 to 5.

    Examples
    --------
    >>> import numpy as np
    >>> from skident import EntangledWeightExtractor
    >>> from skident.datasets import make_network
    >>> from skident.metrics import recovery_rate
    >>> network = make_network((12, 10, 7, 4), random_state=0)
    >>> X = np.random.default_rng(0).standard_normal((200, 12))
    >>> extractor = EntangledWeightExtractor(
    ...     network, layer_widths=(10, 7, 4), center=np.zeros(12), random_state=0).fit(X)
    >>> truth = np.hstack(network.entangled_weights(extractor.center_)).T
    >>> print(recovery_rate(truth, extractor.components_))
    1.0
    """

    _parameter_constraints = {
        "estimator": "no_validation",
        "layer_widths": ["array-like", None],
        "activation": [ACTIVATION_CHOICES, StrOptions({"auto"})],
        "output_activation": [ACTIVATION_CHOICES, StrOptions({"auto"})],
        "center": ["array-like", None],
        "radius": [POSITIVE],
        "n_hessians": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "first_layer": [StrOptions({"auto", "saturation", "hessian"})],
        "last_layer": [StrOptions({"jacobian", "hessian"})],
        "derivatives": [StrOptions(set(DERIVATIVES))],
        "step_size": [POSITIVE],
        "max_iter": [AT_LEAST_ONE],
        "tol": [POSITIVE],
        "n_init": [AT_LEAST_ONE, None],
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
        center=None,
        radius=0.01,
        n_hessians="auto",
        first_layer="auto",
        last_layer="jacobian",
        derivatives="auto",
        step_size=1e-3,
        max_iter=1000,
        tol=1e-8,
        n_init=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.layer_widths = layer_widths
        self.activation = activation
        self.output_activation = output_activation
        self.center = center
        self.radius = radius
        self.n_hessians = n_hessians
        self.first_layer = first_layer
        self.last_layer = last_layer
        self.derivatives = derivatives
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = needs_targets(self.estimator)
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "components_")

    def fit(self, X, y=None):
        """Ask the black box and extract its entangled weights.

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
            If X is not finite or has one row or column; widths are impossible; the activation has no second
            derivative where Hessians are needed; the black box raises, is constant, answers with NaN or differently
            when asked twice.

        Warns
        -----
        ConvergenceWarning
            If fewer weights were found than `layer_widths` asks for, or weights that cannot all be the black box's.
        """
        self._validate_params()
        if needs_targets(self.estimator) and y is not None:
            X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        else:
            X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        if X.shape[1] < 2:
            raise ValueError("n_features=1: weights of one input are all parallel; at least 2 features are needed.")
        with forgotten_on_error(self):
            self._fit(X, y)
        return self

    def _fit(self, X, y):
        rng = check_random_state(self.random_state)
        self.estimator_ = resolve_black_box(self.estimator, X, y, rng.randint(2**31 - 1))
        job = self._start(X, rng)
        first = self._first_layer_from_saturation(job)
        last = last_layer_from_jacobian(job.oracle, _near_first_layer(first, rng))
        hessians = self._hessians(job, first)
        candidates = self._rank_one(job, hessians, self._known(job, first, last))
        layers = self._assign(job, hessians, candidates, first, last)
        self._store(job, layers, first)

    def _start(self, X, rng):
        """Set the oracle up, look at the answers, fix widths and activations."""
        center, scale = center_and_scale(X, self.center)
        oracle = Oracle(
            self.estimator_,
            X.shape[1],
            center=center,
            scale=scale,
            derivatives=self.derivatives,
            step_size=self.step_size,
        )
        check_answers_vary(oracle, oracle.from_inputs(X[:100]), noise_tolerance=1e-9)
        names = resolve_activations(self.estimator_, self.activation, self.output_activation)
        hidden, output = (get_activation(name) for name in names)
        widths = self.layer_widths
        if widths is not None:
            widths = check_layer_widths(widths, oracle.n_outputs)
        elif not hidden.saturating or self.first_layer == "hessian":
            raise ValueError(
                "layer_widths=None needs a first layer that saturates (tanh, sigmoid, erf) and "
                f"first_layer='saturation', got activation={hidden.name!r}, first_layer={self.first_layer!r}; give "
                "layer_widths."
            )
        job = _Job(oracle, rng, StageLog(self.verbose), widths, hidden, output)
        if self.last_layer == "hessian" and job.last_visible and oracle.n_outputs == 1:
            raise ValueError(
                "last_layer='hessian' (Algorithm 5) needs at least 2 outputs, got 1; use last_layer='jacobian'."
            )
        return job

    def _first_layer_from_saturation(self, job):
        """The first layer from far away, or None where Hessians are to show it."""
        one_layer = job.widths is not None and len(job.widths) == 1
        if one_layer or self.first_layer == "hessian" or (self.first_layer == "auto" and not job.hidden.saturating):
            return None
        wanted = None if job.widths is None else job.widths[0]
        with job.log.stage("first layer (saturation)", job.oracle, wanted) as entry:
            try:
                first = find_first_layer(
                    job.oracle,
                    activation=job.hidden.name,
                    n_units=wanted,
                    rng=job.rng,
                    callback=entry["progress"],
                )
            except NotSaturatingError as error:
                if wanted is None:
                    raise NotSaturatingError(f"{error} Give layer_widths to use Hessians instead.") from error
                if self.first_layer == "saturation":
                    raise
                return None
        found = len(first.biases)
        if wanted is not None and found > wanted:
            raise ValueError(
                f"layer_widths says {wanted} first-layer units, but {found} different ones were found where the black "
                f"box saturates; try layer_widths={(found, *job.widths[1:])}. If it clips its inputs, the clipping "
                "shows as units: use first_layer='hessian'."
            )
        if wanted is not None and found < wanted:
            if self.first_layer == "auto" and job.hidden.smooth and len(job.widths) > 2:
                return None
            warnings.warn(
                f"only {found} of {wanted} first-layer units were found by saturation ({first.n_circles} circles); the "
                "others may be dead or parallel to these.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if wanted is None:
            job.widths = (found, job.oracle.n_outputs)
        return first

    def _hessians(self, job, first):
        """Vectorised Hessians, or None where none is needed."""
        n = self.n_hessians
        if n == "auto":
            needed = len(job.widths) > 2 or (first is None and len(job.widths) > 1)
            n = 6 * -(-sum(job.widths) // job.widths[-1]) if needed else 0
        if n == 0:
            return None
        if not job.hidden.smooth:
            raise ValueError(
                f"activation={job.hidden.name!r} has no second derivative, so its Hessians show nothing; the Hessian "
                "route needs a smooth activation (tanh, sigmoid, erf, softplus, sin, gelu)."
            )
        if job.n_visible > n_free_entries(job.oracle.n_inputs):
            raise ValueError(
                f"layer_widths={job.widths} ask for m = {job.n_visible} weights from Hessians, but with D = "
                f"{job.oracle.n_inputs} inputs at most D (D + 1) / 2 = {n_free_entries(job.oracle.n_inputs)} can be "
                "told apart; use first_layer='saturation' with two layers, or more inputs."
            )
        with job.log.stage("Hessians", job.oracle, n) as entry:
            return sample_hessians(
                job.oracle, n, self.radius, rng=job.rng, n_jobs=self.n_jobs, callback=entry["progress"]
            )

    def _known(self, job, first, last):
        """Unit weights that the Hessians need not show: the first layer from saturation, the last from the Jacobian."""
        if first is None:
            return np.empty((0, job.oracle.n_inputs))
        if not job.last_visible or self.last_layer == "hessian":
            return first.directions.T
        return np.concatenate([first.directions.T, last / np.linalg.norm(last, axis=1, keepdims=True)])

    def _rank_one(self, job, hessians, known):
        """Algorithms 1 to 3: subspace, power method, one vector a cluster. Without the known ones."""
        if hessians is None:
            return known[:0]
        with job.log.stage("subspace") as entry:
            job.basis, values = entangled_subspace(hessians, job.n_visible, known)
            job.singular_values = values
            entry["residual"] = float(np.linalg.norm(values[job.n_visible :]) / np.linalg.norm(values))
        wanted = max(0, job.n_visible - len(known))
        with job.log.stage("power method", total=wanted) as entry:
            search = find_rank_one(
                job.basis,
                job.oracle.n_inputs,
                n_vectors=wanted,
                n_init=self.n_init,
                known=known,
                max_iter=self.max_iter,
                tol=self.tol,
                rng=job.rng,
                callback=lambda found, _: entry["progress"](min(found, wanted)),
            )
            job.n_iter = max(1, search.n_iter)
            vectors = self._one_each(search, wanted, job.rng)
            entry["residual"] = float(1.0 - search.phi.min()) if len(search.phi) else None
        if len(vectors) < wanted:
            warnings.warn(
                f"the power method found {len(vectors)} of the {wanted} weights it was to find in the Hessians' "
                "subspace (stage 'power method'). Move center to where the units are near their inflection points, "
                "raise n_init or n_hessians, or check layer_widths.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return vectors

    @staticmethod
    def _one_each(search, wanted, rng):
        """At most `wanted` different vectors: clusters where copies remain, else the best by phi."""
        vectors = search.vectors
        if len(vectors) <= wanted or wanted == 0:
            return vectors[:wanted]
        cosines = np.abs(vectors @ vectors.T) - np.eye(len(vectors))
        if cosines.max() > _COPY_COSINE:
            return cluster_directions(vectors, wanted, random_state=rng)
        return vectors[:wanted]

    def _assign(self, job, hessians, candidates, first, last):
        """Weights layer by layer: list of (rows (k, D), layer number or -1)."""
        L = len(job.widths)
        if L == 1:
            return [(last, 0)]
        algorithm_5 = self.last_layer == "hessian" and hessians is not None and job.last_visible
        if first is not None:
            chosen = first.directions.T
            if algorithm_5:
                last, candidates = self._take_last(job, hessians, candidates, last)
        elif L == 2 and not job.last_visible:
            chosen, candidates = candidates, candidates[:0]
        else:
            if job.last_visible:
                last, candidates = self._take_last(job, hessians, candidates, last)
            chosen, candidates = self._take_first(job, candidates)
        inner = (candidates, 1 if L == 3 else -1)
        return [(chosen, 0), *([inner] if L > 2 else []), (last, L - 1)]

    def _take_last(self, job, hessians, candidates, last):
        """The last layer's weights, signed and in the outputs' order, and the candidates without them."""
        if len(candidates) < job.widths[-1]:
            return last, candidates
        if self.last_layer == "jacobian":
            index, _ = match_directions(last, candidates)
            return last, np.delete(candidates, index, axis=0)
        with job.log.stage("last layer (Algorithm 5)"):
            index, _ = detect_last_layer(hessians, candidates, job.n_visible - 1)
        signs = np.where(np.sum(candidates[index] * last, axis=1) < 0, -1.0, 1.0)
        return candidates[index] * signs[:, None], np.delete(candidates, index, axis=0)

    def _take_first(self, job, candidates):
        """First layer by Algorithm 4, and the candidates without it."""
        if len(job.widths) == 2:
            return candidates, candidates[:0]
        with job.log.stage("first layer (Algorithm 4)", job.oracle):
            index, _ = detect_first_layer(job.oracle, candidates, job.widths[0], rng=job.rng)
        return candidates[index], np.delete(candidates, index, axis=0)

    def _store(self, job, layers, first):
        oracle = job.oracle
        V = np.concatenate([rows for rows, _ in layers])
        self.layer_assignment_ = np.concatenate([np.full(len(rows), layer) for rows, layer in layers])
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        self.phi_ = np.full(len(V), np.nan)
        self.subspace_, self.singular_values_ = None, np.empty(0)
        if job.basis is not None:
            shown = (self.layer_assignment_ != len(job.widths) - 1) | job.last_visible
            self.phi_[shown] = projection_norms(job.basis, V[shown])
            _warn_if_dependent(job.basis, V[shown])
            units = svec(1.0 / np.outer(oracle.scale, oracle.scale)) / svec(np.ones((oracle.n_inputs,) * 2))
            self.subspace_ = np.linalg.qr(units[:, None] * job.basis)[0]
            self.singular_values_ = job.singular_values
        V /= oracle.scale
        lengths = np.linalg.norm(V, axis=1)
        self.components_ = V / lengths[:, None]
        self.first_layer_method_ = "saturation" if first is not None else "hessian" if len(layers) > 1 else "jacobian"
        self.scales_ = self.shifts_ = None
        if first is not None:
            weights = first.weights.T / oracle.scale
            self.scales_ = np.linalg.norm(weights, axis=1)
            self.shifts_ = first.biases - weights @ oracle.center
        self.layer_widths_, self.center_, self.scale_ = tuple(job.widths), oracle.center, oracle.scale.copy()
        self.n_queries_, self.n_derivatives_ = oracle.n_queries, oracle.n_derivatives
        self.report_, self.n_iter_ = job.log.stages, job.n_iter

    def transform(self, X):
        """Projections on the entangled weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples, m)
            ``X @ components_.T``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X @ self.components_.T

    def get_feature_names_out(self, input_features=None):
        """``layer1_0, layer1_1, ..., layer2_0, ...``; ``inner_0, ...`` for inner layers that are not told apart.

        Parameters
        ----------
        input_features : sequence of str of length D, default=None
            Only compared with the names seen in `fit`.

        Returns
        -------
        ndarray of str, shape (m,)
        """
        check_is_fitted(self)
        if input_features is not None and len(input_features) != self.n_features_in_:
            raise ValueError(
                f"input_features should have length equal to number of features ({self.n_features_in_}), "
                f"got {len(input_features)}"
            )
        known = getattr(self, "feature_names_in_", None)
        if input_features is not None and known is not None and not np.array_equal(known, input_features):
            raise ValueError(
                f"input_features is not equal to feature_names_in_: got {list(input_features)}, "
                f"fitted on {list(known)}."
            )
        names, seen = [], {}
        for layer in self.layer_assignment_:
            stem = f"layer{layer + 1}" if layer >= 0 else "inner"
            names.append(f"{stem}_{seen.setdefault(stem, 0)}")
            seen[stem] += 1
        return np.asarray(names, dtype=object)


def _warn_if_dependent(basis, V):
    """Warn where the weights found do not span the subspace as its own rank-one matrices would."""
    smallest = np.linalg.svd(svec_outer(V) @ basis, compute_uv=False).min(initial=np.inf)
    if smallest < _INDEPENDENT:
        warnings.warn(
            f"the outer products of the {len(V)} weights found are nearly dependent (smallest singular value "
            f"{smallest:.1e}, {_INDEPENDENT} expected at least), so some are not weights of the black box, whatever "
            "phi_ says: layer_widths ask for more units than there are, or for more than Hessians can tell apart.",
            ConvergenceWarning,
            stacklevel=5,
        )


def _near_first_layer(first, rng):
    """A point on every known first-layer hyperplane: where the answers move if they move at all."""
    if first is None:
        return None
    points = design_points(first.weights, first.biases, 2 * len(first.biases), 1.0, rng)
    return points[: len(first.biases)]


@dataclass
class _Job:
    """What the stages of one fit share."""

    oracle: Oracle
    rng: np.random.RandomState
    log: StageLog
    widths: tuple
    hidden: object
    output: object
    basis: np.ndarray | None = None
    singular_values: np.ndarray = field(default_factory=lambda: np.empty(0))
    n_iter: int = 1

    @property
    def last_visible(self):
        """Whether the last layer's weights show in the Hessians: not when the output is linear."""
        return self.output.curved

    @property
    def n_visible(self):
        """Weights that show in the Hessians."""
        return sum(self.widths) if self.last_visible else sum(self.widths[:-1])
