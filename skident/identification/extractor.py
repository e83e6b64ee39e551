"""Entangled weights of a black-box network, as a scikit-learn transformer."""

from __future__ import annotations

import warnings
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
    forgotten_on_error,
)
from skident.base.progress import StageLog
from skident.linalg import projection_norms
from skident.optim import one_thread
from skident.oracle import DERIVATIVES, Oracle
from skident.oracle.black_box import needs_targets, query_where_outputs_vary, resolve_activations, resolve_black_box

from .hessians.layer_assignment import assign_layers, last_layer_from_jacobian, refuse_one_output, weight_names
from .hessians.rank_one_weights import HessianSearch, find_entangled_weights
from .hessians.subspace import independence, last_layer_visible, spectral_drop, subspace_in_units
from .query_points import unit_rows
from .saturating.stated_widths import first_layer_as_stated, stated_architecture

__all__ = ["EntangledWeightExtractor"]

# Measured at D = 50: 0.5, 0.3 and 0.01 for m = 200, 400, 500 (weights right), 5e-5 and less from m = 550 (most wrong).
_INDEPENDENT = 1e-3
_NO_DROP, _NEAR = 0.4, 0.1  # from one singular value to the next, at a radius: right widths of two layers leave 0.25


class EntangledWeightExtractor(TransformerMixin, BaseEstimator):
    """Entangled weights of a feedforward network that can only be asked.

    The entangled weights at ``x*`` are ``V_l = (prod_{k<l} W_k G_k(x*)) W_l``: layer l's weights as the input sees
    them. They span the Hessians near ``x*``, so they are found as the rank-one matrices that maximise
    ``||P_W(u u^T)||_F^2`` over unit vectors u, W being the leading subspace of sampled Hessians. Where the network
    saturates, the first layer is read from far away instead, from function values alone.

    Parameters
    ----------
    estimator : callable, regressor, torch.nn.Module or FeedforwardNetwork, default=None
        The model: maps (n, D) to (n, m_L) or (n,). A regressor inside `FrozenEstimator` is queried as it is, another
        one is cloned and fitted on (X, y), a fitted one with a warning. None is a small tanh `MLPRegressor`.
    layer_widths : sequence of int, default=None
        ``(m_1, ..., m_L)``, the last one the number of outputs. None: one hidden layer whose width saturation finds.
        Widths are compared with what saturation finds; Hessians alone show too many units by weights that are
        nearly dependent or, with two layers, a spectrum that goes on behind them; mostly, and both are warned about.
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
        Threads that sample Hessians, which ask the black box at once, or what `joblib.parallel_config` chooses, see
        `NetworkIdentifier`. The result does not depend on it.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 shows progress and a line a stage.

    Attributes
    ----------
    components_ : ndarray of shape (m, D)
        Unit vectors, first layer first, last layer last; signs are free but for the last layer's, whose rows are in the
        outputs' order and have the gradients' signs (taken at another point where an output does not move at x*);
        0 for a linear output that is constant beside others.
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
            If X is not finite or has one row or column; widths are impossible, or fewer than the units that saturate;
            nothing saturates where that is needed; the activation has no second derivative where Hessians are needed,
            or these do not tell so many weights apart; an output does not move; the black box raises, is constant,
            answers with NaN or differently when asked twice.

        Warns
        -----
        ConvergenceWarning
            If fewer weights were found than `layer_widths` asks for, or weights that cannot all be the black box's.
        """
        with forgotten_on_error(self), one_thread():
            self._fit(*self._validated(X, y))
        return self

    def _validated(self, X, y):
        """Rows, and targets where the black box needs them, as arrays."""
        self._validate_params()
        if needs_targets(self.estimator) and y is not None:
            X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        else:
            X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        if X.shape[1] < 2:
            raise ValueError("n_features=1: weights of one input are all parallel; at least 2 features are needed.")
        return X, y

    def _fit(self, X, y):
        rng, log = check_random_state(self.random_state), StageLog(self.verbose)
        self.estimator_ = resolve_black_box(self.estimator, X, y, rng.randint(2**31 - 1))
        oracle, stated = self._start(X)
        first, architecture = self._first_layer(oracle, stated, rng, log)
        near = first.points_near_center(rng) if first else ()
        last = last_layer_from_jacobian(oracle, [*near, *oracle.from_inputs(X)])
        shown = self._shown_by_hessians(oracle, architecture, first, last, rng, log)
        V, layers = assign_layers(oracle, architecture, shown, first, last, method=self.last_layer, rng=rng, log=log)
        self._store(oracle, architecture, first, shown, V, layers)
        self.report_ = log.stages

    def _start(self, X):
        """The oracle, once its answers were looked at, and what is stated of the network."""
        (center, scale), D = center_and_scale(X, self.center), X.shape[1]
        oracle = Oracle(
            self.estimator_, D, center=center, scale=scale, derivatives=self.derivatives, step_size=self.step_size
        )
        U = oracle.from_inputs(X[:100])
        answers, _ = query_where_outputs_vary(oracle, U)
        names = resolve_activations(self.estimator_, self.activation, self.output_activation)
        oracle.measure_accuracy(U, oracle.standardize_outputs(answers, names[1]), np.random.RandomState(0))
        architecture = stated_architecture(self.layer_widths, names, oracle.n_outputs, self.first_layer)
        if self.last_layer == "hessian" and last_layer_visible(architecture):
            refuse_one_output(oracle.n_outputs)
        return oracle, architecture

    def _first_layer(self, oracle, stated, rng, log):
        """The first layer from far away, or None where Hessians are to show it; and the architecture with widths."""
        first, architecture = first_layer_as_stated(oracle, stated, self.first_layer, rng, log)
        if first is not None and len(first.biases) < architecture.widths[0]:
            _warn(
                f"only {len(first.biases)} of {architecture.widths[0]} first-layer units were found by saturation "
                f"({first.n_circles} circles); the others may be dead or parallel to these."
            )
        return first, architecture

    def _shown_by_hessians(self, oracle, architecture, first, last, rng, log):
        """Algorithms 1 to 3, for what is not known from saturation or the Jacobian."""
        widths, n = architecture.widths, self.n_hessians
        if n == "auto":
            needed = len(widths) > 2 or (first is None and len(widths) > 1)
            n = 6 * -(-sum(widths) // widths[-1]) if needed else 0
        known = np.empty((0, oracle.n_inputs)) if first is None else first.directions.T
        if first is not None and last_layer_visible(architecture) and self.last_layer == "jacobian":
            known = np.concatenate([known, unit_rows(last)])
        search = HessianSearch(
            n_hessians=n,
            radius=self.radius,
            n_jobs=self.n_jobs,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        shown = find_entangled_weights(oracle, architecture, known, search, rng, log)
        if shown.n_missing > 0:
            found = len(shown.vectors)
            _warn(
                f"the power method found {found} of the {found + shown.n_missing} weights it was to find in the "
                "Hessians' subspace (stage 'power method'). Move center to where the units are near their inflection "
                "points, raise n_init or n_hessians, or check layer_widths."
            )
        return shown

    def _store(self, oracle, architecture, first, shown, V, layers):
        """All in the inputs' own units, and how well the Hessians' subspace holds the weights V (m, D)."""
        n_layers = len(architecture.widths)
        self.layer_assignment_, self.layer_widths_ = layers, architecture.widths
        self.phi_, self.subspace_, self.singular_values_ = np.full(len(V), np.nan), None, shown.singular_values
        if shown.basis is not None:
            visible = (layers != n_layers - 1) | last_layer_visible(architecture)
            self.phi_[visible] = projection_norms(shown.basis, V[visible])
            sharp = first is None and n_layers == 2 and self.radius <= _NEAR
            drop = sharp * spectral_drop(shown.singular_values, shown.basis.shape[1])
            _warn_of_false_weights(independence(shown.basis, V[visible]), drop, visible.sum())
            self.subspace_ = subspace_in_units(shown.basis, oracle.scale)
        self.components_ = unit_rows(V / oracle.scale)
        self.first_layer_method_ = "saturation" if first is not None else "hessian" if n_layers > 1 else "jacobian"
        self.scales_ = self.shifts_ = None
        if first is not None:
            weights = first.weights.T / oracle.scale
            self.scales_ = np.linalg.norm(weights, axis=1)
            self.shifts_ = first.biases - weights @ oracle.center
        self.center_, self.scale_ = oracle.center, oracle.scale.copy()
        self.n_queries_, self.n_derivatives_, self.n_iter_ = oracle.n_queries, oracle.n_derivatives, shown.n_iter

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

        Raises
        ------
        ValueError
            If `input_features` are not those of `fit`.
        """
        check_is_fitted(self)
        if input_features is not None and len(input_features) != self.n_features_in_:
            expected = f"input_features should have length equal to number of features ({self.n_features_in_})"
            raise ValueError(f"{expected}, got {len(input_features)}")
        known = getattr(self, "feature_names_in_", None)
        if input_features is not None and known is not None and not np.array_equal(known, input_features):
            raise ValueError(f"input_features is not equal to feature_names_in_: {list(input_features)}, {list(known)}")
        return weight_names(self.layer_assignment_)


def _warn_of_false_weights(smallest, drop, n_found):
    if smallest < _INDEPENDENT or drop > _NO_DROP:
        message = (
            f"of {n_found} weights found some may be none, whatever phi_ says: check layer_widths. They nearly depend "
            f"(by {smallest:.1e}, {_INDEPENDENT} expected), or Hessians hold more (the next is {drop:.2f} of the last)."
        )
        _warn(message, stacklevel=6)


def _warn(message, stacklevel=5):  # where `fit` was called: what `_fit` calls is three frames below
    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)
