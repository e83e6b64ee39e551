"""Entangled weights of a network that can only be queried, as a scikit-learn transformer."""

import warnings
from numbers import Integral

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skident.base.checked_data import checked_data
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
from skident.base.progress import StageLog
from skident.base.report import StageReport
from skident.linalg import projection_norms
from skident.optim import one_thread
from skident.oracle import DERIVATIVES, BlackBoxError, Oracle
from skident.oracle.black_box import (
    called_as,
    named_rows,
    needs_targets,
    query_where_outputs_vary,
    resolve_activations,
    resolve_black_box,
    takes_targets,
)

from .hessians.layer_assignment import assign_layers, last_layer_from_jacobian, refuse_one_output, weight_names
from .hessians.subspace import (
    HessianSearch,
    find_entangled_weights,
    independence,
    last_layer_visible,
    spectral_drop,
    subspace_in_units,
)
from .query_points import unit_rows
from .saturating.first_layer import first_layer_as_stated, stated_architecture

# Smallest `independence` of right weights. Measured at D = 50: 0.5, 0.3 and 0.01 for m = 200, 400, 500 (weights right),
# 5e-5 and less from m = 550 (most weights wrong).
_MIN_INDEPENDENCE = 1e-3
_MAX_DROP = 0.4  # from one singular value to the next behind the subspace: right widths of two layers leave 0.25
_MAX_DROP_RADIUS = 0.1  # largest radius at which that holds: farther out, Hessians leave the subspace
_HESSIANS_PER_WEIGHT = 6  # times m / m_L: accuracy within a few per cent of the paper's 20, for a third of the queries
_VARIATION_SAMPLES = 100  # of X, that outputs must vary on; budget


class EntangledWeightExtractor(TransformerMixin, Estimator):
    """Recover the entangled weights of a feedforward network from queries.

    The entangled weights at ``x*`` are ``V_l = (prod_{k<l} W_k G_k(x*)) W_l``: layer l's weights as functions of the
    input. They span the Hessians near ``x*``, and are recovered as the rank-one matrices that maximize
    ``||P_W(u u^T)||_F^2`` over unit vectors u, with W the leading subspace of sampled Hessians. If the first layer
    saturates, it is recovered from outputs far away instead, without derivatives.

    Parameters
    ----------
    estimator : callable, regressor, torch.nn.Module or FeedforwardNetwork, default=None
        The model: maps (n, D) to (n, m_L) or (n,). Without y it is queried as it is. With y a regressor is cloned and
        fitted on (X, y), a fitted one with a warning, unless it is inside `FrozenEstimator`. None is a small tanh
        `MLPRegressor`.
    layer_widths : sequence of int, default=None
        ``(m_1, ..., m_L)``, the last one the number of outputs. None: one hidden layer whose width saturation
        determines. Give them for deeper networks, and for Hessians.
    activation, output_activation : str, default="auto"
        Names as in `FeedforwardNetwork`. ``auto`` reads them from models that state them (FeedforwardNetwork,
        MLPRegressor, torch Sequential); otherwise tanh with linear output. Give them for other callables.
    center : array-like of shape (D,), default=None
        x*; the mean of X by default. Move it to where the units are near their inflection points.
    radius : float, default=0.01
        Of the sphere on which Hessians are sampled, in standard deviations. Raise it if the model is nearly linear.
    n_hessians : int, default="auto"
        Points of that sphere. ``auto``: ``6 ceil(m / m_L)``, or 0 if no Hessian is needed. 20 gain a few per cent.
    first_layer : {"auto", "saturation", "hessian"}, default="auto"
        ``saturation``: steps of the outputs on large circles, any m_1. ``hessian``: Algorithm 4. ``auto``: saturation
        if the activation has limits. Choose ``hessian`` if far queries are not allowed.
    last_layer : {"jacobian", "hessian"}, default="jacobian"
        ``jacobian``: the gradients at x* are the last layer's entangled weights. ``hessian``: Algorithm 5.
    derivatives : {"auto", "exact", "finite_difference"}, default="auto"
        See `Oracle`; central differences have steps of 1e-3 standard deviations.
    max_iter : int, default=1000
        Iterations of the power method.
    n_starts : int, default=None
        Random starts of its first round; None: twice the number of missing weights.
    n_jobs : int, default=None
        Threads (or see `joblib.parallel_config`) that query the model at once. The result does not depend on it.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 prints progress on stderr.

    Attributes
    ----------
    components_ : ndarray of shape (m, D)
        Unit vectors, first layer first. Signs are free, except in the last layer: its rows are in the outputs' order
        with the gradients' signs; 0 for a constant linear output.
    layer_assignment_ : ndarray of shape (m,)
        Layer of every component, from 0; -1 for inner layers that cannot be distinguished (four layers and more).
    phi_ : ndarray of shape (m,)
        ``||P_W(v v^T)||_F^2``, 1 for a weight exactly in the subspace; NaN for a weight not from Hessians.
    subspace_ : ndarray of shape (D (D + 1) / 2, k) or None
        Orthonormal basis of W as `skident.linalg.svec` vectors, in the inputs' own units.
    singular_values_ : ndarray
        Of the stacked Hessians (in standardized inputs), descending; empty without Hessians.
    layer_widths_ : tuple of int
    center_, scale_ : ndarray of shape (D,)
        x* and the inputs' standard deviations.
    scales_, biases_ : ndarray of shape (m_1,) or None
        From saturation: first-layer units are about ``g(scales_ * (components_ @ x) + biases_)``, biases to 0.1.
    first_layer_method_ : {"saturation", "hessian", "jacobian"}
    estimator_ : object
    n_queries_, n_derivatives_ : int
        Queries, and inputs at which exact Jacobians and Hessians were taken.
    n_iter_ : int
        Of the power method's longest run.
    report_ : StageReport
        Seconds, queries and residual of every stage.
    n_features_in_ : int

    See Also
    --------
    NetworkCompletion : The next step of the pipeline.
    NetworkIdentifier : All steps at once, polished to rounding error.

    Notes
    -----
    Widths are compared with what saturation determines. Hessians alone reveal too many units by weights that are nearly
    dependent or, with two layers, by a spectrum that continues behind them; both mostly, and with a warning.
    Hessians by differences need ``2 D^2 + 1`` queries per point, the saturation search about ``256 + k (D + 70)`` per
    half circle with k new units. Linear algebra is ``O(n_h m_L D^2 min(n_h m_L, D^2))`` for the subspace and
    ``O(m^2 D^2)`` per iteration of the power method.

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
        "max_iter": [AT_LEAST_ONE],
        "n_starts": [AT_LEAST_ONE, None],
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
        max_iter=1000,
        n_starts=None,
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
        self.max_iter = max_iter
        self.n_starts = n_starts
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
        """Query the model and recover its entangled weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
            Sets the center and the scale of each input. Of a DataFrame, the model gets the columns by name.
        y : array-like of shape (n_samples,) or (n_samples, m_L), default=None
            Only for an estimator that must be fitted first.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not finite or has one row or column; widths are impossible or too small; nothing saturates although
            it must; Hessians do not determine the weights; the model raises, is constant, or returns NaN.

        Warns
        -----
        ConvergenceWarning
            If fewer weights are recovered than `layer_widths` states, or weights that cannot all be the model's.
        """
        with forgotten_on_error(self), one_thread():
            self._fit(*self._validated(X, y), X)
        return self

    def _validated(self, X, y):
        """X, and y if the model must be fitted first, as arrays."""
        self._validate_params()
        if takes_targets(self.estimator) and y is not None:
            X, y = checked_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        else:
            X = checked_data(self, X, dtype=np.float64, ensure_min_samples=2)
        if X.shape[1] < 2:
            raise ValueError("n_features=1: weights of one input are all parallel; at least 2 features are needed.")
        return X, y

    def _fit(self, X, y, frame):
        rng, log = check_random_state(self.random_state), StageLog(self.verbose)
        self.estimator_ = resolve_black_box(self.estimator, named_rows(X, frame), y, rng.randint(2**31 - 1))
        oracle, stated = self._oracle(X, called_as(self.estimator_, frame))
        first, architecture = self._first_layer(oracle, stated, rng, log)
        near = first.points_near_center(rng) if first else ()
        last = last_layer_from_jacobian(oracle, [*near, *oracle.from_inputs(X)])
        found = self._from_hessians(oracle, architecture, first, last, rng, log)
        V, layers = assign_layers(oracle, architecture, found, first, last, method=self.last_layer, rng=rng, log=log)
        self._store(oracle, architecture, first, found, V, layers)
        self.report_ = StageReport(log.stages)

    def _oracle(self, X, called):
        """The oracle, its outputs standardized and their accuracy measured, and the stated architecture."""
        (center, scale), D = center_and_scale(X, self.center), X.shape[1]
        oracle = Oracle(called, D, center=center, scale=scale, derivatives=self.derivatives)
        U = oracle.from_inputs(X[:_VARIATION_SAMPLES])
        outputs, _ = query_where_outputs_vary(oracle, U)
        names = resolve_activations(self.estimator_, self.activation, self.output_activation)
        oracle.measure_accuracy(U, oracle.standardize_outputs(outputs, names[1]), np.random.RandomState(0))
        architecture = stated_architecture(self.layer_widths, names, oracle.n_outputs, self.first_layer)
        if self.last_layer == "hessian" and last_layer_visible(architecture):
            refuse_one_output(oracle.n_outputs)
        return oracle, architecture

    def _first_layer(self, oracle, stated, rng, log):
        """The first layer from saturation, or None if Hessians are to recover it; and the architecture with widths."""
        try:
            first, architecture = first_layer_as_stated(oracle, stated, self.first_layer, rng, log)
        except BlackBoxError as error:
            raise BlackBoxError(f"{error} If far queries are not allowed, use first_layer='hessian'.") from error
        if first is not None and len(first.biases) < architecture.widths[0]:
            _warn(
                f"only {len(first.biases)} of {architecture.widths[0]} first-layer units were detected by saturation "
                f"({first.n_circles} circles); the others may be dead or parallel to these."
            )
        return first, architecture

    def _from_hessians(self, oracle, architecture, first, last, rng, log):
        """Algorithms 1 to 3, for what is unknown from saturation and the Jacobian."""
        widths, n = architecture.widths, self.n_hessians
        if n == "auto":
            needed = len(widths) > 2 or (first is None and len(widths) > 1)
            n = _HESSIANS_PER_WEIGHT * -(-sum(widths) // widths[-1]) if needed else 0
        known = np.empty((0, oracle.n_inputs)) if first is None else first.directions.T
        if first is not None and last_layer_visible(architecture) and self.last_layer == "jacobian":
            known = np.concatenate([known, unit_rows(last)])
        search = HessianSearch(n, self.radius, self.n_jobs, self.n_starts, self.max_iter)
        found = find_entangled_weights(oracle, architecture, known, search, rng, log)
        if found.n_missing > 0:
            n = len(found.vectors)
            _warn(
                f"the power method recovered {n} of the {n + found.n_missing} weights it was to find in the "
                "Hessians' subspace (stage 'power method'). Move center to where the units are near their inflection "
                "points, raise n_starts or n_hessians, or check layer_widths."
            )
        return found

    def _store(self, oracle, architecture, first, found, V, layers):
        """Store weights V (m, D) and subspace in the inputs' own units, and how well the subspace holds the weights."""
        n_layers = len(architecture.widths)
        self.layer_assignment_, self.layer_widths_ = layers, architecture.widths
        self.phi_, self.subspace_, self.singular_values_ = np.full(len(V), np.nan), None, found.singular_values
        if found.basis is not None:
            visible = (layers != n_layers - 1) | last_layer_visible(architecture)
            self.phi_[visible] = projection_norms(found.basis, V[visible])
            two_layers = first is None and n_layers == 2 and self.radius <= _MAX_DROP_RADIUS
            drop = two_layers * spectral_drop(found.singular_values, found.basis.shape[1])
            _warn_of_false_weights(independence(found.basis, V[visible]), drop, visible.sum())
            self.subspace_ = subspace_in_units(found.basis, oracle.scale)
        self.components_ = unit_rows(V / oracle.scale)
        self.first_layer_method_ = "saturation" if first is not None else "hessian" if n_layers > 1 else "jacobian"
        self.scales_ = self.biases_ = None
        if first is not None:
            weights = first.weights.T / oracle.scale
            self.scales_ = np.linalg.norm(weights, axis=1)
            self.biases_ = first.biases - weights @ oracle.center
        self.center_, self.scale_ = oracle.center, oracle.scale.copy()
        self.n_queries_, self.n_derivatives_, self.n_iter_ = oracle.n_queries, oracle.n_derivatives, found.n_iter

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
        X = checked_data(self, X, dtype=np.float64, reset=False)
        return X @ self.components_.T

    def get_feature_names_out(self, input_features=None):
        """``layer1_0, layer1_1, ..., layer2_0, ...``; ``inner_0, ...`` for inner layers that cannot be distinguished.

        Parameters
        ----------
        input_features : sequence of str of length D, default=None
            Only compared with the names in `fit`.

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
    if smallest < _MIN_INDEPENDENCE or drop > _MAX_DROP:
        message = (
            f"some of the {n_found} weights may be wrong, whatever phi_ is: check layer_widths. They are nearly "
            f"dependent (independence {smallest:.1e}, expected {_MIN_INDEPENDENCE}), or Hessians hold more of them "
            f"(the next singular value is {drop:.2f} of the last)."
        )
        _warn(message, stacklevel=6)


def _warn(message, stacklevel=5):  # where `fit` was called: what `_fit` calls is three frames below
    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)
